"""Several processes of another launcher are refused, and a place of one process in its allocation is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import assay
from assay.check.checker import Checker
from assay.errors import AssayError
from assay.run.evaluate import evaluate
from assay.run.reproduce import reproduce
from assay.run.resume import resume
from assay.sweep import session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Train, Trained

JOB = ("data=wine", "model=linear", "device=cpu", "callbacks=[]", "trainer.max_epochs=1")
SLURM = {
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES"), "1"),
    **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), "0"),
    "SLURM_JOB_ID": "12345",
    "SLURM_JOB_NAME": "train",
}
"""What `sbatch --ntasks-per-node=1` and `srun` tell a process."""
VERBS: dict[str, Callable[[Path, Path], object]] = {
    "train": lambda _, new: assay.train([*JOB, f"hydra.run.dir={new}"]),
    "sweep": lambda _, new: session.start([*JOB, f"hydra.sweep.dir={new}", "seed=1,2"], None),
    "check": lambda _, new: Checker(None).job([*JOB, f"hydra.run.dir={new}"]),
    "resume": lambda run, _: resume(run, ["trainer.max_epochs=2"]),
    "resume a finished run": lambda run, _: resume(run),
    "eval": lambda run, _: evaluate(run),
    "reproduce": lambda run, _: reproduce(run),
}


@pytest.fixture(scope="module")
def finished(train: Train) -> Trained:
    return train("data=wine", "model=linear")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("word", ["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"])
def test_one_of_several_processes(
    finished: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, word: str
) -> None:
    monkeypatch.setenv(word, "2")
    before = {path: path.stat().st_mtime_ns for path in finished.run_dir.rglob("*") if path.name != ".lock"}
    with pytest.raises(AssayError, match=f"{word}=2: this is one of 2 processes of another launcher"):
        VERBS[verb](finished.run_dir, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_an_allocation_of_one_task(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    job = ("data=wine", "model=linear", "trainer.max_epochs=2")
    run = train(*job, "callbacks=[checkpoint]")
    assert run.record["status"] == "finished"
    assert evaluate(run.run_dir).metrics["test/loss"] == pytest.approx(run.record["metrics"]["test/loss"])
    checker = Checker(None)
    assert checker.check(checker.job([*JOB, "device=ddp_cpu", "trainer.devices=2"])).report.devices == 2
