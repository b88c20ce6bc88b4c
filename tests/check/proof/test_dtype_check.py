"""Products of tensors of different types are refused on fake tensors as torch refuses them on real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear

from assay.check.fake_step import SameType
from assay.torch_internals import FakeTensorMode

same_type: Any = SameType
Product = Callable[[Tensor, Tensor], Tensor]
PRODUCTS: dict[str, tuple[Product, tuple[int, ...], tuple[int, ...]]] = {
    "mm": (torch.mm, (2, 3), (3, 2)),
    "bmm": (torch.bmm, (1, 2, 3), (1, 3, 2)),
    "mv": (torch.mv, (2, 3), (3,)),
    "dot": (torch.dot, (3,), (3,)),
    "linear": (linear, (2, 3), (4, 3)),
    "conv2d": (conv2d, (1, 1, 4, 4), (1, 1, 3, 3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_as_real_tensors(name: str) -> None:
    product, one, other = PRODUCTS[name]
    with pytest.raises(RuntimeError):  # torch's own words differ by operation
        product(torch.ones(one), torch.ones(other, dtype=torch.float64))
    with FakeTensorMode() as fake, same_type():
        first, second = fake.from_tensor(torch.ones(one)), fake.from_tensor(torch.ones(other))
        assert product(first, second).shape == product(torch.ones(one), torch.ones(other)).shape
        with pytest.raises(RuntimeError, match="float32 and float64"):
            product(first, second.double())


def test_a_number_is_not_a_matrix() -> None:
    with same_type():
        assert (torch.ones(2) * torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
