"""The main function of a job's process, for every launcher."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from omegaconf import DictConfig, OmegaConf

from assay.config.tree import places
from assay.errors import AssayError
from assay.files.symlinks import open_append
from assay.record.run_record import (
    TRIAL,
    Outcome,
    RunRecord,
    cause_of_exception,
    reason_of,
    stop_reason,
)
from assay_cluster.world import take_world
from assay_sweep.job_spec import TIMED_OUT, timeout_outcome

if TYPE_CHECKING:
    from assay.run.result import RunResult
    from assay_cluster.gang import Gang
    from assay_sweep.job_spec import JobSpec

_GIGABYTE = 1 << 30
_GRACE = 10.0
"""Seconds that a run has to save."""
_INTERRUPTED = Outcome("interrupted", reason=stop_reason("SIGINT"), signal="SIGINT")


def run_job_spec(job_spec: JobSpec) -> Outcome:
    """Run a job in this process, which cannot be used for anything else afterwards, and return its outcome.

    It never raises; what the job prints goes to `job_spec.output`.
    """
    try:
        _prepare(job_spec)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:
        return _report_error(error)
    late = threading.Event()
    if job_spec.timeout_min is not None:
        threading.Thread(
            target=_end_after, args=(job_spec.timeout_min, late), daemon=True
        ).start()
    outcome = run_here(job_spec)
    if late.is_set() and outcome.status not in ("finished", "pruned"):
        return timeout_outcome(job_spec, outcome.seconds)
    return outcome


def _end_after(minutes: float, late: threading.Event) -> None:
    """Have the run save and end once its time is over; end this process where it does not."""
    time.sleep(60 * minutes)
    late.set()
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
    os._exit(TIMED_OUT)


def run_here(job_spec: JobSpec) -> Outcome:
    """Run a job in this process, which goes on afterwards, and return its outcome; its output is shown."""
    start = time.perf_counter()
    run_dir = Path(job_spec.run_dir)
    if job_spec.trial is not None:
        os.environ[TRIAL] = json.dumps(job_spec.trial)
    try:
        result = _run(job_spec)
        if not isinstance(result, int):
            return RunRecord.load(run_dir).outcome
        # another node's process tells how the job ended
        return Outcome("failed", "killed") if result else Outcome("finished")
    except KeyboardInterrupt:
        return replace(_INTERRUPTED, seconds=time.perf_counter() - start)
    except BaseException as error:
        outcome = replace(_report_error(error), seconds=time.perf_counter() - start)
        with suppress(AssayError):
            record = RunRecord.load(run_dir)
            if record.status == "failed":
                outcome = replace(
                    outcome, metrics=record.metrics, best=record.best, seconds=record.seconds
                )
        return outcome
    finally:
        os.environ.pop(TRIAL, None)


def redirect_output(job_spec: JobSpec) -> None:
    """Append all output of this process to the job's file, after a line that names the job."""
    path = Path(job_spec.cwd, job_spec.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = open_append(path, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    typed = " ".join(job_spec.overrides)
    line = f"--- job {job_spec.number}, attempt {job_spec.attempt}, {when}, process {os.getpid()}: {typed}\n"
    os.write(1, line.encode("utf-8", "backslashreplace"))


def limit_memory(gigabytes: float) -> None:
    """Limit the memory that this process may allocate beside what it holds already.

    Counted from here, because a forked process shares what it starts with.
    """
    import resource

    # where the system tells it: on Linux
    held = getattr(psutil.Process().memory_info(), "data", 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = held + int(gigabytes * _GIGABYTE)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


def _prepare(job_spec: JobSpec) -> None:
    if job_spec.output:
        redirect_output(job_spec)
    os.chdir(job_spec.cwd)
    for name, value in job_spec.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    with suppress(OSError, ValueError):  # where stderr has no descriptor
        faulthandler.enable()
    _use_threads(job_spec.threads * job_spec.processes)
    if job_spec.memory_gb is not None:
        limit_memory(job_spec.memory_gb)


def _run(job_spec: JobSpec) -> RunResult | int:
    """Run a job, or go on with it; as one of several nodes' processes together with the others."""
    from assay.targets.allowed_targets import read_trusted_packages
    from assay_cluster.gang import Plan, run_together
    from assay_cluster.processes import follow

    config = from_text(job_spec.config)
    world = take_world()
    lead = partial(_resume if job_spec.resume else _begin, job_spec, config)
    if world is None:
        return lead()
    return run_together(world, lambda: Plan(config, read_trusted_packages(config)), lead, follow)


def _begin(job_spec: JobSpec, config: DictConfig, gang: Gang | None = None) -> RunResult:
    from assay.check.report import Proof, Report
    from assay.run.train import run_job
    from assay_sweep.reuse import copy_finished

    if config.get("baseline") == "auto":  # the same for all jobs, and longer than many of them
        config.baseline = "none"
    report = Report(
        job_spec.overrides,
        str(config.get("name")),
        spec=job_spec.spec,
        data_read=not job_spec.spec,
    )
    options: dict[str, Any] = {"raise_errors": True, "gang": gang}
    if job_spec.finished:
        options["reuse"] = partial(copy_finished, candidates=job_spec.finished)
    return run_job(config, job_spec.overrides, job_spec.choices, Proof(report), **options)


def _resume(job_spec: JobSpec, config: DictConfig, gang: Gang | None = None) -> RunResult:
    from assay.run.resume import resume
    from assay.targets.allowed_targets import read_trusted_packages

    return resume(
        job_spec.run_dir,
        trusted_packages=read_trusted_packages(config),
        said=collect_texts(config),
        gang=gang,
    )


def _use_threads(number: int) -> None:
    """Threads of one operation; of all ranks together where there are several."""
    import torch

    torch.set_num_threads(number)
    if number > 1:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no stubs

        threadpool_limits(number)


def _report_error(error: BaseException) -> Outcome:
    """Print an error, and return its outcome."""
    with suppress(OSError):  # a full disk: the outcome says so
        if isinstance(error, AssayError):
            sys.stderr.write(f"error: {error}\n")
        else:
            traceback.print_exception(error)
    return Outcome("failed", cause_of_exception(error), reason_of(error))


def from_text(text: str) -> DictConfig:
    """Read `to_text` back."""
    read = json.loads if text.startswith("{") else yaml.safe_load
    plain: dict[str, Any] = read(text)
    return OmegaConf.create(plain, flags={"struct": True})


def collect_texts(config: DictConfig) -> frozenset[tuple[str, str]]:
    """Key and text of every value in a job that was checked already, for `Trust.said`."""
    return frozenset(
        (entry.key, entry.value) for entry in places(config) if isinstance(entry.value, str)
    )
