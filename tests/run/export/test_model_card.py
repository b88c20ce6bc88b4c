"""What is on the card, and that no name of somebody's is more than its letters."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.record.run_record import RunRecord
from assay.run.export.export import export
from assay.run.export.model_card import MARK
from assay.terminal import escape_markdown

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_what_is_on_it(digits_run: Trained, tmp_path: Path) -> None:
    exported = export(digits_run.run_dir, "safetensors", out=tmp_path)
    card, record = exported.card.read_text(encoding="utf-8"), digits_run.record
    assert card.startswith(MARK)
    accuracy = f"| test/accuracy | {100 * record['metrics']['test/accuracy']:.2f} % |"
    for words in (record["fingerprint"], record["data_sha256"], accuracy):
        assert words in card
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
        with pytest.raises(AssayError, match="exists and was not written by assay export"):
            export(digits_run.run_dir, "safetensors", out=out)
        assert (tmp_path / "b" / "model.safetensors").read_text() == "mine"
    export(digits_run.run_dir, "safetensors", out=tmp_path / "a")
    export(digits_run.run_dir, "safetensors", out=tmp_path / "a")  # its own is replaced


def test_nothing_of_a_record_is_more_than_its_letters(digits_run: Trained, tmp_path: Path) -> None:
    """The record of a run that somebody has sent: each text of it that the card shows."""
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run")
    record = RunRecord.load(run_dir)
    hostile = "x|<script>alert(1)</script>`[a](javascript:b)\n# c"
    for key in ("started", "fingerprint", "data_sha256"):
        setattr(record, key, f"{key} {hostile}")
    record.git = {"commit": f"commit {hostile}"}
    record.packages = {"torch": f"torch {hostile}"}
    record.overrides = [f"overrides {hostile}"]
    record.best["monitor"] = f"monitor {hostile}"
    record.metrics[f"test/{hostile}"] = 0.5
    record.save(run_dir)
    card = export(run_dir, "safetensors", out=tmp_path / "out").card.read_text(encoding="utf-8")
    shown = r"x\|&lt;script&gt;alert(1)&lt;/script&gt;\`\[a\](javascript:b) \# c"
    for word in ("started", "fingerprint", "data_sha256", "commit", "torch", "monitor"):
        assert f"{escape_markdown(word)} {shown}" in card
    assert f"test/{shown}" in card
    assert "<script" not in card
    assert "\n# c" not in card
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}
