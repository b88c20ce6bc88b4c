"""One bit of one weight changes the sum; where and how the weights lie does not."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from torch import nn

from assay.checkpoint.container import weights_sha256


def test_it_is_what_the_docs_say() -> None:
    state = {"b": torch.tensor([1.0, 2.0]), "a": torch.tensor(3, dtype=torch.int64)}
    expected = hashlib.sha256()
    expected.update(json.dumps(["a", "torch.int64", []]).encode() + (3).to_bytes(8, "little"))
    expected.update(json.dumps(["b", "torch.float32", [2]]).encode() + state["b"].numpy().tobytes())
    assert weights_sha256(state) == expected.hexdigest()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.complex64])
def test_every_dtype(dtype: torch.dtype) -> None:
    one, other = torch.ones(3).to(dtype), torch.tensor([1.0, 1.0, 0.0]).to(dtype)
    assert weights_sha256({"x": one}) == weights_sha256({"x": one.clone()}) != weights_sha256({"x": other})


def test_a_sign_of_zero_a_shape_a_dtype_and_a_name_count() -> None:
    zero = torch.zeros(4)
    sums = [
        weights_sha256(state)
        for state in (
            {"x": zero},
            {"x": -zero},
            {"x": zero.reshape(2, 2)},
            {"x": zero.int()},
            {"y": zero},
            {},
        )
    ]
    assert len(set(sums)) == len(sums)


def test_the_memory_format_does_not() -> None:
    weight = torch.randn(4, 3, 2, 2)
    assert weights_sha256({"x": weight}) == weights_sha256(
        {"x": weight.to(memory_format=torch.channels_last)}
    )
    assert weights_sha256({"x": weight.mT}) == weights_sha256({"x": weight.mT.contiguous()})


def test_a_module_with_nothing_in_it_and_with_an_empty_buffer() -> None:
    module = nn.Module()
    assert weights_sha256(module.state_dict()) == hashlib.sha256().hexdigest()
    module.register_buffer("empty", torch.zeros(0, 3))
    assert weights_sha256(module.state_dict()) != hashlib.sha256().hexdigest()
