"""A run that was really interrupted, then used by each verb."""

from __future__ import annotations

import io
import os
import shlex
import signal
from contextlib import chdir
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from tests.conftest import unchanged_process

import assay
from assay.files.checksum import seal_yaml
from assay.record.run_record import RunRecord
from assay.run.predictor import checkpoint_path, read_predictor
from assay.run.result import RunResult, predict_commands, print_run
from assay.run.saved_config import describe_ending
from assay.terminal import Console
from assay_serve.evaluate import evaluate
from assay_serve.export.export import export
from assay_serve.predict import predict

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


@pytest.fixture(autouse=True)
def beside_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs/x/run/checkpoints").mkdir(parents=True)
    (tmp_path / "outputs/x/run/checkpoints/best.ckpt").touch()
    (tmp_path / "outputs/x/run/config.yaml").write_text(seal_yaml("seed: 3\n"))
    RunRecord("run", "x", "finished", "", 3, "", "").save(tmp_path / "outputs/x/run")


def said(result: RunResult, width: int = 100) -> list[str]:
    screen = io.StringIO()
    console = Console(file=screen, width=width, highlight=False, soft_wrap=True)
    print_run(console, result)
    return screen.getvalue().splitlines()


def result(**change: Any) -> RunResult:
    given: dict[str, Any] = {
        "run_dir": Path("outputs/x/run"),
        "status": "finished",
        "metrics": {"test/loss": 0.04321, "test/accuracy": 0.98611, "val/loss": 0.5, "train/loss": 0.1},
        "best": {"monitor": "val/loss", "value": 0.25, "epoch": 7},
        "overrides": ("data=wine", "callbacks=[default,ema]", "seed=3"),
        "seconds": 12.345,
    }
    return RunResult(**{**given, **change})


def test_a_finished_run() -> None:
    lines = said(result())
    assert lines[1] == "test  accuracy 98.61 %   loss 0.04321"
    assert lines[2] == "best  epoch 7, val/loss 0.25"
    assert lines[3] == "run   outputs/x/run"
    assert lines[4:] == [
        "next  assay report outputs/x/run",
        "      assay predict outputs/x/run INPUT",
        "      assay train -m data=wine 'callbacks=[default,ema]' seed=1,2,3",
    ]


def test_predicting_is_offered_where_it_works() -> None:
    run_dir = Path("outputs/x/run")
    assert predict_commands(run_dir) == ["assay predict outputs/x/run INPUT"]
    (run_dir / "encoder.json").touch()
    assert predict_commands(run_dir) == ["assay predict outputs/x/run NEW_ROWS.csv"]
    (run_dir / "config.yaml").write_text(seal_yaml("spec: {task: language_modelling}\n"))
    assert predict_commands(run_dir) == ["assay predict outputs/x/run --prompt TEXT"]
    (run_dir / "checkpoints/best.ckpt").unlink()
    assert predict_commands(run_dir) == []


def test_what_is_said_to_type_next_is_one_command() -> None:
    command = said(result(overrides=("tags=[a b]", "name='x'", "seed=1", "hydra.run.dir=y")))[6]
    words = shlex.split(command)
    assert words == ["assay", "train", "-m", "tags=[a b]", "name='x'", "seed=1,2,3"]


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_run_that_did_not_end_well(status: str, tmp_path: Path) -> None:
    lines = said(
        result(status=status, reason="RuntimeError: shape [2, 3] [bold]", run_dir=tmp_path), width=20
    )
    assert lines == [
        f"{status}: RuntimeError: shape [2, 3] [bold]",
        f"run   {tmp_path}",
        f"log   {tmp_path / 'log.txt'}" + (" has the traceback" if status == "failed" else ""),
        *([] if status == "failed" else [f"next  assay resume {tmp_path}"]),
    ]
