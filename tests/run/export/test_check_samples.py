"""Samples of the run's own test subset, or made-up ones where its data is gone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from assay.data.data_module import DataModule
from assay.run.export.agreement import original_outputs, read_samples
from assay.run.export.export import export
from assay.run.export.exportable import read_original

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained


def test_the_run_s_own_test_samples_give_the_run_s_own_predictions(digits_run: Trained) -> None:
    original = read_original(digits_run.run_dir, "best")
    samples = read_samples(original)
    assert (samples.subset, len(samples), samples.note) == ("test", 360, "")
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


def test_an_error_of_ours_is_no_data_that_cannot_be_read(
    digits_run: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(DataModule, "digest")
    with pytest.raises(AttributeError, match="digest"):
        read_samples(read_original(digits_run.run_dir, "best"))


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
