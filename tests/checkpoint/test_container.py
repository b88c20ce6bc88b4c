"""What a checkpoint holds: plain data that loads without running code, copied and hashed bit for bit."""

from __future__ import annotations

import enum
import hashlib
import io
import json
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torchvision import tv_tensors  # type: ignore[import-untyped]  # it has no stubs

from assay.checkpoint.checkpoint_file import Snapshot, serializable_part, to_plain, weights_sha256

if TYPE_CHECKING:
    from collections.abc import Callable


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


Point = namedtuple("Point", ["x", "y"])


def read_back(value: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**2000) + 1, 2**2000 - 1),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=20),
    st.binary(min_size=1, max_size=20),
)
keys = st.one_of(
    st.text(max_size=8), st.integers(), st.booleans(), st.tuples(st.integers(), st.text(max_size=3))
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.text(max_size=5), inner, max_size=4).map(OrderedDict),
        st.sets(st.integers(), max_size=4),
        st.lists(st.sampled_from("abc")).map(Counter),
    ),
    max_leaves=12,
)


@given(trees)
def test_what_is_plain_is_unchanged_and_loads(tree: Any) -> None:
    converted = to_plain(tree)
    assert read_back(converted) == tree
    assert type(read_back(converted)) is type(tree)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Point(1, [2]), (1, [2])),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (frozenset({1, 2}), {1, 2}),
        (Path("a") / "b", str(Path("a") / "b")),
        (torch.Size([2, 3]), torch.Size([2, 3])),
        (torch.float16, torch.float16),
        (torch.device("cpu"), torch.device("cpu")),
        (bytearray(b"ab"), b"ab"),
    ],
)
def test_subclasses_become_what_they_are_a_subclass_of(value: Any, expected: Any) -> None:
    converted = to_plain({"deep": [value]})["deep"][0]
    assert converted == expected
    assert type(converted) is type(expected)
    assert read_back(converted) == expected


def with_attribute() -> torch.Tensor:
    tensor = torch.arange(3.0)
    tensor.origin = object()  # type: ignore[attr-defined]  # what some libraries do
    return tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Parameter(torch.arange(3.0)),
        with_attribute,
        lambda: tv_tensors.Image(torch.arange(12.0).view(3, 2, 2)),
        lambda: torch.arange(6.0).view(2, 3).t(),
        lambda: torch.tensor(float("nan"), dtype=torch.bfloat16),
    ],
)
def test_tensors_become_plain_ones(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    converted = to_plain({"a": tensor})["a"]
    assert type(converted) is torch.Tensor
    loaded = read_back(converted)
    torch.testing.assert_close(
        loaded, tensor.detach().as_subclass(torch.Tensor), rtol=0, atol=0, equal_nan=True
    )
    assert converted.data_ptr() == tensor.data_ptr(), "tensors are shared, not copied"


def test_versions_of_modules_survive() -> None:
    loaded = read_back(to_plain({"state_dict": nn.BatchNorm1d(2).state_dict()}))["state_dict"]
    assert isinstance(loaded, OrderedDict)
    metadata = vars(loaded)["_metadata"]
    assert metadata == vars(nn.BatchNorm1d(2).state_dict())["_metadata"]
    assert metadata[""]["version"] == 2


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({"callbacks": {"x": [1, print]}}, r"callbacks\.x\[1\] is a builtins\.builtin_function"),
        ({"a": {"b": nn.Linear(1, 1)}}, r"a\.b is a torch\.nn\.modules\.linear\.Linear"),
        ({"a": np.zeros(2)}, r"a is a numpy\.ndarray"),
        ({"a": {print: 1}}, "a key of a is a builtins"),
        ({"a": {torch.zeros(1): 1}}, "a key of a is a torch.Tensor"),
        ({"a": nn.UninitializedParameter()}, "a is a torch.nn.parameter.UninitializedParameter"),
        ({"a": torch.Generator()}, "a is a torch"),
        ({b"": 1}, "a key is a builtins.bytes"),
        (object(), "but it is a builtins.object"),
    ],
)
def test_the_rest_is_refused_by_key(value: Any, key: str) -> None:
    with pytest.raises(TypeError, match=key):
        to_plain(value)


def test_of_hyper_parameters_all_that_is_plain_is_kept() -> None:
    tree = {"a": 1, "b": {"c": [0.5, "x"], "d": print, "e": {"f": object()}}, "g": [1, nn.Linear(1, 1)]}
    kept, dropped = serializable_part(tree)
    assert kept == {"a": 1, "b": {"c": [0.5, "x"], "e": {}}}
    assert set(dropped) == {"b.d", "b.e.f", "g"}
    assert read_back(kept) == kept


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


def test_what_shares_memory_shares_it_still() -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    parts = {
        "w": weight,
        "tied": weight,
        "transposed": weight.T,
        "row": weight[1],
        "one": weight[:, :1].expand(3, 9),
    }
    copies = to_plain(parts, take=Snapshot().copy)
    assert all(torch.equal(copies[name], part) for name, part in parts.items())
    assert all(copies[name].stride() == part.stride() for name, part in parts.items())
    copies["w"][1, 0] = 100
    assert copies["row"][0] == copies["transposed"][0, 1] == copies["one"][1, 5] == 100
    assert weight[1, 0] == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
        lambda: torch.tensor([1 + 2j]).conj().imag,
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8),
        lambda: torch.nn.Parameter(torch.ones(3)) * 2,
    ],
    ids=["sparse", "conjugated", "negated", "quantized", "with a gradient"],
)
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")  # PyTorch is about to drop these
def test_tensors_of_other_kinds(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    copy = Snapshot().copy(tensor)
    assert not copy.requires_grad
    assert str(copy.resolve_conj()) == str(tensor.detach().resolve_conj())
