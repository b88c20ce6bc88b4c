from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torchvision.ops import sigmoid_focal_loss  # type: ignore[import-untyped]  # torchvision ships no types

from assay.loss.focal import Focal

LOGITS = 3 * torch.randn(16, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
HARD = torch.randint(4, (16,), generator=torch.Generator().manual_seed(1))
SOFT = torch.rand(16, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(1)
WEIGHT = [0.2, 3.0, 1.0, 0.7]


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_two_classes_give_torchvisions_sigmoid_focal_loss(gamma: float) -> None:
    logit, target = LOGITS[:, 0], HARD % 2
    expected = sigmoid_focal_loss(logit, target.double(), alpha=-1, gamma=gamma, reduction="mean")
    actual = Focal(gamma)(torch.stack([torch.zeros_like(logit), logit], dim=1), target)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("targets", [HARD, SOFT], ids=["hard", "soft"])
def test_gamma_0_is_cross_entropy(targets: torch.Tensor) -> None:
    torch.testing.assert_close(Focal(0.0)(LOGITS, targets), F.cross_entropy(LOGITS, targets))


def test_soft_targets_follow_the_formula() -> None:
    p, weight = LOGITS.softmax(1), torch.tensor(WEIGHT, dtype=torch.float64)
    each = -((1 - p) ** 2) * p.log()
    expected = (SOFT * weight * each).sum() / (SOFT * weight).sum()
    torch.testing.assert_close(Focal(2.0, WEIGHT).double()(LOGITS, SOFT), expected, rtol=1e-6, atol=0)


def test_gradient_of_a_sure_answer_is_finite_for_a_power_below_1() -> None:
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(Focal(0.5)(logits, torch.tensor([0])), logits)
    assert torch.isfinite(slope).all()


def test_gamma_out_of_range() -> None:
    with pytest.raises(ValueError, match="gamma"):
        Focal(-1.0)
