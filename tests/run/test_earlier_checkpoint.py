"""Checkpoints in the form of before there was a position."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.errors import AssayError
from assay.run.evaluate import evaluate
from assay.run.resume import resume

if TYPE_CHECKING:
    from tests.conftest import Train

JOB = ("data=iris", "model=linear", "callbacks=[checkpoint,last_checkpoint,ema]", "trainer.max_epochs=2")


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


def test_weights_are_read_and_no_run_goes_on(train: Train, tmp_path: Path) -> None:
    stopped = aged(train(*JOB, callbacks=[Interrupt("epoch", 1)]).run_dir, tmp_path)
    with chdir(tmp_path), unchanged_process():
        with pytest.raises(
            AssayError, match=r"last\.ckpt was saved by an earlier version of assay"
        ) as caught:
            resume(stopped)
        assert "assay eval, predict and export take it" in caught.value.hint
        assert 0 <= evaluate(stopped).metrics["test/accuracy"] <= 1
