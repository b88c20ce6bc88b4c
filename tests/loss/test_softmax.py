"""Softmax of few classes: torch's, to the last bits, and the same whatever a sample is in a batch with."""

from __future__ import annotations

import pytest
import torch

from assay.loss.targets import softmax


@pytest.mark.parametrize("classes", [2, 3, 10, 15, 16, 40])
def test_it_is_that_of_the_exact_numbers(classes: int) -> None:
    logits = 30 * torch.randn(500, classes, generator=torch.Generator().manual_seed(classes))
    expected = torch.exp(logits.double() - logits.double().logsumexp(1, keepdim=True))
    torch.testing.assert_close(softmax(logits).double(), expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(softmax(logits).argmax(1), logits.argmax(1))


@pytest.mark.parametrize("classes", [2, 10, 16])
def test_a_sample_has_the_same_bits_in_each_batch(classes: int) -> None:
    logits = 5 * torch.randn(257, classes, generator=torch.Generator().manual_seed(0))
    whole = softmax(logits)
    for length in (1, 3, 16, 100):
        assert torch.equal(torch.cat([softmax(piece) for piece in logits.split(length)]), whole)  # type: ignore[no-untyped-call]  # torch left it untyped


@pytest.mark.parametrize(
    ("dtype", "wide"), [(torch.bfloat16, torch.float32), (torch.float32,) * 2, (torch.float64,) * 2]
)
def test_masks_types_and_numbers_that_are_not_finite(dtype: torch.dtype, wide: torch.dtype) -> None:
    masks = torch.zeros(2, 4, 3, 3, dtype=dtype)
    assert torch.equal(softmax(masks), torch.full((2, 4, 3, 3), 0.25, dtype=wide))
    rows = torch.tensor([[0.0, torch.nan], [torch.inf, 0.0], [-torch.inf, 0.0]], dtype=dtype)
    found = softmax(rows)
    assert found.dtype == wide
    assert found[:2].isnan().all()
    assert found[2].tolist() == [0.0, 1.0]
