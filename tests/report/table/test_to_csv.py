"""CSV of a comparison, read back by pandas."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pandas as pd
from tests.making_runs import make_run
from tests.report.table.hostile import TEXTS, hostile

from assay.analysis.comparison import compare
from assay.analysis.read_runs import read_runs
from assay.report.comparison_formats import to_csv

if TYPE_CHECKING:
    from pathlib import Path


def test_every_digit_comes_back(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(
            tmp_path / str(seed), f"seed={seed}", "optimizer.lr=-0.1", metrics={"val/loss": 0.1 + seed / 3}
        )
    make_run(tmp_path / "other", "optimizer.lr=0.2", metrics={"val/loss": 9.0}, status="pruned")
    table = compare(read_runs([tmp_path]))
    frame = pd.read_csv(io.StringIO(to_csv(table)))
    score = table.rows[0].scores["val/loss"]
    row = frame.iloc[0]
    assert [row[f"val/loss{end}"] for end in ("", " std", " low", " high", " n")] == [
        *(score.mean, score.std, score.low, score.high, 2)
    ]
    assert row["optimizer.lr"] == -0.1, "a negative number is not a formula"
    assert frame["best"].tolist() == [1, 0]
    assert frame["status"].tolist() == ["finished", "pruned"]
    assert row["runs"].split("\n") == [str(tmp_path / "0"), str(tmp_path / "1")]


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = to_csv(hostile(tmp_path))
    assert "\x1b" not in text
    frame = pd.read_csv(io.StringIO(text))
    assert len(frame) == len(TEXTS) + 1
    assert "'=cmd()" in frame["tag.text"].tolist()
    assert not [one for one in frame["tag.text"].dropna() if one[0] in "=+@"]
    assert frame["status"].iloc[-1].startswith("broken")
