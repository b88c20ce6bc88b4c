"""Scores with as many digits as their interval leaves meaning."""

from __future__ import annotations

import pytest

from assay.analysis.objective import format_score, score_text
from assay.analysis.statistics import mean_of


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("test/accuracy", 0.5, "50.00 %"),
        ("test/probe_accuracy", 0.9167, "91.67 %"),
        ("val/f1", 1.0, "100.00 %"),
        ("test/recall_at_5", 0.92222, "92.22 %"),
        ("test/loss", 0.000123456, "0.0001235"),
        ("test/rmse", 57.4321, "57.43"),
        ("test/loss", float("nan"), "nan"),
        ("test/mae", 607270.0, "607,270"),
        ("test/mse", 9.91600123e8, "991,600,123"),
        ("test/mae", 12345.678, "12,346"),
        ("test/loss", -0.0, "0"),
        ("test/loss", 2.7e-7, "2.7e-07"),
    ],
)
def test_format_score(name: str, value: float, text: str) -> None:
    assert format_score(name, value) == text


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("val/loss", (0.98611,), "0.9861"),
        ("val/loss", (0.95, 0.96, 0.97), "0.960 ± 0.025"),
        ("val/accuracy", (0.98611,), "98.61 %"),
        ("val/accuracy", (0.95, 0.96, 0.97), "96.0 ± 2.5 %"),
        ("val/f1", (1.0, 1.0), "100 ± 0 %"),
        ("loss", (8000.0, 8100.0), "8,050 ± 640"),
        ("loss", (1e-7, 2e-7), "1.5e-07 ± 6.4e-07"),
        ("loss", (0.5, 0.5), "0.5 ± 0"),
        ("loss", (1e9, 2e9), "1,500,000,000 ± 6,400,000,000"),
    ],
)
def test_score_text(name: str, values: tuple[float, ...], text: str) -> None:
    mean = mean_of(values)
    assert mean is not None
    assert score_text(name, mean) == text
