"""What is read of a run: samples of the run's own test subset, or made-up ones where its data is gone."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import assay
from assay.run.export.agreement import original_outputs, read_samples
from assay.run.export.description import describe
from assay.run.export.export import export
from assay.run.export.exportable import Original

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained


def test_the_run_s_own_test_samples_give_the_run_s_own_predictions(digits_run: Trained) -> None:
    original = Original(digits_run.run_dir, "best")
    samples = read_samples(original)
    assert (samples.subset, sum(map(len, samples.raw)), samples.note) == ("test", 360, "")
    assert len(samples.raw[0]) == 1  # a batch of one is tried, too
    kept = pd.read_parquet(digits_run.run_dir / "predictions.parquet")
    wanted = np.array(kept["output"].tolist(), dtype=np.float32)
    np.testing.assert_allclose(original_outputs(original, samples), wanted, atol=1e-6)
    assert samples.targets is not None
    assert samples.targets.tolist() == kept["target"].tolist()


@pytest.fixture(scope="module")
def table_run(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"size": draw.normal(90, 20, 200), "town": draw.choice(["a", "b"], 200)})
    frame["price"] = 1000 * frame["size"] + 5000 * (frame["town"] == "a")
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    frame.to_csv(path, index=False)
    return train(
        *("data=table", f"data.source.path='{path}'", "data.source.target=price", "loss=mse"),
        *("metrics=regression", "callbacks=[default]", "trainer.max_epochs=2", "predictions.max_megabytes=0"),
    )


def test_data_that_is_gone_or_another_one(table_run: Trained, tmp_path: Path) -> None:
    path = table_run.config.data.source.path
    kept = shutil.copy(path, tmp_path / "kept.csv")
    try:
        pd.read_csv(path).head(150).to_csv(path, index=False)
        exported = export(table_run.run_dir, "onnx", out=tmp_path / "changed")
        assert exported.notes == ("the data is not what the run was trained on: its SHA-256 differs",)
        assert exported.subset == "test"
        shutil.move(path, tmp_path / "away.csv")
        exported = export(table_run.run_dir, "onnx", out=tmp_path / "gone")
        assert exported.subset == ""
        assert exported.notes[0].startswith("the run's data cannot be read: ")
        assert "made-up samples" in exported.card.read_text(encoding="utf-8")
    finally:
        shutil.copy(kept, path)


def test_what_a_file_says_of_its_run(digits_run: Trained) -> None:
    original = Original(digits_run.run_dir, "best")
    about = describe(original, read_samples(original), file_format="onnx", inside=True)
    assert json.loads(json.dumps(about)) == about
    assert about["inside"] == ["normalisation", "probabilities"]
    assert about["run"]["best"]["epoch"] == digits_run.record["best"]["epoch"]
    assert about["preprocessing"]["mean"] == list(digits_run.datamodule.spec.mean)


def test_half_precision_is_widened(train: Train, tmp_path: Path) -> None:
    run = train(
        *("data=iris", "precision=bf16_true", "callbacks=[default]", "trainer.max_epochs=1"),
        "predictions.max_megabytes=0",
    )
    original = Original(run.run_dir, "best")
    assert {one.dtype for one in original.stored.parameters()} == {torch.bfloat16}
    exported = export(run.run_dir, "onnx", out=tmp_path / "onnx")
    assert exported.notes == ("the weights are bfloat16 in the checkpoint and float32 in the file",)
    export(run.run_dir, "safetensors", out=tmp_path / "weights")
    weights = load_file(tmp_path / "weights" / "model.safetensors")
    bare = assay.load(run.run_dir, map_location="cpu", raw_input=False).state_dict()
    assert all(
        torch.equal(weights[name], bare[name]) and weights[name].dtype == torch.bfloat16 for name in weights
    )
