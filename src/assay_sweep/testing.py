"""Checks of launchers, for the tests of plugins; the built-in ones pass as well."""
# ruff: noqa: S101 - as in all tests

from __future__ import annotations

import tempfile
import time
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.compose.compose import choices, compose, job_config
from assay.config.serialize import to_raw_dict
from assay.record.run_record import RunRecord
from assay_sweep.job_spec import JobSpec, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.record.run_record import Outcome
    from assay_sweep.launcher.launcher import Launcher

_CALLBACK = """
import ctypes, math, os, signal, time
from pathlib import Path
from lightning.pytorch.callbacks import Callback


class Ending(Callback):
    def __init__(self, how):
        self.how = how

    def on_train_batch_start(self, trainer, module, batch, index):
        if index == 2 and not trainer.current_epoch:
            Path(trainer.default_root_dir, "begun").touch()
            getattr(self, self.how)(batch)

    def finish(self, batch): pass
    def stop(self, batch): pass
    def exception(self, batch): raise ValueError("as it was told")
    def connection(self, batch): raise ConnectionResetError("as it was told")
    def non_finite(self, batch): batch[0].fill_(math.nan)
    def exit(self, batch): os._exit(3)
    def segfault(self, batch): ctypes.string_at(0)
    def sigkill(self, batch): os.kill(os.getpid(), signal.SIGKILL)
    def memory(self, batch): self.held = [bytearray(1 << 26) for _ in range(64)]

    def hang(self, batch):
        while True:
            time.sleep(1)
"""
"""In the jobs' own project."""
_WORDS = """
    data=digits model=mlp model.hidden=[8] baseline=none device=cpu callbacks=[last_checkpoint,non_finite]
    trainer.limit_train_batches=6 trainer.limit_val_batches=1 trainer.limit_test_batches=1
    +callbacks.ending._target_=ending.Ending
"""
ENDINGS = {
    "finish": ("finished", "", ""),
    "exception": ("failed", "exception", "ValueError: as it was told"),
    "connection": ("failed", "machine", "ConnectionResetError: as it was told"),
    "non_finite": ("failed", "non_finite", "the loss became nan in batch 2"),
    "exit": ("failed", "exception", "its process ended with exit code 3 and gave no reason"),
    "segfault": ("failed", "killed", "its process was killed by SIGSEGV"),
    "sigkill": ("failed", "killed", "its process was killed by SIGKILL"),
    "memory": ("failed", "out_of_memory", ""),
    "stop": ("interrupted", "", ""),
    "hang": ("interrupted", "", "ended by SIGKILL"),
}
"""Ways for a job to end; status, cause and reason of its outcome."""
_PATIENCE = 120.0


def check_launcher(
    launcher: Launcher, folder: Path, endings: Iterable[str] = ENDINGS, **fields: Any
) -> None:
    """Have jobs end in several ways, each beside one that finishes, and compare their outcomes.

    Args:
        launcher: One that runs nothing.
        folder: In which projects of the jobs are made; visible to the jobs.
        endings: Some of `ENDINGS`.
        **fields: Of each `JobSpec`, such as `gpus=1`.

    Raises:
        AssertionError: The launcher breaks a promise of `assay_sweep.launcher.launcher.Launcher`.
    """
    for ending in endings:
        project = Path(tempfile.mkdtemp(dir=folder))
        (project / "conf").mkdir()
        (project / "conf" / "project.yaml").write_text("trusted_packages: [ending]", "utf-8")
        (project / "ending.py").write_text(_CALLBACK, "utf-8")
        both = (ending, "finish")
        job_specs = [_make_job_spec(project, *pair, fields) for pair in enumerate(both)]
        outcomes = _run(launcher, job_specs, ending)
        for number, how in enumerate(both):
            status, cause, reason = ENDINGS[how]
            got = outcomes[number]
            is_right = (got.status, got.cause) == (status, cause) and reason in got.reason
            assert is_right, f"job {number} of {both}: expected {ENDINGS[how]}, got {got}"
        recorded = RunRecord.load(Path(job_specs[1].run_dir)).metrics
        assert outcomes[1].metrics == recorded, f"metrics: expected {recorded}, got {outcomes[1]}"
        if ending == "stop":
            saved = Path(job_specs[0].run_dir, "checkpoints", "last.ckpt")
            assert saved.is_file(), f"a job that is told to stop: expected {saved}, got no file"


def _make_job_spec(project: Path, number: int, ending: str, fields: dict[str, Any]) -> JobSpec:
    run_dir = str(project / f"{ending}-{number}")
    words = [*_WORDS.split(), f"+callbacks.ending.how={ending}", f"hydra.run.dir={run_dir}"]
    if ending != "stop":
        words.append("trainer.max_epochs=1")
    with chdir(project):
        composed = compose(words)
    config = to_text(to_raw_dict(job_config(composed)))
    options = {"output": f"{run_dir}.txt", "cwd": str(project), **fields}
    if ending == "memory":
        options["memory_gb"] = 0.5
    return JobSpec(number, 1, run_dir, config, words, choices(composed.hydra), **options)


def _run(launcher: Launcher, job_specs: list[JobSpec], ending: str) -> dict[int, Outcome]:
    """Start each job once there is room, as a sweep does, and stop the first one."""
    begun = Path(job_specs[0].run_dir, "begun")
    waiting = list(job_specs)
    outcomes: dict[int, Outcome] = {}
    deadline = time.monotonic() + _PATIENCE
    while len(outcomes) < 2:
        assert time.monotonic() < deadline, f"{ending}: expected 2 outcomes, got {outcomes}"
        if waiting and launcher.has_room(waiting[0]):
            launcher.start(waiting.pop(0))
        outcomes |= launcher.wait(1.0)
        if ending in ("stop", "hang") and begun.is_file():
            begun.unlink()
            launcher.stop(0, now=False)
            if ending == "hang":
                outcomes |= launcher.wait(1.0)
                assert 0 not in outcomes, (
                    f"a job that hangs: expected no outcome, got {outcomes[0]}"
                )
                launcher.stop(0, now=True)
    return outcomes
