from __future__ import annotations

import pytest
import torch

from assay.callbacks import progress_layout


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (-0.5, "-0.5000"),
        (9999.0, "9999.0000"),
        (0.0009, "0.0009"),
        (1470000000.0, "1,470,000,000"),
        (0.00002123, "2.123e-05"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert progress_layout.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599.4, "59:59"), (90061, "25:01:01")]
)
def test_duration(seconds: float, text: str) -> None:
    assert progress_layout.duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0.999, "1.0 s/step"), (1.0, "1.0 steps/s"), (99999.4, "99,999 steps/s")]
)
def test_rate(rate: float, text: str) -> None:
    assert progress_layout.rate(rate) == text


def test_scalars_by_stage() -> None:
    metrics = {
        "train_loss": torch.tensor(1.5),
        "train_loss_step": torch.tensor(9.0),
        "train_loss_epoch": torch.tensor(1.5),
        "val/loss": torch.tensor(2.5),
        "val/per_class": torch.tensor([0.1, 0.2]),
        "lr-SGD/pg1": torch.tensor(0.1),
        "valuable": 3,
    }
    assert progress_layout.scalars(metrics) == {
        "": {"valuable": 3.0},
        "train": {"loss": 1.5},
        "val": {"loss": 2.5},
    }
    assert progress_layout.scalars(metrics, ["train"]) == {"": {"valuable": 3.0}, "train": {"loss": 1.5}}


def test_what_is_not_finite_stands_out() -> None:
    def styles(value: float) -> set[str]:
        return {str(span.style) for span in progress_layout.pairs({"loss": value}).spans}

    assert "bold red" in styles(float("nan"))
    assert "bold red" in styles(float("inf"))
    assert "bold red" not in styles(0.5)
