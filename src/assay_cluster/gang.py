"""The processes of one job: they agree on what they run, and none waits for another one for ever."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from omegaconf import OmegaConf
from torch.distributed import DistError

from assay.assemble.trainer_options import num_devices
from assay.errors import AssayError, ConfigError, RankError, describe_error
from assay.files.symlinks import read_whole
from assay.quoting import join_first
from assay.record.provenance import NUMERIC_PACKAGES, describe_code, describe_segment
from assay.record.run_record import cause_of_exception, exit_code_of
from assay.record.secrets import redact, redact_tree
from assay.terminal import printable
from assay.torch_internals import tcp_store, within
from assay_analysis.run import flatten
from assay_cluster.world import address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omegaconf import DictConfig

    from assay.run.result import RunResult
    from assay_cluster.world import World

TIMEOUT = 600.0
"""Seconds in which all processes of a job must have come, unless `trainer.timeout_s` says otherwise."""
_LOST = 60
"""Signs of life that a process may miss before it counts as lost."""
_DEAD = 3
"""The same where a connection has broken."""
_BEAT = 1.0
"""Seconds between two signs of life."""
_GRACE = 8.0
"""Seconds for a process to end by itself once another one has failed."""
_LATE = 30.0
"""Seconds for others to come and hear that the job has failed before it began."""
_SHARED = 60.0
"""Seconds in which another machine must see a file: network file systems remember that there was none."""
_GONE = "gone"
"""The last sign of life."""
_TICK = 0.05
_MOST = 3
"""Differences to name."""


@final
@dataclass(frozen=True)
class Failure:
    """Why the processes of a job end: what one of them has said, or is known of it."""

    who: str
    message: str
    hint: str = ""
    code: int = 1
    cause: str = "killed"
    trace: str = ""

    @classmethod
    def of(cls, who: str, error: BaseException) -> Failure:
        """The failure of a process that an exception ends."""
        cause = cause_of_exception(error)
        if isinstance(error, AssayError):
            return cls(who, error.message, error.hint, error.exit_code, cause)
        if isinstance(error, KeyboardInterrupt):
            name = getattr(error, "name", "SIGINT")  # of `Stopped`
            return cls(who, f"stopped by {name}", "", exit_code_of(name))
        return cls(
            who, describe_error(error), "", 1, cause, "".join(traceback.format_exception(error))
        )

    def error(self) -> RankError:
        """What is raised in another process for it."""
        error = RankError(f"{self.who}: {self.message}", hint=self.hint, cause=self.cause)
        error.exit_code = self.code
        if self.trace:
            error.add_note(self.trace)
        return error


@final
@dataclass(frozen=True)
class Plan:
    """What a process is about to run: the other ones must have the same."""

    config: DictConfig
    trusted: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def compared(self) -> dict[str, Any]:
        """Everything that must be the same, by what it is called; without secrets."""
        segment, _ = describe_segment([], 1)
        config: Any = OmegaConf.to_container(self.config)
        compared = {key: value for key, value in config.items() if key not in ("run_dir", "spec")}
        return {
            **dict(flatten(redact_tree(compared))),
            **self.facts,
            "code": describe_code(segment),
            "python": segment["machine"]["python"],
            "number of GPUs": torch.cuda.device_count(),
            # What does not compute, such as a monitor that one node has, changes no number.
            **{f"package {name}": segment["packages"].get(name) for name in NUMERIC_PACKAGES},
        }


def ranks_per_process(world: World, config: DictConfig) -> int:
    """How many ranks each process of a world has to start: 1 where it is to be a rank itself.

    Raises:
        ConfigError: The job asks for other processes than there are.
    """
    nodes = int(config.trainer.get("num_nodes") or 1)
    available = 1
    if config.trainer.get("accelerator") != "cpu":
        available = torch.cuda.device_count()
    devices = num_devices(config.trainer, available)
    if (world.nodes, world.local_size) == (nodes, devices):
        return 1
    if (world.nodes, world.local_size) == (nodes, 1) and world.launcher != "torchrun":
        return devices
    raise ConfigError(
        f"{world.launcher} has started {world.nodes} × {world.local_size} processes (nodes × each), and the "
        f"job asks for {nodes} × {devices} (trainer.num_nodes × trainer.devices)",
        key="trainer.num_nodes",
        hint=f"trainer.num_nodes={world.nodes} trainer.devices={world.local_size}",
    )


@final
class Gang:
    """Rendezvous and failure detection of one job's processes.

    Args:
        world: Who they are.
        kind: Whether they are ranks that train, or processes that start them.
        timeout_s: Seconds in which all of them must have come.
        interface: Of the network, on which rank 0's store listens; empty for that of its address.
        on_end: Called before this process is ended because another one has failed.
    """

    def __init__(
        self,
        world: World,
        kind: Literal["rank", "node"] = "rank",
        *,
        timeout_s: float | None = None,
        interface: str = "",
        on_end: Callable[[Failure], None] = lambda _: None,
    ) -> None:
        self.kind = kind
        self.timeout = timeout_s or TIMEOUT
        self.on_end = on_end
        self.host = socket.gethostname()
        self.exit_code = 0
        self._hosts: dict[int, str] = {}
        self._server = None
        address = world.address
        port = world.port
        if world.serves and world.rank == 0:
            self._server, address, port = _serve(world, interface)
        # On one machine their launcher sees each death, and a process that is stopped for a while may go on.
        self._is_watched = world.nodes == 1 and not world.serves
        self.world = replace(world, address=address, port=port)
        self._store = self._connect()
        self._left = threading.Event()
        self._ending = False
        self._ended: int | None = None
        self._last_progress = time.monotonic()
        self._missed = dict[int, int]()
        # On one machine a store that is gone closes its connections; one that is merely stopped may go on.
        targets = [self._beat]
        if world.address != "127.0.0.1":
            targets.append(self._watch_beat)
        self._threads = [
            threading.Thread(target=target, daemon=True, name="gang") for target in targets
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ending = True
        if error is not None:
            failure = Failure.of(self.name(), error)
            self.exit_code = failure.code or 1
            self.fail(failure)
        with suppress(DistError):  # whoever is gone needs nothing any more
            if self.world.rank == 0:
                self._put(f"end/{self.kind}", self.exit_code)
                seconds = _GRACE
                if error is not None:
                    seconds = min(_LATE, self.timeout)
                deadline = time.monotonic() + seconds
                while (
                    self._server is not None
                    and self._has_others()
                    and time.monotonic() < deadline
                ):
                    time.sleep(_TICK)
        self._left.set()
        # one that the interpreter's end finds in the store aborts the process
        for thread in self._threads:
            thread.join(_GRACE)
        with suppress(DistError):
            self._store.set(f"beat/{self.kind}/{self.world.rank}", _GONE)
        self._server = None

    def _has_others(self) -> bool:
        """Whether a process that lives, or may still come, has yet to hear how the job has ended."""
        living = {*range(1, self.world.size)} - {*self._silent()}
        return any(self._beat_of(self._store, rank) != _GONE for rank in living)

    def _beat_of(self, store: Any, rank: int) -> str:
        """The last sign of life of a process; empty where it has not come."""
        key = f"beat/{self.kind}/{rank}"
        return store.get(key).decode() if store.check([key]) else ""

    def _silent(self) -> list[int]:
        """Processes that have come, and whose signs of life have stopped."""
        return [
            rank
            for rank, missed in self._missed.items()
            if missed >= _DEAD and rank in self._hosts
        ]

    def name(self, rank: int | None = None) -> str:
        """What a process is called in messages."""
        if rank is None:
            rank = self.world.rank
        host = {**self._hosts, self.world.rank: self.host}.get(rank, "")
        return f"{self.kind} {rank} of {self.world.size}" + f" on {host}" * bool(host)

    # -- before they train -----------------------------------------------------------------------------------

    def agree(self, plan: Plan | Exception) -> Plan:
        """Refuse processes that have composed something else, and those that do not come."""
        if isinstance(plan, Exception):
            raise plan
        ours = plan.compared()
        if self.world.rank:
            self._put(f"plan/{self.world.rank}", {"host": self.host, "facts": ours})
            return plan
        ours = json.loads(json.dumps(ours, default=str))
        self._wait_for("plan", "start", self.timeout)
        for rank in range(1, self.world.size):
            theirs = self._get(f"plan/{rank}")
            self._hosts[rank] = theirs["host"]
            facts = theirs["facts"]
            keys = [key for key in {**ours, **facts} if ours.get(key) != facts.get(key)]
            if keys:
                differing = [
                    f"{key}: {facts.get(key)} instead of {ours.get(key)}" for key in keys
                ]
                raise AssayError(
                    f"{self.name(rank)} differs from {self.name()}: {join_first(differing, _MOST)}",
                    hint="start the same command with the same code and packages everywhere",
                )
        return plan

    def call(self, run_dir: Path, **options: Any) -> None:
        """Have the others begin, once each of them sees the run directory and has what it needs."""
        options |= {
            "run_dir": str(run_dir),
            "cwd": str(Path.cwd()),
            "sha256": _config_sha256(run_dir),
        }
        self._put("go", options)
        self._wait_for("ready", "get ready", None)
        self._put("start", True)

    def follow(self, prepare: Callable[[Path], None]) -> Mapping[str, Any] | None:
        """Wait for rank 0 to have written the run directory, look at it, and get ready.

        Returns:
            What was given to rank 0's `call`; None where rank 0 has ended before training.
        """
        call: dict[str, Any] | None = self._read_or_end("go")
        if call is None:
            return None
        run_dir = Path(call["run_dir"])
        deadline = time.monotonic() + min(_SHARED, self.timeout)
        while _config_sha256(run_dir) != call["sha256"]:
            if time.monotonic() > deadline:
                raise AssayError(
                    f"{run_dir.absolute()} is not the run directory that rank 0 has written "
                    f"({Path(call['cwd'], run_dir)} there)",
                    hint="hydra.run.dir=… on a file system that all nodes share, from the same directory",
                )
            time.sleep(_TICK)
        prepare(run_dir)
        self._put(f"ready/{self.world.rank}", True)
        if self._read_or_end("start") is not None:
            return call
        return None

    def wait_for_end(self) -> int:
        """Wait until rank 0 is done, and return its exit code."""
        exit_code = self._read_or_end(f"end/{self.kind}")
        return int(exit_code if self._ended is None else self._ended)

    # -- failures --------------------------------------------------------------------------------------------

    def fail(self, failure: Failure) -> None:
        """Tell the others why they have to end; the first one to do so is heard."""
        with suppress(DistError):  # they see for themselves that the store is gone
            self._store.compare_set("failed", "", json.dumps(asdict(failure)))

    def report(self, error: Exception) -> Exception:
        """Tell the others of an error that ends this process, and return what it comes from.

        Where a connection has broken, that is the error of another process, or its death.
        """
        self._ending = True
        failure = Failure.of(self.name(), error)
        if failure.cause != "machine":
            self.fail(failure)
            return error
        try:
            if self.world.rank:
                self._store.compare_set("broken", "", json.dumps(asdict(failure)))
                return error
            deadline = time.monotonic() + (_DEAD + 2) * _BEAT
            while time.monotonic() < deadline and not self._is_failed():
                for rank in self._silent():
                    message = "its process ended without an error message"
                    self.fail(Failure(self.name(rank), message))
                time.sleep(_TICK)
            if self._store.check(["broken"]):
                self.fail(self._read_failure("broken"))
            self.fail(failure)
            cause = self._read_failure()
        except DistError:
            return error
        if cause == failure:
            return error
        return cause.error()

    def error(self) -> RankError | None:
        """Why the job has failed, where one of its processes has said so."""
        if self._is_failed():
            return self._read_failure().error()
        return None

    def _read_failure(self, key: str = "failed") -> Failure:
        return Failure(**self._get(key))

    def _is_failed(self) -> bool:
        with suppress(DistError):
            return bool(self._store.check(["failed"]))
        return False

    # -- the store -------------------------------------------------------------------------------------------

    def _connect(self) -> Any:
        world = self.world
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                store = tcp_store(
                    *(world.address, world.port),
                    is_master=False,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=5),
                )
                return within(store, f"assay/{world.job}")
            except DistError as error:
                if time.monotonic() > deadline:
                    raise AssayError(
                        f"{self.name()}: rank 0 does not answer at {world.address}:{world.port} after "
                        f"{self.timeout:g} s",
                        hint="check the output of rank 0; trainer.interface=… names another network, "
                        "trainer.timeout_s=… waits longer",
                    ) from error
            time.sleep(_TICK)

    def _put(self, key: str, value: Any) -> None:
        self._store.set(key, json.dumps(value, default=str))

    def _get(self, key: str) -> Any:
        return json.loads(self._store.get(key))

    def _wait_for(self, stage: str, do: str, seconds: float | None) -> None:
        """Wait for a word of each other process; name those of which none comes."""
        ranks = range(1, self.world.size)
        try:
            self._wait([f"{stage}/{rank}" for rank in ranks], seconds)
        except TimeoutError as error:
            missing = [
                self.name(rank) for rank in ranks if not self._store.check([f"{stage}/{rank}"])
            ]
            raise AssayError(
                f"{', '.join(missing)} did not {do} within {seconds:g} s (reported by {self.name()})",
                hint="check what was printed there; trainer.timeout_s=… waits longer",
            ) from error

    def _read_or_end(self, key: str) -> Any:
        """Wait for a value of rank 0's, and return it; None where rank 0 has ended."""
        self._wait([key], None, or_end=True)
        if self._ended is None:
            return self._get(key)
        return None

    def _has_ended(self, store: Any) -> bool:
        """Whether rank 0 has ended the job."""
        if self._ended is None and store.check([f"end/{self.kind}"]):
            self._ended = int(store.get(f"end/{self.kind}"))
        return self._ended is not None

    def _wait(self, keys: Sequence[str], seconds: float | None, *, or_end: bool = False) -> None:
        """Wait for keys; without a time for as long as those who are to set them live."""
        deadline = time.monotonic() + (seconds or float("inf"))
        try:
            while keys and not self._store.check(list(keys)):
                if or_end and self._has_ended(self._store):
                    return
                if self._is_failed():
                    raise self._read_failure().error()
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(_TICK)
        except DistError as error:
            if or_end and self._ended is not None:
                return
            raise Failure(self.name(0), "its store is gone").error() from error

    # -- signs of life ---------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Show that this process lives, and see whether others do: rank 0 sees all, and all see rank 0."""
        store = self._store.clone()
        seen: dict[int, str] = {}
        watched = set(range(1, self.world.size)) if self.world.rank == 0 else {0}
        for count in range(1 << 62):
            try:
                store.set(f"beat/{self.kind}/{self.world.rank}", f"{self.host} {count}")
                for rank in list(watched):
                    self._look(store, rank, seen, watched)
                if store.check(["failed"]):
                    self._end(Failure(**json.loads(store.get("failed"))))
                self._has_ended(store)
            except DistError:
                if self._ended == 0:  # all is done; rank 0 has not waited for this process
                    return
                if not self._left.wait(_BEAT):
                    self._end(Failure(self.name(0), "its store is gone"))
            self._last_progress = time.monotonic()
            if self._left.wait(_BEAT):
                return

    def _look(self, store: Any, rank: int, seen: dict[int, str], watched: set[int]) -> None:
        beat = self._beat_of(store, rank)
        if beat == _GONE:
            watched.discard(rank)
            self._missed.pop(rank, None)
            return
        if seen.get(rank) != beat:
            self._missed[rank] = 0
        else:
            self._missed[rank] = self._missed[rank] + 1
        seen[rank] = beat
        if beat:
            self._hosts[rank] = beat.partition(" ")[0]
        # Of one that has not come, `agree` says so first.
        most = _LOST if beat else 2 * self.timeout / _BEAT
        if self._missed[rank] > most and not (beat and self._is_watched):
            self.fail(Failure(self.name(rank), f"no heartbeat for {most * _BEAT:g} s"))

    def _watch_beat(self) -> None:
        """End this process where its own beat hangs: the machine with the store is gone without a word."""
        while not self._left.wait(_BEAT) and self._ended != 0:
            if time.monotonic() - self._last_progress > _LOST * _BEAT:
                self._end(Failure(self.name(0), "its machine is out of reach"))

    def _end(self, failure: Failure) -> None:
        """End this process, unless it does so by itself."""
        seconds = _GRACE
        if self.kind == "node":
            seconds = 3 * _GRACE
        if not self._left.wait(seconds) and not self._ending:
            try:
                self.on_end(failure)
            finally:
                os._exit(failure.code or 1)


def _serve(world: World, interface: str) -> tuple[Any, str, int]:
    """A store that listens at one address alone, which is returned with its port."""
    if interface and world.nodes > 1:
        host = address_of(interface)
    else:
        host = world.address
    try:
        with socket.create_server((host, world.port)) as listener:
            port = listener.getsockname()[1]
            # The store closes what it listens on, when it goes.
            descriptor = os.dup(listener.fileno())
    except OSError as error:
        raise AssayError(
            f"rank 0 on {socket.gethostname()} cannot listen at {host}:{world.port}: {error.strerror}",
            hint="MASTER_PORT=… names another port, trainer.interface=… another network",
        ) from error
    store = tcp_store(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    return store, host, port


def _config_sha256(run_dir: Path) -> str:
    path = run_dir / "config.yaml"
    if path.is_file():
        return hashlib.sha256(read_whole(path)).hexdigest()
    return ""


def _print_failure(failure: Failure) -> None:
    sys.stderr.write(f"error: {printable(redact(str(failure.error())))}\n")


def run_together(
    world: World,
    prepare: Callable[[], Plan],
    lead: Callable[[Gang], RunResult],
    follow: Callable[[Gang, Plan], int],
) -> RunResult | int:
    """Run a job that several processes were started for, once they agree on it.

    Args:
        world: Who they are.
        prepare: Finds out what to run.
        lead: Checks and runs it, in rank 0.
        follow: Does its share, in another one.

    Returns:
        In rank 0 the run's result, in the others their exit code; they print nothing.
    """
    kind: Literal["rank", "node"] = "rank"
    plan: Plan | Exception
    options: dict[str, Any] = {}
    try:
        plan = prepare()
        trainer = plan.config.trainer
        if ranks_per_process(world, plan.config) > 1:
            kind = "node"
        options = {
            "timeout_s": trainer.get("timeout_s"),
            "interface": trainer.get("interface") or "",
        }
    except Exception as error:
        plan = error
    if world.rank == 0:
        options["on_end"] = _print_failure
    try:
        with Gang(world, kind, **options) as gang:
            agreed = gang.agree(plan)
            if world.rank:
                return follow(gang, agreed)
            result = lead(gang)
            gang.exit_code = result.exit_code
            return result
    except Exception as error:
        # One that rank 0 cannot tell, as it is gone, is told by the next one.
        if world.rank == 0 or (world.rank == 1 and isinstance(error.__cause__, DistError)):
            raise
        return getattr(error, "exit_code", 1)
