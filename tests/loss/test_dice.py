"""The soft Dice loss by its formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.loss.dice import Dice

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 4, 5, 6, generator=GENERATOR, dtype=torch.float64)
TARGETS = torch.randint(4, (3, 5, 6), generator=GENERATOR)
TARGETS[1, :2] = 255


def by_hand(smooth: float) -> float:
    values = []
    for logits, target in zip(LOGITS.numpy(), TARGETS.numpy(), strict=True):
        shares = np.exp(logits) / np.exp(logits).sum(0)
        there = target != 255
        for label in range(4):
            p, q = shares[label][there], (target == label)[there]
            values.append(1 - (2 * (p * q).sum() + smooth) / ((p**2).sum() + q.sum() + smooth))
    return float(np.mean(values))


@pytest.mark.parametrize("smooth", [1.0, 1e-3])
def test_it_is_the_formula(smooth: float) -> None:
    assert float(Dice(smooth, ignore_index=255)(LOGITS, TARGETS)) == pytest.approx(by_hand(smooth))


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_cross_entropy_is_added_as_the_mean_of_each_mask(weight: float) -> None:
    values = []
    for logits, target in zip(LOGITS.numpy(), TARGETS.numpy(), strict=True):
        logs = logits - np.log(np.exp(logits).sum(0))
        there = target != 255
        values.append(-np.take_along_axis(logs, np.minimum(target, 3)[None], 0)[0][there].mean())
    expected = by_hand(1.0) + weight * float(np.mean(values))
    assert float(Dice(ignore_index=255, cross_entropy=weight)(LOGITS, TARGETS)) == pytest.approx(expected)
    empty = torch.full_like(TARGETS[:1], 255)
    assert Dice(ignore_index=255, cross_entropy=weight)(LOGITS[:1], empty).isfinite()


def test_one_hot_shares_are_their_classes() -> None:
    hard = TARGETS.clamp(max=3)
    soft = torch.nn.functional.one_hot(hard, 4).movedim(-1, 1).double()
    for loss in (Dice(), Dice(cross_entropy=1.0)):
        torch.testing.assert_close(loss(LOGITS, soft), loss(LOGITS, hard))


def test_the_loss_of_a_batch_is_the_mean_of_its_samples() -> None:
    for loss in (Dice(ignore_index=255), Dice(ignore_index=255, cross_entropy=1.0)):
        each = [loss(LOGITS[at : at + 1], TARGETS[at : at + 1]) for at in range(3)]
        torch.testing.assert_close(loss(LOGITS, TARGETS), torch.stack(each).mean())


def test_what_is_not_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="use loss=cross_entropy"):
        Dice()(torch.zeros(3, 4), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="smooth must be above 0"):
        Dice(smooth=0.0)
    with pytest.raises(ValueError, match="cross_entropy must be at least 0"):
        Dice(cross_entropy=-1.0)
