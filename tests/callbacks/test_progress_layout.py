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
