"""Against scikit-learn, head by head, and through a tracker as a run has it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, r2_score  # type: ignore[import-untyped]
from torchmetrics import MeanSquaredError

from assay.metrics.multitask import Multitask
from assay.metrics.tracker import Tracker

NAMES = ["kind=a", "kind=b", "kind=c", "size", "sex=f", "sex=m"]


@pytest.fixture
def said() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    targets = torch.stack(
        [torch.arange(60) % 3, torch.randn(60, generator=generator), torch.arange(60) % 2], 1
    )
    return torch.rand(60, 6, generator=generator), targets


def test_each_metric_sees_its_own_head(said: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, targets = said
    tracker = Tracker(Multitask(NAMES), "val")
    for rows in torch.tensor_split(torch.arange(60), 9):
        tracker.update(torch.tensor(0.5), outputs[rows], targets[rows])
    values = {name: float(value) for name, value in tracker.compute().items()}
    kind, sex = outputs[:, :3].argmax(1).numpy(), outputs[:, 4:].argmax(1).numpy()
    size, (right_kind, right_size, right_sex) = outputs[:, 3].numpy(), targets.numpy().T
    expected = {
        "val/loss": 0.5,
        "val/kind/accuracy": accuracy_score(right_kind, kind),
        "val/kind/f1": f1_score(right_kind, kind, average="macro"),
        "val/size/mae": mean_absolute_error(right_size, size),
        "val/size/rmse": np.sqrt(((right_size - size) ** 2).mean()),
        "val/size/r2": r2_score(right_size, size),
        "val/sex/accuracy": accuracy_score(right_sex, sex),
        "val/sex/f1": f1_score(right_sex, sex, average="macro"),
    }
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        assert values[name] == pytest.approx(float(value), abs=1e-5), name


def test_the_state_of_an_epoch_comes_back(said: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, targets = said
    whole, first, second = (Tracker(Multitask(NAMES), "train") for _ in range(3))
    for tracker, rows in ((whole, slice(0, 40)), (first, slice(0, 40))):
        tracker.update(torch.tensor(1.0), outputs[rows], targets[rows])
        tracker.flush()
    second.restore(first.state())
    for tracker in (whole, second):
        tracker.update(torch.tensor(2.0), outputs[40:], targets[40:])
    assert whole.compute() == second.compute()


def test_metrics_of_ones_own(said: tuple[torch.Tensor, torch.Tensor]) -> None:
    metrics = Multitask(NAMES, {"size": {"mse": MeanSquaredError()}})
    metrics.update(*said)
    assert set(metrics.compute()) == {"kind/accuracy", "kind/f1", "size/mse", "sex/accuracy", "sex/f1"}


def test_metrics_of_no_head_are_refused() -> None:
    with pytest.raises(ValueError, match="'Size' is not a target; they are kind, size, sex"):
        Multitask(NAMES, {"Size": {"mse": MeanSquaredError()}})
