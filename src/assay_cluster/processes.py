"""A job in several processes: its ranks, on this machine or as one of many that a launcher has started."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import open_dict

from assay.assemble.node import build
from assay.assemble.trainer import silence_lightning
from assay.assemble.trainer_options import RUN_ID, num_local_processes
from assay.errors import AssayError, Pruned
from assay.loop.stop_on_signal import StoppedBySignal
from assay.record.run_directory import LOG, log_file
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord
from assay.run.execute import execute, fit_and_test, note_exit, stop_on_signals
from assay.run.resume import read_job, resume
from assay.run.saved_config import read_config
from assay.run.train import assemble_job, train_job, write_run
from assay.targets.allowed_targets import read_trusted_packages
from assay_cluster.children import run_children, signal_name
from assay_cluster.gang import Failure, Gang, Plan, run_together
from assay_cluster.world import GANG, QUIET, World, find_world, interface_towards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from omegaconf import DictConfig

    from assay.check.checker import Checker
    from assay.compose.compose import Job
    from assay.run.result import RunResult

log = logging.getLogger("assay")


def run_rank(run_dir: Path, trusted_packages: Sequence[str]) -> int:
    """One rank of a distributed job, in a process of its own; the run directory is there already."""
    config = read_config(run_dir, trusted_packages)
    world = find_world() or World()
    with Gang(world, timeout_s=config.trainer.get("timeout_s")) as gang:
        return _train_rank(config, gang)


def _train_rank(config: DictConfig, gang: Gang) -> int:
    run_dir = Path(config.run_dir)
    first = gang.world.rank == 0
    record = RunRecord.load(run_dir)
    if first:
        gang.on_end = partial(_note_failure, run_dir, gang.on_end)
    try:
        with lock_run(run_dir, shared=True), silence_lightning():
            assembly = assemble_job(config, prepare=False)
            if first:
                write_run(run_dir, assembly.plain, record, {}, hint="")
                execute(assembly, record, run_dir, raise_errors=False, find_cause=gang.report)
            else:
                with stop_on_signals(assembly):
                    fit_and_test(assembly, record, run_dir)
    except (StoppedBySignal, Pruned):
        return 0  # as all others do: one that fails would have the launcher end the rest
    except Exception as error:
        cause = gang.report(error)
        if first:
            record.failed_by(cause)
            record.save(run_dir)
        return getattr(cause, "exit_code", 1)
    if not first or record.status in ("finished", "interrupted", "pruned"):
        return 0
    return 1


def _note_failure(run_dir: Path, also: Callable[[Failure], None], failure: Failure) -> None:
    """Say in the record that another process has failed, when this one hangs and is about to be ended."""
    record = RunRecord.load(run_dir)
    if record.status == "running":
        record.failed_by(failure.error())
        record.save(run_dir)
    also(failure)


def train_in_gang(config: DictConfig, gang: Gang | None, warnings: Sequence[str]) -> None:
    """Run a job on the processes of a gang, without one on several of this machine.

    The record says how it ended where no rank could.
    """
    if gang is None:
        with Gang(World(), "node") as gang_here:
            train_in_gang(config, gang_here, warnings)
        return
    run_dir = Path(config.run_dir)
    with log_file(run_dir / LOG):
        for warning in warnings:
            log.warning("%s", warning)
    error: BaseException | None
    try:
        number = 1
        if gang.kind == "node":
            number = num_local_processes(config)
        gang.call(run_dir, number=number, threads=torch.get_num_threads())
        end = _run_ranks(config, gang, number, torch.get_num_threads())
        error = gang.error()
    except (AssayError, KeyboardInterrupt) as stopped:
        end = ""
        error = stopped
    record = RunRecord.load(run_dir)
    if record.status == "running":
        if end.startswith("SIG"):
            record.interrupted_by(end)
        elif isinstance(error, KeyboardInterrupt):
            note_exit(error, record)
        elif error is not None:
            record.failed_by(error)
        record.save(run_dir)


def follow(gang: Gang, plan: Plan) -> int:
    """Do this process's share of a job whose run directory rank 0 writes; return the job's exit code."""

    def prepare(run_dir: Path) -> None:
        if gang.world.local_rank == 0:
            build(read_config(run_dir, plan.trusted), "data").prepare_data()

    call = gang.follow(prepare)
    if call is None:
        return gang.wait_for_end()
    config = read_config(Path(call["run_dir"]), plan.trusted)
    with open_dict(config):
        config.run_dir = call["run_dir"]
    end = _run_ranks(config, gang, int(call["number"]), int(call["threads"]))
    if end == "failed":
        return 1
    return gang.wait_for_end()


def _run_ranks(config: DictConfig, gang: Gang, number: int, threads: int) -> str:
    """Run this process's ranks, itself where it is to be one; return how they ended."""
    run_dir = Path(config.run_dir)
    trusted = read_trusted_packages(config)
    # Between the ranks of one machine it has no say: they would listen to a network for nothing.
    interface = ""
    if gang.world.nodes > 1:
        interface = str(config.trainer.get("interface") or "")
    torch.set_num_threads(threads)
    if gang.kind == "node":
        return launch(run_dir, gang, number, trusted, interface)
    if not {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"} & {*os.environ}:
        torch.set_num_threads(max(1, threads // gang.world.local_size))
    world = replace(gang.world, serves=False)
    os.environ.update(_rank_environment(world, torch.get_num_threads(), interface))
    if _train_rank(config, gang):
        return "failed"
    return "finished"


def launch(
    run_dir: Path,
    gang: Gang,
    number: int,
    trusted_packages: Sequence[str] = (),
    interface: str = "",
) -> str:
    """Run a job on several processes of this node and wait for them; when one dies, the others are ended."""
    world = gang.world
    # -P: else a file torch.py in the current directory would be taken for torch.
    command = [sys.executable, "-P", "-m", "assay_cluster.rank", str(run_dir), *trusted_packages]
    # The cores are shared evenly.
    threads = max(1, torch.get_num_threads() // number)
    ranks = [
        replace(
            world,
            rank=world.rank * number + local_rank,
            size=world.size * number,
            local_rank=local_rank,
            local_size=number,
            serves=False,
        )
        for local_rank in range(number)
    ]
    environments = [_rank_environment(rank, threads, interface) for rank in ranks]

    def report_exit(index: int, code: int) -> None:
        if code < 0:
            ended = f"was ended by {signal_name(-code)}"
        else:
            ended = f"ended with exit code {code}"
        who = f"rank {ranks[index].rank} of {ranks[index].size} on {gang.host}"
        gang.fail(Failure(who, f"its process {ended}"))

    codes, stopped = run_children(
        ((command, {**os.environ, **environment}) for environment in environments), report_exit
    )
    return stopped or ("failed" if any(codes) else "finished")


def _rank_environment(world: World, threads: int, interface: str) -> Mapping[str, str]:
    """What tells a process that it is a rank, in the words of torch's own launcher."""
    environment = {
        GANG: world.to_json(),
        "OMP_NUM_THREADS": str(threads),
        QUIET[0]: os.environ.get(*QUIET),
        "RANK": str(world.rank),
        "LOCAL_RANK": str(world.local_rank),
        "GROUP_RANK": str(world.node),
        "WORLD_SIZE": str(world.size),
        "LOCAL_WORLD_SIZE": str(world.local_size),
        "MASTER_ADDR": world.address,
        "MASTER_PORT": str(world.port),
    }
    # By these Lightning and torch know that the ranks are started already, and the store is there.
    environment |= {"TORCHELASTIC_RUN_ID": RUN_ID, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = os.environ.get(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"
    )
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        environment[name] = interface or os.environ.get(name) or interface_towards(world.address)
    return {name: value for name, value in environment.items() if value}


def train_together(
    world: World, checker: Checker, overrides: Sequence[str], *, raise_errors: bool
) -> RunResult | int:
    """Train as one of several processes: all compose the job, the first one checks and records it."""
    job: Job

    def prepare() -> Plan:
        nonlocal job
        job = checker.job(overrides)
        config = job.view()
        return Plan(config, read_trusted_packages(config))

    def lead(gang: Gang) -> RunResult:
        return train_job(job, checker.check(job), raise_errors=raise_errors, gang=gang)

    return run_together(world, prepare, lead, follow)


def resume_together(
    world: World, run: str | Path, overrides: Sequence[str] = (), **options: Any
) -> RunResult | int:
    """Go on with a run as one of several processes, of which the first one leads."""
    trusted = options.get("trusted_packages", ())
    said = options.get("said", frozenset())

    def prepare() -> Plan:
        record, job = read_job(Path(run), overrides, trusted, said)
        return Plan(job.config, read_trusted_packages(job.config), {"run": record.run_id})

    return run_together(
        world, prepare, lambda gang: resume(run, overrides, gang=gang, **options), follow
    )
