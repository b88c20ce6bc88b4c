"""A run keeps what its model said of the test subset."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn import metrics  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # as above
from tests.conftest import unchanged_process

from assay.data.core.batch_order import BatchOrder
from assay.run.resume import resume
from assay_analysis import predictions_file
from assay_lab.reproduce import find_changed_files
from assay_serve.kept_predictions import KeepPredictions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

    from assay.task.predictions import StoredPredictions


MLP = ("model=mlp", "optimizer.lr=0.01")


def kept(run: Trained) -> StoredPredictions:
    return predictions_file.read(run.run_dir / predictions_file.FILE)


def test_embeddings_and_scores_are_called_so(train: Train, tmp_path: Path) -> None:
    predictions = kept(train("data=digits", *MLP, "loss=triplet", "metrics=retrieval"))
    assert (predictions.kind, predictions.outputs.shape) == ("embeddings", (360, 10))
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "margin.yaml").write_text("# Margins.\n_target_: torch.nn.MultiMarginLoss\n")
    predictions = kept(
        train("data=wine", *MLP, "loss=margin", "metrics.train={}", "metrics.eval={}", config_dir=tmp_path)
    )
    assert (predictions.kind, predictions.outputs.shape) == ("scores", (36, 3))


def test_samples_need_no_data(digits_run: Trained, train: Train, tmp_path: Path) -> None:
    predictions, samples = (
        kept(digits_run),
        predictions_file.read_samples(digits_run.run_dir / predictions_file.SAMPLES),
    )
    samples = [one for one in samples if one.reason != "confused"]
    assert [one.reason for one in samples] == ["worst"] * 24 + ["random"] * 24
    assert len({one.key for one in samples[24:]}) == 24
    assert isinstance(predictions.targets, np.ndarray)
    right = predictions.outputs[np.arange(360), predictions.targets]
    assert {one.key for one in samples[:24]} == {predictions.keys[index] for index in right.argsort()[:24]}
    images = load_digits().images
    for one in samples[::7]:
        assert one.picture is not None
        pixels = np.asarray(Image.open(io.BytesIO(one.picture)))
        np.testing.assert_array_equal(pixels, (images[int(one.key)] / 16 * 255).round())

    frame = pd.DataFrame({"kind": list("ab") * 40, "size": np.arange(80.0), "on": [True, False] * 40})
    frame.loc[3, "size"] = np.nan
    frame["price"] = frame["size"].fillna(3) * 2 + (frame["kind"] == "a")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    run = train(
        *("data=table", f"data.source.path='{tmp_path}/rows.csv'", "data.source.target=price", *MLP),
        *("data.source.missing=impute", "data.source.keep=[size]", "predictions.num_samples=99"),
        *("data.source.task=regression", "task=regression", "data.split.test=0.5"),
    )
    samples = predictions_file.read_samples(run.run_dir / predictions_file.SAMPLES)
    assert len(samples) == 80
    for one in samples:
        assert one.row == json.loads(frame.drop(columns="price").loc[int(one.key)].to_json())
        assert one.picture is None


def test_a_size_limit_keeps_a_random_choice_and_says_so(train: Train) -> None:
    run = train(
        *("data=synthetic", "data.source.num_samples=60000", "data.source.input_shape=[4]", "model=linear"),
        *(
            "data.split.test=0.8",
            "data.split.val=0.05",
            "data.source.num_classes=10",
            "predictions.max_megabytes=1",
        ),
        *("trainer.limit_train_batches=1", "trainer.limit_val_batches=1", "data.eval_batch_size=4096"),
    )
    predictions, log = kept(run), (run.run_dir / "log.txt").read_text()
    assert len(predictions.keys) == 1_000_000 // 48
    assert predictions.num_evaluated == 48_000
    assert "predictions of 20,833 of 48,000 samples are kept, drawn at random" in log
    rows = np.array([int(key) for key in predictions.keys])
    assert (np.diff(rows) > 0).all()
    assert abs(rows.mean() - run.datamodule.splits.rows["test"].mean()) < 500  # not the first ones
    np.testing.assert_array_equal(predictions.targets, run.datamodule.splits.data["test"].targets[rows])
    accuracy = metrics.accuracy_score(predictions.targets, predictions.outputs.argmax(1))
    assert run.result.metrics["test/accuracy"] == pytest.approx(accuracy, abs=0.02)
    assert (run.run_dir / predictions_file.FILE).stat().st_size < 1_000_000


def test_one_prediction_is_kept_where_none_fits(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_serve.kept_predictions.KeepPredictions", lambda _: KeepPredictions(1))
    assert len(kept(train("data=iris", "model=linear", "trainer.max_epochs=1")).keys) == 1


def test_what_cannot_be_kept_ends_no_run(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, predictions: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(predictions_file, "write", full)
    run = train("data=wine", *MLP)
    assert run.result.status == "finished"
    assert "could not save the predictions: " in (run.run_dir / "log.txt").read_text()
    assert not list(run.run_dir.glob("*.parquet"))


def test_only_the_end_of_a_run_has_them(train: Train) -> None:
    run = train("data=wine", *MLP, "callbacks=[last_checkpoint]", "trainer.max_epochs=2")
    first = (run.run_dir / predictions_file.FILE).read_bytes()
    assert {predictions_file.FILE, predictions_file.SAMPLES} <= run.record["files"].keys()
    with unchanged_process(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.module.Module.on_train_epoch_end", _interrupt)
        assert resume(run.run_dir, ["trainer.max_epochs=4"]).status == "interrupted"
    assert not list(run.run_dir.glob("*.parquet"))
    with unchanged_process():
        assert resume(run.run_dir).status == "finished"
    assert (run.run_dir / predictions_file.FILE).read_bytes() != first
    assert not find_changed_files(run.run_dir, run.record["files"])


def _interrupt(self: Any) -> None:
    raise KeyboardInterrupt


NUM, CLASSES = 45, 3
OUTPUTS = torch.rand(NUM, CLASSES, generator=torch.Generator().manual_seed(0)).softmax(1)
TARGETS = torch.arange(NUM) % CLASSES
NAMES = [f"sample{index}" for index in range(NUM)]


MODULE: Any = SimpleNamespace(prediction_kind="probabilities")


def evaluated_on(task: str, loader: Any) -> Any:
    """What is asked of a trainer."""
    data = SimpleNamespace(spec=SimpleNamespace(task=task))
    return SimpleNamespace(test_dataloaders=loader, datamodule=data, world_size=1, is_global_zero=True)


def gathered(rank: int, world_size: int, max_bytes: int = 10**6, limit: int = 1000) -> KeepPredictions:
    """What one process has gathered when its test is over."""
    order = BatchOrder(NUM, batch_size=2, rank=rank, world_size=world_size, stand_ins=True)
    trainer = evaluated_on("multiclass", SimpleNamespace(order=order))
    keep = KeepPredictions(max_bytes)
    keep.on_test_start(trainer, MODULE)
    for index, rows in enumerate(order.batches(0)):
        if index < limit:
            outputs = {"predictions": OUTPUTS[rows], "targets": TARGETS[rows]}
            keep.on_test_batch_end(trainer, MODULE, outputs, None, index)
    keep.on_test_epoch_end(trainer, MODULE)
    return keep


@pytest.mark.parametrize(("max_bytes", "size"), [(10**6, 3), (300, 3), (10**6, NUM + 2)])
def test_several_processes_come_to_the_same_as_one(
    max_bytes: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = gathered(0, 1, max_bytes)
    every = [gathered(rank, size, max_bytes) for rank in range(size)]
    sent = [(one.problem, one.num_seen, one._kept) for one in every]

    def gather(into: list[Any], own: Any) -> None:
        assert own == sent[0]
        into[:] = sent

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    trainer: Any = SimpleNamespace(world_size=size, is_global_zero=True)
    every[0].on_test_epoch_end(trainer, trainer)
    one, other = (keep.predictions("abc", NAMES, "test") for keep in (alone, every[0]))
    assert one.keys == other.keys
    np.testing.assert_array_equal(one.outputs, other.outputs)
    np.testing.assert_array_equal(one.targets, other.targets)
    positions = alone.positions()
    assert one.keys == tuple(NAMES[position] for position in positions)
    np.testing.assert_array_equal(one.outputs, OUTPUTS[positions])
    assert one.num_evaluated == other.num_evaluated == (0 if max_bytes == 10**6 else NUM)
    assert len(one.keys) == (NUM if max_bytes == 10**6 else 300 // 20)
