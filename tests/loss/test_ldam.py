from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp  # type: ignore[import-untyped]  # scipy ships no types
from torch.nn import functional as F

from assay.loss.ldam import LDAM

Array = NDArray[np.float64]
COUNTS = [500, 60, 25, 3]
WEIGHT = [0.2, 3.0, 1.0, 0.7]
LOGITS = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
HARD = torch.randint(4, (12,), generator=torch.Generator().manual_seed(1))
SOFT = (3 * torch.rand(12, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)).softmax(1)


def margins_of_the_paper(max_margin: float = 0.5) -> Array:
    margins: Array = 1.0 / np.sqrt(np.sqrt(np.array(COUNTS)))
    margins *= max_margin / margins.max()
    return margins


def each_class(logits: Array, margins: Array, scale: float) -> Array:
    """LDAM(z, k) for every k, one whole cross-entropy each."""
    losses = np.empty_like(logits)
    for k in range(logits.shape[1]):
        shifted = logits.copy()
        shifted[:, k] -= margins[k]
        losses[:, k] = logsumexp(scale * shifted, axis=1) - scale * shifted[:, k]
    return losses


def test_margins_are_the_papers() -> None:
    np.testing.assert_allclose(LDAM(COUNTS).margins.numpy(), margins_of_the_paper(), rtol=1e-6)
    np.testing.assert_allclose(
        LDAM(COUNTS, max_margin=0.3).margins.numpy(), margins_of_the_paper(0.3), rtol=1e-6
    )


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_hard_targets_follow_the_paper(scale: float, weight: list[float] | None) -> None:
    each = each_class(LOGITS.numpy(), margins_of_the_paper(), scale)[np.arange(12), HARD.numpy()]
    share = np.ones(12) if weight is None else np.array(weight)[HARD.numpy()]
    loss = LDAM(COUNTS, scale=scale, class_weight=weight).double()
    assert loss(LOGITS, HARD).item() == pytest.approx((each * share).sum() / share.sum(), rel=1e-6)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_soft_targets_are_a_mixture_of_hard_losses(scale: float, weight: list[float] | None) -> None:
    each = each_class(LOGITS.numpy(), margins_of_the_paper(), scale)
    share = SOFT.numpy() * (1.0 if weight is None else np.array(weight))
    loss = LDAM(COUNTS, scale=scale, class_weight=weight).double()
    assert loss(LOGITS, SOFT).item() == pytest.approx((each * share).sum() / share.sum(), rel=1e-6)


def test_a_mixture_of_losses_is_not_the_loss_of_mixed_margins() -> None:
    loss = LDAM(COUNTS).double()
    mixed_margins = F.cross_entropy(30 * (LOGITS - SOFT * loss.margins), SOFT)
    assert loss(LOGITS, SOFT).item() > mixed_margins.item() + 0.5


@given(
    logits=st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=4, max_size=4), min_size=1, max_size=4),
    q=st.lists(st.floats(0.01, 1), min_size=4, max_size=4),
)
def test_any_logits_agree_with_the_slow_loop(logits: list[list[float]], q: list[float]) -> None:
    z = torch.tensor(logits, dtype=torch.float64)
    soft = (torch.tensor(q, dtype=torch.float64) / sum(q)).expand_as(z)
    expected = (each_class(z.numpy(), margins_of_the_paper(), 30.0) * soft.numpy()).sum() / len(logits)
    assert LDAM(COUNTS).double()(z, soft).item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_a_small_loss_of_a_sure_answer_keeps_its_digits() -> None:
    logits, soft = torch.tensor([[2.0, 1.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    expected = each_class(logits.double().numpy(), margins_of_the_paper(), 30.0)[0, 0]
    assert 0 < expected < 1e-7
    assert LDAM(COUNTS)(logits, soft).item() == pytest.approx(expected, rel=1e-4)


def test_the_buffer_moves_with_the_module() -> None:
    assert LDAM(COUNTS).to("meta").margins.device.type == "meta"
    assert LDAM(COUNTS).double().margins.dtype == torch.float64


def test_probabilities_are_of_the_scaled_logits_without_margin() -> None:
    torch.testing.assert_close(LDAM(COUNTS, scale=2.0).probabilities(LOGITS), (2 * LOGITS).softmax(1))


def test_an_empty_class_has_no_margin() -> None:
    with pytest.raises(ValueError, match=r"class 2.*no training sample.*cross_entropy"):
        LDAM([5, 3, 0])


@pytest.mark.parametrize(("max_margin", "scale"), [(0.0, 30.0), (0.5, -1.0)])
def test_arguments_out_of_range(max_margin: float, scale: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        LDAM(COUNTS, max_margin, scale)


def test_more_classes_than_logits() -> None:
    with pytest.raises(ValueError, match="4 classes, the model returns 3 logits"):
        LDAM(COUNTS)(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
