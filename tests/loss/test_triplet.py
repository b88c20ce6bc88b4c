from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from assay.loss.triplet import Triplet

POINTS = torch.randn(14, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 2, 0, 1, 3, 0, 1, 2, 0])  # 3 is alone


def slow(points: np.ndarray, labels: np.ndarray, margin: float | None) -> float:
    losses = []
    for a in range(len(points)):
        distance = [math.dist(points[a], point) for point in points]
        positives = [d for i, d in enumerate(distance) if labels[i] == labels[a] and i != a]
        negatives = [d for i, d in enumerate(distance) if labels[i] != labels[a]]
        if positives and negatives:
            gap = max(positives) - min(negatives)
            losses.append(math.log1p(math.exp(gap)) if margin is None else max(0.0, gap + margin))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("margin", [None, 0.0, 0.2, 2.0])
@pytest.mark.parametrize("normalize", [False, True])
def test_every_triplet_mined_by_hand(margin: float | None, normalize: bool) -> None:
    points = POINTS.numpy()
    if normalize:
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    expected = slow(points, LABELS.numpy(), margin)
    loss = Triplet("soft" if margin is None else margin, normalize)
    assert loss(POINTS, LABELS).item() == pytest.approx(expected)
    np.testing.assert_allclose(loss.probabilities(POINTS).numpy(), points)


@pytest.mark.parametrize("labels", [torch.zeros(4, dtype=torch.long), torch.arange(4)], ids=["one", "alone"])
def test_a_batch_without_a_triplet_has_no_loss_and_no_slope(labels: torch.Tensor) -> None:
    points = torch.randn(4, 3, requires_grad=True)
    loss = Triplet()(points, labels)
    (slope,) = torch.autograd.grad(loss, points)
    assert loss.item() == 0
    assert not slope.any()


@pytest.mark.parametrize("normalize", [False, True])
def test_slopes_are_finite_where_points_coincide(normalize: bool) -> None:
    points = torch.ones(4, 3, requires_grad=True)
    loss = Triplet(0.5, normalize)(points, torch.tensor([0, 0, 1, 1]))
    (slope,) = torch.autograd.grad(loss, points)
    assert loss.item() == pytest.approx(0.5)
    assert torch.isfinite(slope).all()


def test_soft_targets_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="triplet needs integer labels; mixup and cutmix make soft ones"):
        Triplet()(torch.zeros(4, 3), torch.zeros(4, 2))


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [(torch.zeros(4), torch.zeros(4).long()), (torch.zeros(4, 3), torch.zeros(4, 2).long())],
)
def test_shapes_that_do_not_fit(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="one label per sample"):
        Triplet()(outputs, targets)


@pytest.mark.parametrize("margin", [-0.1, "hard", float("nan")])
def test_a_margin_that_cannot_be_used(margin: object) -> None:
    with pytest.raises(ValueError, match="margin"):
        Triplet(margin)  # type: ignore[arg-type]  # a table of wrong arguments
