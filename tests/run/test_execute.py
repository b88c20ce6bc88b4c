"""What a run directory promises does not depend on which callbacks and loggers were asked for."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unchanged_process

import assay
from assay.errors import AssayError
from assay.record import predictions_file
from assay.record.run_record import RunRecord
from assay.report.page import Note
from assay.report.run_page import run_page
from assay.run.evaluate import evaluate
from assay.run.result import print_run
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

    from assay.run.result import RunResult

JOB = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=2", "hydra.run.dir=run")


def trained(folder: Path, *overrides: str) -> RunResult:
    with chdir(folder), unchanged_process():
        return assay.train([*JOB, *overrides])


def next_lines(folder: Path, result: RunResult, capsys: pytest.CaptureFixture[str]) -> str:
    with chdir(folder):
        print_run(Console(highlight=False, soft_wrap=True), result)
    return capsys.readouterr().out


@pytest.mark.always("callbacks=ema")
@pytest.mark.parametrize("asked", ["callbacks=ema", "callbacks=[]", "logger=tensorboard"])
def test_the_parts_are_there(tmp_path: Path, asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = trained(tmp_path, asked)
    assert "epoch 2/2" in capsys.readouterr().out
    run_dir = tmp_path / "run"
    for name in ("metrics.csv", "checkpoints/best.ckpt", "checkpoints/last.ckpt", "log.txt"):
        assert (run_dir / name).is_file(), name
    assert "lr-AdamW" in (run_dir / "metrics.csv").read_text().splitlines()[0]
    assert "assay predict" in next_lines(tmp_path, result, capsys)
    assert not assay.load(run_dir).training
    with pytest.raises(AssayError, match=r"(?i)finite|nan|inf"):
        trained(
            tmp_path,
            asked,
            "optimizer=sgd",
            "optimizer.lr=100",
            "optimizer.weight_decay=10",
            "data.batch_size=8",
            "hydra.run.dir=nan",
        )


def test_a_model_that_predicts_one_class_for_all_is_told_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decays = ("optimizer=sgd", "optimizer.lr=1", "optimizer.weight_decay=1")  # all of it in each step
    result = trained(tmp_path, "model=mlp", *decays, "trainer.max_epochs=1")
    run_dir = tmp_path / "run"
    predictions = predictions_file.read(run_dir / predictions_file.FILE)
    (label,) = set(predictions.outputs.argmax(1).tolist())
    warning = f"the model predicts {predictions.class_names[label]!r} for each of the 30 test samples"
    assert list(result.warnings) == RunRecord.load(run_dir).warnings == [warning]
    assert f"warning: {warning}" in next_lines(tmp_path, result, capsys).splitlines()
    assert warning in (run_dir / "log.txt").read_text()
    blocks = run_page(run_dir).sections[0].blocks
    assert warning in [block.text for block in blocks if isinstance(block, Note)]
    assert warning in evaluate(run_dir).notes
