"""One job on several nodes: launched as torchrun and srun do, on ports of this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil
import pytest
from omegaconf import OmegaConf
from tests.data.test_shards import write_shards
from tests.forks import Forks
from tests.interrupting import outcome
from tests.run.test_ranks import wait_for

from assay.errors import AssayError
from assay.torch_internals import tcp_store
from assay_cluster.gang import Failure, Plan, _print_failure
from assay_cluster.world import GANG, World, find_world, interface_towards
from assay_sweep.worker.fork_client import _OF_LAUNCHERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


HOST = socket.gethostname()
JOB = (
    *("data=breast_cancer", "model=mlp", "model.hidden=[8]", "device=ddp_cpu", "trainer.max_epochs=3"),
    *("optimizer=sgd", "optimizer.lr=0.1", "callbacks=[checkpoint,last_checkpoint]", "seed=3"),
    *("trainer.log_every_n_steps=1", "baseline=none", "callbacks.last_checkpoint.every_n_train_steps=1"),
)


def size(nodes: int, devices: int = 1) -> tuple[str, ...]:
    return (f"trainer.num_nodes={nodes}", f"trainer.devices={devices}")


def torchrun(rank: int, nodes: int, each: int, port: int) -> dict[str, str]:
    """What torchrun tells a process, without a store of its own."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % each),
        "GROUP_RANK": str(rank // each),
        "WORLD_SIZE": str(nodes * each),
        "LOCAL_WORLD_SIZE": str(each),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def srun(task: int, nodes: int, each: int, port: int) -> dict[str, str]:
    """What srun tells a task."""
    return {
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "127.0.0.1",
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"), str(nodes * each)),
        **dict.fromkeys(("SLURM_NNODES", "SLURM_STEP_NUM_NODES"), str(nodes)),
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task % each),
        "SLURM_NODEID": str(task // each),
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Processes:
    """The processes that a launcher starts, as forks; each prints into a file of its own."""

    def __init__(self, forks: Sequence[Forks]) -> None:
        self.forks = forks

    def start(
        self, cwd: Path, *words: str, more: Mapping[int, Sequence[str]] | None = None, ranks: int = 0
    ) -> None:
        """Start a command in each; `ranks` are what each starts itself."""
        for rank, fork in enumerate(self.forks):
            Path(f"{cwd}/{rank}.txt").unlink(missing_ok=True)
            words_of_rank = (*words, *(more or {}).get(rank, ()))
            fork.start(*words_of_rank, cwd=cwd, output=Path(f"{rank}.txt"), forked_children=ranks)

    def wait(self) -> list[int]:
        return [fork.wait().code for fork in self.forks]

    def process(self, rank: int) -> psutil.Process:
        """Of a rank."""
        [process] = psutil.Process(self.forks[rank].pid).children()
        return process

    def alive(self, rank: int) -> psutil.Process | None:
        """Of a rank, where it has not ended."""
        return next(iter(psutil.Process(self.forks[rank].pid).children()), None)


@contextmanager
def launched(
    nodes: int, each: int = 1, launcher: Any = torchrun, only: int | None = None
) -> Iterator[Processes]:
    """As many processes as there are, or the first ones `only`."""
    port = free_port()
    with ExitStack() as stack:
        words = [launcher(rank, nodes, each, port) for rank in range(nodes * each)][:only]
        yield Processes([stack.enter_context(Forks(**one)) for one in words])


def serve(port: int) -> int:
    """A process with a store, as torchrun's agent on the first node has one."""
    process = os.fork()
    if process == 0:
        store = tcp_store("127.0.0.1", port, is_master=True, wait_for_workers=False)
        time.sleep(600)
        os._exit(len(store.host))
    return process


def printed(cwd: Path, count: int = 2) -> list[str]:
    return [Path(f"{cwd}/{rank}.txt").read_text() for rank in range(count)]


def record(cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cwd / "run" / "record.json").read_text())
    return found


class References:
    """What so many ranks on one machine come to; each trained once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._known = folder, dict[tuple[str, ...], dict[str, str]]()

    def of(self, ranks: int, *words: str) -> dict[str, str]:
        key = (str(ranks), *words)
        if key not in self._known:
            folder = self._folder / str(len(self._known))
            folder.mkdir()
            typed = ("train", *JOB, *words, f"trainer.devices={ranks}", "hydra.run.dir=run")
            with Forks() as forks:
                ended = forks.command(*typed, cwd=folder, forked_children=ranks)
            assert ended.code == 0, (folder / "output.txt").read_text()
            self._known[key] = outcome(folder / "run")
        return self._known[key]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shards"
    write_shards(folder)
    return folder


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    return References(tmp_path_factory.mktemp("references"))


ACCUMULATION = ("trainer.accumulate_grad_batches=2", "data.batch_size=16")
STREAM = (
    *("data=table_shards", "data.source.path=SHARDS", "data.source.target=label", "data.source.window=300"),
    *("data.global_batch_size=40", "data.source.exclude=[customer]"),
)
PLATEAU = ("scheduler=plateau", "scheduler.monitor=train/loss", "scheduler.patience=0")
KINDS: dict[str, tuple[Any, int, int, tuple[str, ...]]] = {
    "torchrun": (torchrun, 2, 1, ()),
    "srun": (srun, 2, 1, ()),
    "2×2": (torchrun, 2, 2, ()),
    "4×1": (torchrun, 4, 1, ()),
    "accumulation": (torchrun, 2, 1, ACCUMULATION),
    "plateau": (srun, 2, 1, PLATEAU),
    "stream": (torchrun, 2, 1, STREAM),
    "stream 2×2": (srun, 2, 2, STREAM),
}


@pytest.mark.always("torchrun")
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_are_ranks_of_one_machine(
    references: References, shards: Path, tmp_path: Path, kind: str
) -> None:
    launcher, nodes, each, more = KINDS[kind]
    more = tuple(word.replace("SHARDS", str(shards)) for word in more)
    with launched(nodes, each, launcher) as processes:
        words = (*JOB, *more, *size(nodes, each), "hydra.run.dir=run", "trainer.timeout_s=60")
        processes.start(tmp_path, "train", *words)
        assert not any(processes.wait()), printed(tmp_path)
        first, *others = printed(tmp_path, nodes * each)
        assert "accuracy" in first
        assert not any(others), "rank 0 alone says anything"
        assert outcome(tmp_path / "run") == references.of(nodes * each, *more)
        processes.start(tmp_path, "resume", "run")
        assert processes.wait() == [0] * nodes * each, printed(tmp_path)
        assert not record(tmp_path)["resumed"], "it is finished"
        if kind == "srun":
            processes.start(tmp_path, "resume", "run", "trainer.max_epochs=4")
            assert processes.wait() == [0, 0], printed(tmp_path)
            assert "resuming from step" in printed(tmp_path)[0]
            assert record(tmp_path)["resumed"][-1]["changed"]["trainer.max_epochs"] == [3, 4]


@pytest.mark.parametrize(
    "device",
    [
        pytest.param("ddp_cpu", marks=pytest.mark.long),
        pytest.param("ddp", marks=pytest.mark.gpu),
        pytest.param("fsdp2", marks=pytest.mark.gpu),
    ],
)
def test_two_ranks_share_a_gpu_over_gloo(tmp_path: Path, device: str) -> None:
    here = ("train", *JOB, "trainer.devices=2", "hydra.run.dir=reference")
    with Forks() as forks:
        assert forks.command(*here, cwd=tmp_path, forked_children=2).code == 0
    words = ("train", *JOB, *size(2), f"device={device}", "hydra.run.dir=run", "trainer.timeout_s=60")
    with launched(2) as processes:
        for rank, fork in enumerate(processes.forks):
            output = Path(f"{rank}.txt")
            fork.start(*words, cwd=tmp_path, module="tests.run.over_gloo", output=output)
        assert not any(processes.wait()), printed(tmp_path)
    frames = [pd.read_csv(tmp_path / name / "metrics.csv") for name in ("reference", "run")]
    expected, losses = (list(frame["val/loss"].dropna()) for frame in frames)
    assert len(losses) == 3
    assert losses == pytest.approx(expected, rel=1e-3)


BAD: dict[str, tuple[Sequence[str], Sequence[str], str]] = {
    "config": (size(2), ("optimizer.lr=0.2",), "differs from rank 0 of 2 on {host}: optimizer.lr: 0.2"),
    "word": (size(2), ("optimzer.lr=0.2",), "optimzer.lr: unknown key or group"),
    "world": (size(2, 2), (), "torchrun has started 2 × 1 processes (nodes × each), and the job"),
    "strategy": (("device=cpu", "trainer.num_nodes=2"), (), "expected a distributed strategy"),
}


@pytest.mark.always("config")
@pytest.mark.parametrize("kind", BAD)
def test_ranks_that_do_not_fit_together(tmp_path: Path, kind: str) -> None:
    words, of_second, message = BAD[kind]
    with launched(2) as processes:
        processes.start(tmp_path, "train", *JOB, *words, "hydra.run.dir=run", more={1: of_second})
        codes = processes.wait()
    assert codes[0] == codes[1] != 0
    first, second = printed(tmp_path)
    assert message.format(host=HOST) in first
    assert first.count("error:") == 1
    assert second == ""
    assert not (tmp_path / "run").exists()
    if of_second:
        assert f"rank 1 of 2 on {HOST}" in first


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    with launched(2, only=1) as processes:
        processes.start(tmp_path, "train", *JOB, *size(2), "hydra.run.dir=run", "trainer.timeout_s=1")
        assert processes.wait() == [1]
    assert (
        f"rank 1 of 2 did not start within 1 s (reported by rank 0 of 2 on {HOST})" in printed(tmp_path, 1)[0]
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_first_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    with launched(2) as processes:
        processes.forks[1].start(
            "train", *JOB, *size(2), "trainer.timeout_s=1", cwd=tmp_path, output=Path("1.txt")
        )
        assert processes.forks[1].wait().code == 1
    said = Path(tmp_path / "1.txt").read_text()
    assert re.search(r"rank 1 of 2 on \S+: rank 0 does not answer at 127.0.0.1:\d+ after 1 s", said)


@pytest.mark.long
def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with Forks(**srun(0, 2, 1, port)) as forks:
            ended = forks.command("train", *JOB, *size(2), cwd=tmp_path)
    assert ended.code == 1
    said = (tmp_path / "output.txt").read_text()
    assert f"rank 0 on {HOST} cannot listen at 127.0.0.1:{port}: Address already in use" in said
    assert "MASTER_PORT" in said


@pytest.mark.long
def test_a_run_directory_that_is_not_shared_is_found_out_before_training(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with launched(2) as processes:
        words = ("train", *JOB, *size(2), "hydra.run.dir=run", "trainer.timeout_s=3")
        for rank, (fork, cwd) in enumerate(zip(processes.forks, (tmp_path, tmp_path / "other"), strict=True)):
            fork.start(*words, cwd=cwd, output=tmp_path / f"{rank}.txt")
        assert processes.wait() == [1, 1]
    first, second = printed(tmp_path)
    assert (
        f"rank 1 of 2 on {HOST}: {tmp_path}/other/run is not the run directory that rank 0 has written"
        in first
    )
    assert second == ""
    assert record(tmp_path)["status"] == "failed"
    assert not (tmp_path / "other" / "run").exists()


@pytest.mark.long
def test_a_rank_that_is_killed_is_named_and_the_run_goes_on(references: References, tmp_path: Path) -> None:
    with launched(2) as processes:
        processes.start(tmp_path, "train", *JOB, *size(2), "hydra.run.dir=run")
        wait_for((tmp_path / "run" / "checkpoints" / "last.ckpt").is_file)
        processes.process(1).kill()
        codes = processes.wait()
    assert codes == [1, -9]
    assert f"rank 1 of 2 on {HOST}: its process ended without an error message" in printed(tmp_path)[0]
    assert (record(tmp_path)["status"], record(tmp_path)["cause"]) == ("failed", "killed")
    with launched(2) as processes:
        processes.start(tmp_path, "resume", "run")
        assert processes.wait() == [0, 0], printed(tmp_path)
    assert outcome(tmp_path / "run") == references.of(2)


@pytest.mark.long
def test_a_resumed_run_of_three_ranks_adds_gradients_in_the_same_order(
    references: References, tmp_path: Path
) -> None:
    with launched(3) as processes:
        words = (*JOB, *size(3), "scheduler=none", "trainer.max_epochs=1", "hydra.run.dir=run")
        processes.start(tmp_path, "train", *words)
        assert not any(processes.wait()), printed(tmp_path, 3)
        processes.start(tmp_path, "resume", "run", "trainer.max_epochs=3")
        assert not any(processes.wait()), printed(tmp_path, 3)
    assert outcome(tmp_path / "run") == references.of(3, "scheduler=none")


MODES: dict[str, tuple[tuple[str, ...], int]] = {
    "ranks": (size(2), 0),
    "store": (size(2), 0),
    "agents": (("trainer.num_nodes=2", "trainer.devices=2"), 2),
}
"""How a job's processes are started: as ranks at a store of rank 0's or of torchrun's, or as agents."""


@contextmanager
def started(mode: str) -> Iterator[tuple[Processes, list[int]]]:
    """Processes of two nodes, and those that launch them."""
    if mode != "store":
        with launched(2, launcher=srun) as processes:
            yield processes, []
        return
    port = free_port()
    agent = serve(port)
    with ExitStack() as stack:
        stack.callback(os.waitpid, agent, 0)
        stack.callback(os.kill, agent, signal.SIGKILL)
        words = [torchrun(rank, 2, 1, port) | {"TORCHELASTIC_USE_AGENT_STORE": "True"} for rank in (0, 1)]
        yield Processes([stack.enter_context(Forks(**one)) for one in words]), [agent]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(100))
def test_whatever_is_killed_nothing_hangs_and_the_run_goes_on(
    references: References, tmp_path: Path, number: int
) -> None:
    """A rank, a node's agent, or the store's host; at any moment from the start to the test."""
    draw = random.Random(number)
    mode = list(MODES)[number % len(MODES)]
    words, ranks = MODES[mode]
    words = (*JOB, *words, "hydra.run.dir=run", "trainer.timeout_s=25")
    with started(mode) as (processes, launchers):
        begin = time.monotonic()
        processes.start(tmp_path, "train", *words, ranks=ranks)
        if number % 2:  # rendezvous is half of a short run
            wait_for((tmp_path / "run" / "metrics.csv").is_file)
        time.sleep(draw.uniform(0.0, 2.0 if number % 2 else 4.0))
        victims = [process for rank in (0, 1) if (process := processes.alive(rank))]
        victims += [child for process in victims for child in process.children()]
        victims += map(psutil.Process, launchers)
        if victims:
            draw.choice(victims).kill()
        codes = processes.wait()
        seconds = time.monotonic() - begin
    print(mode, codes, f"{seconds:.0f} s", (tmp_path / "run" / "record.json").is_file())
    for _ in range(2):
        has_record = (tmp_path / "run" / "record.json").is_file()
        if has_record and record(tmp_path)["status"] == "finished":
            break
        with started(mode) as (processes, _):
            again = ("resume", "run") if has_record else ("train", *words)
            processes.start(tmp_path, *again, ranks=ranks)
            assert processes.wait() == [0, 0], printed(tmp_path)
    expected = references.of(4 if mode == "agents" else 2)
    assert outcome(tmp_path / "run") == expected


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", ["agent 0", "agent 1", "rank 0", "rank 1"])
def test_a_process_of_torchruns_is_killed(references: References, tmp_path: Path, victim: str) -> None:
    """The real launcher on two nodes: its agents, and the ranks that they start."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(*words: str) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
        agents = []
        for node in (0, 1):
            with (tmp_path / f"{node}.txt").open("wb") as output:
                typed = [*command, f"--node-rank={node}", "-m", "assay", *words]
                options: dict[str, Any] = {"stdout": output, "stderr": output, "env": environment}
                agents.append(subprocess.Popen(typed, cwd=tmp_path, **options))
        return agents

    agents = start("train", *JOB, *size(2), "hydra.run.dir=run", "trainer.timeout_s=60")
    wait_for((tmp_path / "run" / "checkpoints" / "last.ckpt").is_file)
    kind, _, node = victim.partition(" ")
    process = psutil.Process(agents[int(node)].pid)
    ranks = [child for agent in agents for child in psutil.Process(agent.pid).children()]
    (process if kind == "agent" else process.children()[0]).kill()
    assert not psutil.wait_procs(ranks, 120)[1], "a rank lives on"
    for agent in agents:  # one waits five minutes for the other to leave
        with suppress(subprocess.TimeoutExpired):
            agent.wait(10)
        agent.kill()
        agent.wait()
    said = "".join(printed(tmp_path))
    if record(tmp_path)["status"] != "finished":  # agents alone may die: the ranks see each other
        # Of rank 0, which is to tell of others, torchrun's own table does.
        assert kind == "agent" or f"rank {node} of 2 on {HOST}" in said or "rank      : 0" in said
        assert [agent.wait(300) for agent in start("resume", "run")] == [0, 0], printed(tmp_path)
    assert outcome(tmp_path / "run") == references.of(2)


def test_who_a_process_is() -> None:
    assert find_world({}) is None
    assert find_world({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) is None, "a batch script, not a step of it"
    assert find_world(torchrun(0, 1, 1, 5)) is None
    assert find_world(torchrun(5, 4, 2, 5)) == World(
        rank=5, size=8, local_rank=1, local_size=2, node=2, port=5, launcher="torchrun"
    )
    task = srun(3, 2, 2, 5)
    assert find_world(task) == World(3, 4, 1, 2, 1, port=5, launcher="srun", job="77.0.0")
    del task["MASTER_PORT"]
    task["SLURM_STEP_NODELIST"] = "gpu-[07-08,12]"
    world = find_world(task)
    assert world is not None
    assert world.address == "gpu-07"
    assert 20_000 <= world.port < 30_000
    assert find_world({GANG: world.to_json()}) == world
    inherited = {name: value for name, value in task.items() if name not in _OF_LAUNCHERS}
    assert find_world(inherited) is None, "a job of Ray's, which srun has started"
    with pytest.raises(AssayError, match="torchrun would restart failed ranks"):
        find_world(torchrun(0, 2, 1, 5) | {"TORCHELASTIC_MAX_RESTARTS": "3"})
    for name in ("SLURM_PROCID", "SLURM_NODEID"):
        filtered = {key: value for key, value in srun(3, 2, 2, 5).items() if key != name}
        with pytest.raises(AssayError, match=f"started 4 tasks, but {name} does not say which") as caught:
            find_world(filtered)
        assert name in caught.value.hint
    uneven = srun(2, 2, 2, 5) | {"SLURM_LOCALID": "2", "SLURM_NODEID": "0"}
    for task in (
        uneven,
        srun(0, 2, 2, 5) | {"SLURM_STEP_TASKS_PER_NODE": "3,1"},
        srun(0, 3, 1, 5) | {"SLURM_STEP_NUM_NODES": "2"},
    ):
        with pytest.raises(AssayError, match="every node needs the same number of tasks"):
            find_world(task)
    assert interface_towards("127.0.0.1") == "lo" or os.name != "posix"


def test_only_packages_that_compute_are_compared() -> None:
    compared = Plan(OmegaConf.create({"trainer": {}})).compared()
    assert compared["package torch"] == importlib.metadata.version("torch")
    assert "package pytest" not in compared


def test_what_another_process_says_reaches_the_terminal_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    _print_failure(Failure("rank 1 of 2", "bad \x1b]0;title\a https://me:secret@host"))
    message = capsys.readouterr().err
    assert r"error: rank 1 of 2: bad \x1b]0;title\x07" in message
    assert "secret" not in message
