"""What `torch.save` writes is taken, and nothing that differs from it in layout."""

import io
import random
import zipfile
from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch

from assay.checkpoint.archive import ArchiveError, check_archive
from assay.checkpoint.container import plain

VALUES: dict[str, Any] = {
    "containers": {"a": [1, 2.5, (True, None)], "b": {1, 2}, "c": OrderedDict(x="y"), "d": Counter("aab")},
    "numbers": [2**1999, -(2**70), 1 + 2j, b"", b"ab", bytearray(b"cd"), float("inf")],
    "of PyTorch": [torch.Size([2]), torch.device("cpu"), torch.bfloat16, torch.float8_e4m3fn, torch.uint16],
    "many": {str(index): torch.zeros(1) for index in range(700)},
    "text that looks like a name": ["class\nfoo\n", "cos\nsystem\n"],
    "odd": [torch.eye(2).to_sparse(), torch.empty(2, device="meta"), torch.zeros(0)],
    "layout": torch.zeros(2, 3).T,
}
DTYPES = [dtype for name in dir(torch) if isinstance(dtype := getattr(torch, name), torch.dtype)]


def saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(plain(value), buffer)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Validating sparse tensor:UserWarning")
@pytest.mark.parametrize("key", VALUES)
def test_what_pytorch_writes_of_what_is_plain(key: str) -> None:
    file = io.BytesIO(saved({"value": VALUES[key]}))
    check_archive(file)
    assert file.tell() == 0
    torch.load(file, weights_only=True)


@pytest.mark.filterwarnings("ignore:.*experimental:UserWarning", "ignore:.*quantize:UserWarning")
@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("dtype", sorted(set(DTYPES), key=str), ids=str)
def test_tensors_of_every_type(dtype: torch.dtype, size: int) -> None:
    try:
        content = saved([torch.zeros(size, dtype=dtype)])
        torch.load(io.BytesIO(content), weights_only=True)
    except (RuntimeError, KeyError, NotImplementedError, TypeError) as error:
        cannot = error  # PyTorch itself
    else:
        check_archive(io.BytesIO(content))
        return
    assert "int" in str(dtype) or "bits" in str(dtype), cannot


def test_what_python_writes_without_wide_sizes() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a/data.pkl", b"\x80\x02].")
    check_archive(buffer)


def test_changes_to_the_layout_are_refused_or_leave_the_layout_as_it_is() -> None:
    content, chance = saved({"w": torch.zeros(50)}), random.Random(4)
    refused = 0
    for _ in range(3000):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        try:
            check_archive(io.BytesIO(changed))
        except ArchiveError:
            refused += 1
    assert refused > 300
    for length in range(len(content)):
        with pytest.raises(ArchiveError):
            check_archive(io.BytesIO(content[:length]))
