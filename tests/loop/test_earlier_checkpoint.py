"""Checkpoints in the form of before there was a position."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt, outcome

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.errors import AssayError
from assay.run.evaluate import evaluate
from assay.run.resume import resume

if TYPE_CHECKING:
    from tests.conftest import Train

JOB = (
    *("data=iris", "model=linear", "callbacks=[checkpoint,last_checkpoint,ema]", "data.batch_size=32"),
    *("trainer.max_epochs=3", "callbacks.ema.decay=0.9", "scheduler=plateau", "scheduler.patience=0"),
    *("scheduler.threshold=0.5", "callbacks.last_checkpoint.every_n_train_steps=1"),
)


def aged(run_dir: Path, folder: Path) -> Path:
    """A copy of a run whose checkpoints are as they were before: all in a note beside the loops."""
    copy = Path(shutil.copytree(run_dir, folder / "run"))
    for path in (copy / "checkpoints").glob("*.ckpt"):
        checkpoint: dict[str, Any] = CheckpointFile().load_checkpoint(path)
        loop = checkpoint["loops"]["fit_loop"]
        state, progress = loop["state_dict"], loop["epoch_progress"]
        checkpoint["resume_point"] = {
            **state.pop("carried"),
            **{name: state.pop(name) for name in ("dropped", "log", "epoch_lost")},
            "phase": state.pop("position")["phase"],
        }
        for counters in (progress["current"], progress["total"]):
            counters["processed"] = counters["ready"]
        CheckpointFile().save_checkpoint(checkpoint, path)
    return copy


@pytest.fixture(scope="module")
def whole(train: Train) -> Path:
    return train(*JOB).run_dir


def test_from_the_end_of_an_epoch_a_run_goes_on(train: Train, whole: Path, tmp_path: Path) -> None:
    stopped = aged(train(*JOB, callbacks=[Interrupt("epoch", 2)]).run_dir, tmp_path)
    with chdir(tmp_path), unchanged_process():
        assert resume(stopped).status == "finished"
    assert outcome(stopped) == outcome(whole)


def test_a_finished_run_trains_longer(train: Train, whole: Path, tmp_path: Path) -> None:
    longer = aged(whole, tmp_path)
    with chdir(tmp_path), unchanged_process():
        assert resume(longer, ["trainer.max_epochs=4"]).status == "finished"
    assert outcome(longer) == outcome(train(*JOB, "trainer.max_epochs=4").run_dir)


def test_from_the_middle_of_an_epoch_none_does(train: Train, whole: Path, tmp_path: Path) -> None:
    stopped = aged(train(*JOB, callbacks=[Interrupt("batch", 5)]).run_dir, tmp_path)
    with chdir(tmp_path), unchanged_process():
        with pytest.raises(AssayError, match=r"last\.ckpt was saved in the middle of an epoch by an earlier"):
            resume(stopped)
        assert 0 <= evaluate(stopped).metrics["test/accuracy"] <= 1
        for path in (stopped / "checkpoints").glob("last.ckpt*"):  # as the message says
            path.unlink()
        assert resume(stopped).status == "finished"
    assert outcome(stopped) == outcome(whole)
