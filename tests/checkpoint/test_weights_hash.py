"""One bit of one weight changes the sum; where and how the weights lie does not."""

from __future__ import annotations

import hashlib
import json

import torch

from assay.checkpoint.container import weights_sha256


def test_it_is_what_the_docs_say() -> None:
    state = {"b": torch.tensor([1.0, 2.0]), "a": torch.tensor(3, dtype=torch.int64)}
    expected = hashlib.sha256()
    expected.update(json.dumps(["a", "torch.int64", []]).encode() + (3).to_bytes(8, "little"))
    expected.update(json.dumps(["b", "torch.float32", [2]]).encode() + state["b"].numpy().tobytes())
    assert weights_sha256(state) == expected.hexdigest()


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
