from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax  # type: ignore[import-untyped]  # scipy ships no types
from torch.nn import functional as F

from assay.loss.cross_entropy import CrossEntropy

WEIGHT = [0.2, 3.0, 1.0, 0.7]
LOGITS = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
HARD = torch.randint(4, (16,), generator=torch.Generator().manual_seed(1))
SOFT = torch.rand(16, 4, generator=torch.Generator().manual_seed(2)).softmax(1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_hard_targets_give_what_torch_gives(weight: list[float] | None, smoothing: float) -> None:
    expected = torch.nn.CrossEntropyLoss(
        weight=None if weight is None else torch.tensor(weight), label_smoothing=smoothing
    )(LOGITS, HARD)
    torch.testing.assert_close(CrossEntropy(smoothing, weight)(LOGITS, HARD), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_soft_targets_without_weights_give_what_torch_gives(smoothing: float) -> None:
    expected = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)(LOGITS, SOFT)
    torch.testing.assert_close(CrossEntropy(smoothing)(LOGITS, SOFT), expected)


def test_soft_targets_with_weights_are_normalised_by_their_weight() -> None:
    q, w, log_p = SOFT.double().numpy(), np.array(WEIGHT), log_softmax(LOGITS.double().numpy(), axis=1)
    expected = -(q * w * log_p).sum() / (q * w).sum()
    actual = CrossEntropy(class_weight=WEIGHT)(LOGITS, SOFT).item()
    assert actual == pytest.approx(expected, rel=1e-6)
    by_batch_size = F.cross_entropy(LOGITS, SOFT, torch.tensor(WEIGHT)).item()
    assert actual != pytest.approx(by_batch_size, rel=1e-2)


def test_probabilities_are_the_softmax() -> None:
    torch.testing.assert_close(CrossEntropy().probabilities(LOGITS), LOGITS.softmax(1))


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_smoothing_out_of_range(smoothing: float) -> None:
    with pytest.raises(ValueError, match="label_smoothing"):
        CrossEntropy(smoothing)
