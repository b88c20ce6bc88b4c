"""A run that was really interrupted, then used by each verb."""

from __future__ import annotations

import os
import signal
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
import torch
from tests.conftest import unchanged_process

import assay
from assay.record.run_record import RunRecord
from assay.run.predictor import checkpoint_path, read_predictor
from assay.run.saved_config import describe_ending
from assay_serve.evaluate import evaluate
from assay_serve.export.export import export
from assay_serve.predict import predict

if TYPE_CHECKING:
    from pathlib import Path

_OF = "the run was interrupted: these are the weights of its"
BEST = f"{_OF} best checkpoint so far (epoch 2)"
LAST = f"{_OF} last checkpoint"


class _Terminate(L.Callback):
    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == 17:  # the third step of the third epoch
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    typed = ["data=iris", "model=linear", "device=cpu", "trainer.max_epochs=10", "data.batch_size=16"]
    with unchanged_process(), chdir(folder):
        assay.train([*typed, "hydra.run.dir=run"], callbacks=[_Terminate()])
    return folder / "run"


def test_each_verb_says_which_weights_it_uses(
    interrupted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    for checkpoint, note in (("best", BEST), ("last", LAST)):
        saved = torch.load(checkpoint_path(interrupted, checkpoint), weights_only=True)
        assert saved["epoch"] + 1 == {"best": 2, "last": 3}[checkpoint]
        predictor = read_predictor(interrupted, checkpoint, "cpu")
        assert predict(predictor, interrupted, [tmp_path / "x.npy"]).notes == [note]
        assert evaluate(interrupted, checkpoint=checkpoint).notes[0] == note  # type: ignore[arg-type]  # one of the two
    exported = export(interrupted, "safetensors", out=tmp_path / "exported")
    assert BEST in exported.notes
    assert BEST in exported.card.read_text(encoding="utf-8")
    assay.load(interrupted, checkpoint="last", map_location="cpu")
    assert LAST in caplog.text


@pytest.mark.parametrize(
    ("status", "said"),
    [("failed", "the run failed:"), ("pruned", "the run was pruned:"), ("running", "was killed:")],
)
def test_other_ends(interrupted: Path, status: Any, said: str) -> None:
    before = (interrupted / "record.json").read_bytes()
    record = RunRecord.load(interrupted)
    record.status = status
    try:
        record.save(interrupted)
        (note,) = describe_ending(interrupted, interrupted / "checkpoints" / "best.ckpt")
        assert said in note
        record.status = "finished"
        record.save(interrupted)
        assert describe_ending(interrupted, interrupted / "checkpoints" / "best.ckpt") == []
    finally:
        (interrupted / "record.json").write_bytes(before)
