"""A run trains with what its check has built and read, and its directory holds what it promises."""

from __future__ import annotations

import functools
import json
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]  # ships no types
    EventAccumulator,
)
from tests.conftest import unchanged_process

import assay
from assay.check.checker import Checker
from assay.errors import AssayError, ConfigError
from assay.record.run_record import RunRecord
from assay.run.execute import choose_threads
from assay.run.result import print_run
from assay.run.train import run_job, train
from assay.task.task_of import task_of
from assay.terminal import Console
from assay_analysis import predictions_file
from assay_report.page import Note
from assay_report.run_page import run_page
from assay_serve import kept_predictions
from assay_serve.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Train, Trained

    from assay.check.report import Proof
    from assay.run.result import RunResult


JOB = ["data=wine", "model=linear", "device=cpu", "trainer.max_epochs=1", "callbacks=[last_checkpoint]"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with unchanged_process():
        yield


TINY = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=1", "hydra.run.dir=run")


@functools.cache
def proof_of(*words: str) -> Proof:
    checker = Checker()
    return checker.check(checker.job([*JOB, "model=mlp", *words]))


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("assay.run.execute.usable_cores", lambda: 4)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


MIDDLE, LARGE = "model.hidden=[1500,1500]", "model.hidden=[2000,2000]"


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(
    ("word", "idle", "threads"),
    [
        ("seed=0", 0, 1),
        ("device=ddp_cpu", 4, 2),
        (MIDDLE, 4, 2),
        (LARGE, 4, 4),
        (LARGE, 3, 4),
        (LARGE, 2, 2),
        (LARGE, 0, 1),
    ],
)
def test_threads_follow_the_work_of_a_step_and_the_idle_cores(
    word: str, idle: int, threads: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("assay.run.execute.idle_cores", lambda: idle)
    assert choose_threads(proof_of(word)) == threads
    assert ("most cores are busy" in capsys.readouterr().out) == (word == LARGE and idle <= 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert choose_threads(proof_of(word)) is None


@pytest.mark.usefixtures("four_threads")
def test_a_run_takes_as_many_threads_and_gives_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.run.execute.idle_cores", lambda: 4)
    result = train([*JOB, "model=mlp", MIDDLE, "trainer.limit_train_batches=1", "baseline=none"])
    assert torch.get_num_threads() == 4
    assert RunRecord.load(result.run_dir).machine["threads"] == 2


def test_a_run_trains_with_what_was_built_and_read_for_its_check() -> None:
    checker = Checker()
    job = checker.job([*JOB, "~data.spec", "hydra.run.dir=run"])
    proof = checker.check(job)
    result = run_job(job.to_config(), job.overrides, job.choices, proof, raise_errors=True)
    trainer: Any = result.trainer
    assert proof.trainer is not None
    assert trainer.datamodule is proof.datamodule
    assert trainer is proof.trainer[0]


class Counts(Callback):
    """How many batches it saw."""

    def __init__(self) -> None:
        self.seen = 0

    def on_train_batch_end(self, *_: object) -> None:
        self.seen += 1


def test_callback_objects_look_on(tmp_path: Path) -> None:
    counts, saved = Counts(), ModelCheckpoint(tmp_path / "mine", monitor="val/accuracy", mode="max")
    result = train(TINY, callbacks=[counts, saved])
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert counts.seen == OmegaConf.load(tmp_path / "run" / "config.yaml").spec.steps_per_epoch > 0
    assert list((tmp_path / "mine").glob("*.ckpt"))
    assert record["checkpoints"] == {"best": "best.ckpt", "last": "last.ckpt"}
    assert result.best["monitor"] == "val/loss"
    assert "no config names: Counts, ModelCheckpoint" in (tmp_path / "run" / "log.txt").read_text()
    assert "Counts" not in (tmp_path / "run" / "config.yaml").read_text()


def test_two_callbacks_of_one_state_are_refused(tmp_path: Path) -> None:
    same = ModelCheckpoint(tmp_path / "mine", monitor="val/loss")
    with pytest.raises(ConfigError, match="has the same settings as ModelCheckpoint"):
        train(TINY, callbacks=[same])
    assert not list(tmp_path.iterdir())


def test_callback_objects_do_not_reach_other_processes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 processes of its own"):
        train([*TINY, "trainer.devices=2", "trainer.strategy=ddp"], callbacks=[Counts()])
    assert not list(tmp_path.iterdir())


QUICK = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=2", "hydra.run.dir=run")


def trained(folder: Path, *overrides: str) -> RunResult:
    with chdir(folder), unchanged_process():
        return assay.train([*QUICK, *overrides])


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


WINE = ("data=wine", "model=mlp", "optimizer.lr=0.01", "trainer.max_epochs=2")


def all_scores(run: Trained) -> dict[str, float]:
    """What the run logged, and what its predictions tell."""
    predictions = predictions_file.read(run.run_dir / predictions_file.FILE)
    names = {
        f"test/{kept_predictions._NOT_IN_NAMES.sub('_', one.name).strip('_')}": one.value
        for one in task_of(predictions.task).scores(predictions)
    }
    return {**names, **run.result.metrics}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # MLflow has its own
def test_both(train: Train, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient  # it takes seconds, and each worker collects this file

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run = train(
        *(*WINE, "logger=[tensorboard,mlflow]", f"logger.mlflow.tracking_uri={uri}"),
        f"logger.mlflow.artifact_location={tmp_path}/artifacts",
        cwd=tmp_path,
    )
    scores = all_scores(run)
    sizes = {"scalars": 0, "tensors": 0}
    events: Any = EventAccumulator(str(run.run_dir / "tensorboard"), sizes)
    events.Reload()
    for name, value in scores.items():
        assert events.Scalars(name)[-1].value == pytest.approx(value, rel=1e-5), name

    client = MlflowClient(uri)
    found = client.get_run(run.record["loggers"]["MLFlowLogger"])
    assert {
        name: pytest.approx(value, rel=1e-5) for name, value in found.data.metrics.items() if name in scores
    } == scores
    assert found.data.params["optimizer/lr"] == "0.01"
