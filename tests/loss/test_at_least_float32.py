"""Half precision is widened before a sum, and nothing else is."""

from __future__ import annotations

import pytest
import torch

from assay.loss.targets import at_least_float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_and_its_gradient_comes_back(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    wide = at_least_float32(values)
    assert wide.dtype == torch.float32
    wide.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert values.grad is not None
    assert values.grad.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_wide_enough_is_not_copied(dtype: torch.dtype) -> None:
    values = torch.zeros(3, dtype=dtype)
    assert at_least_float32(values) is values


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_labels_are_not_outputs(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="let the model return logits"):
        at_least_float32(torch.zeros(3, dtype=dtype))
