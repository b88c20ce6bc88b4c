"""Against scikit-learn, target by target, and through a tracker as a run has it."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score  # type: ignore[import-untyped]
from torchmetrics import MeanAbsoluteError, MeanSquaredError

from assay.metrics.per_target import PerTarget
from assay.metrics.r2 import R2
from assay.metrics.tracker import Tracker


def computed(
    num_targets: int, names: tuple[str, ...], outputs: torch.Tensor, targets: torch.Tensor
) -> dict[str, float]:
    metrics = {"mae": MeanAbsoluteError(), "mse": MeanSquaredError(), "r2": R2(num_targets)}
    tracker = Tracker(PerTarget(metrics, num_targets, names), "val")
    for rows in torch.tensor_split(torch.arange(len(outputs)), 7):
        tracker.update(torch.tensor(0.5), outputs[rows], targets[rows])
    state = tracker.state()
    again = Tracker(PerTarget(metrics, num_targets, names), "val")
    again.restore(state)
    found = {name: float(value) for name, value in tracker.compute().items()}
    assert {name: float(value) for name, value in again.compute().items()} == found, "as a checkpoint has it"
    del found["val/loss"]
    return found


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("price", "days"), ("price", "days")),
        ((), ("target_0", "target_1")),
        (("a.b", "a_b"), ("a_b_0", "a_b_1")),
    ],
)
def test_each_target_has_its_own_unit(names: tuple[str, ...], keys: tuple[str, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    targets = torch.randn(50, 2, generator=generator) * torch.tensor([1e5, 10.0])
    outputs = targets + torch.randn(50, 2, generator=generator) * torch.tensor([1e4, 1.0])
    found = computed(2, names, outputs, targets)
    assert list(found) == sorted(
        [*(f"val/{key}/{metric}" for key in keys for metric in ("mae", "mse")), "val/r2"]
    )
    for at, key in enumerate(keys):
        expected = mean_absolute_error(targets[:, at], outputs[:, at])
        assert found[f"val/{key}/mae"] == pytest.approx(float(expected), rel=1e-5)
    assert found["val/r2"] == pytest.approx(float(r2_score(targets, outputs)), rel=1e-5)


@pytest.mark.parametrize("num_targets", [1, 17])
def test_one_target_and_very_many_keep_the_names(num_targets: int) -> None:
    targets = torch.randn(30, num_targets, generator=torch.Generator().manual_seed(0))
    found = computed(num_targets, (), targets * 2, targets)
    assert sorted(found) == ["val/mae", "val/mse", "val/r2"]
    assert found["val/mae"] == pytest.approx(float(targets.abs().mean()), rel=1e-5)
