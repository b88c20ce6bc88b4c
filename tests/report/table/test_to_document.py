"""The JSON of a comparison says all that the table says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.report.table.hostile import TEXTS, hostile

from assay.cli.documents import Document
from assay.report.comparison_formats import to_document

if TYPE_CHECKING:
    from pathlib import Path


def test_rows_scores_and_broken_runs(tmp_path: Path) -> None:
    table = hostile(tmp_path)
    document = Document()
    document.say("compare", to_document(table))
    text = document.to_json()
    assert text.isascii()
    assert "\x1b" not in text
    plain = json.loads(text)
    assert (plain["kind"], plain["metric"], plain["direction"]) == ("compare", "val/loss", "min")
    assert [row["config"]["tag.text"] for row in plain["rows"]] == list(TEXTS)
    first = plain["rows"][0]
    assert first["best"]
    assert first["scores"]["val/loss"] == {"mean": 0.0, "std": None, "low": None, "high": None, "n": 1}
    assert (first["runs"][0]["run"], first["runs"][0]["status"]) == (str(tmp_path / "0"), "finished")
    assert len(plain["broken"]) == 1
