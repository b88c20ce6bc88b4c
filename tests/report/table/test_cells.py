"""Names of columns."""

from __future__ import annotations

from assay.report.comparison_formats import short_names


def test_names_are_short_where_that_is_clear() -> None:
    names = short_names(("optimizer.lr", "lr", "data.transform.size", "model.size"))
    assert names == {
        "optimizer.lr": "optimizer.lr",
        "lr": "lr",
        "data.transform.size": "transform.size",
        "model.size": "model.size",
    }
