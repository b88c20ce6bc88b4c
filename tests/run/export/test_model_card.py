"""What is on the card, and that no name of somebody's is more than its letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import recall_score  # type: ignore[import-untyped]  # ships no types

from assay.errors import AssayError
from assay.run.export.export import export
from assay.run.export.model_card import MARK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_what_is_on_it(digits_run: Trained, tmp_path: Path) -> None:
    exported = export(digits_run.run_dir, "safetensors", out=tmp_path)
    card, record = exported.card.read_text(encoding="utf-8"), digits_run.record
    assert card.startswith(MARK)
    accuracy = f"| test/accuracy | {100 * record['metrics']['test/accuracy']:.2f} % |"
    for words in (record["fingerprint"], record["data_sha256"], accuracy, "360 test samples"):
        assert words in card
    counts = digits_run.datamodule.spec.class_counts
    assert all(f"| {name} | {count} |" in card for name, count in enumerate(counts))
    kept = pd.read_parquet(digits_run.run_dir / "predictions.parquet")
    recall = recall_score(kept["target"], np.array(kept["output"].tolist()).argmax(1), average=None)
    weakest = int(recall.argmin())
    count = int((kept["target"] == weakest).sum())
    assert f"least often: {weakest} ({100 * recall[weakest]:.0f} % of {count})" in card
    assert "takes inputs that are encoded, transformed and normalised already" in card


def test_scores_of_other_weights_are_not_this_file_s(digits_run: Trained, tmp_path: Path) -> None:
    exported = export(digits_run.run_dir, "safetensors", out=tmp_path, checkpoint="last")
    card = exported.card.read_text(encoding="utf-8")
    assert "The run's test scores are of its best checkpoint, not of this file." in card
    assert "| test/accuracy" not in card


def test_a_card_of_somebody_s_is_left_alone(digits_run: Trained, tmp_path: Path) -> None:
    (tmp_path / "MODEL_CARD.md").write_text("# Mine", encoding="utf-8")
    with pytest.raises(AssayError, match="was not written by assay export"):
        export(digits_run.run_dir, "safetensors", out=tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["MODEL_CARD.md"]
    (tmp_path / "b").mkdir()
    for out in (tmp_path / "b", tmp_path / "b" / "model.safetensors"):
        (tmp_path / "b" / "model.safetensors").write_text("mine")
        with pytest.raises(AssayError, match="is there, without the card that assay export writes"):
            export(digits_run.run_dir, "safetensors", out=out)
        assert (tmp_path / "b" / "model.safetensors").read_text() == "mine"
    export(digits_run.run_dir, "safetensors", out=tmp_path / "a")
    export(digits_run.run_dir, "safetensors", out=tmp_path / "a")  # its own is replaced
