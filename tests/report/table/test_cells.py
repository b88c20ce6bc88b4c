"""Scores with as many digits as their interval leaves meaning."""

from __future__ import annotations

import pytest

from assay.report.table.cells import score_text, short_names
from assay.report.table.statistics import Mean, mean_of


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.98611,), "0.9861"),
        ((0.95, 0.96, 0.97), "0.960 ± 0.025"),
        ((8000.0, 8100.0), "8050 ± 640"),
        ((1e-7, 2e-7), "1.5e-07 ± 6.4e-07"),
        ((0.5, 0.5), "0.5 ± 0"),
        ((1e9, 2e9), "1500000000 ± 6400000000"),
    ],
)
def test_score_text(values: tuple[float, ...], text: str) -> None:
    assert score_text(mean_of(values)) == text


def test_none() -> None:
    assert score_text(None) == "–"
    assert score_text(Mean((0.5,), 0.5)) == "0.5"


def test_names_are_short_where_that_is_clear() -> None:
    names = short_names(("optimizer.lr", "lr", "data.transform.size", "model.size"))
    assert names == {
        "optimizer.lr": "optimizer.lr",
        "lr": "lr",
        "data.transform.size": "transform.size",
        "model.size": "model.size",
    }
