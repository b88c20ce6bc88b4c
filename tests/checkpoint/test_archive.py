"""What `torch.save` writes is taken, and nothing that differs from it in layout."""

import io
import random
import struct
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.checkpoint.archive import ArchiveError, check_archive, check_weights
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


def records(content: bytes) -> dict[str, bytes]:
    """As PyTorch's own reader reads them."""
    reader = torch._C.PyTorchFileReader(io.BytesIO(content))
    return {name: reader.get_record(name) for name in reader.get_all_records()}


def pythons(content: bytes) -> dict[str, bytes]:
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        for info in file.infolist():
            del info.CRC  # PyTorch looks at none
            found[info.filename.partition("/")[2]] = file.read(info)
    return found


@pytest.mark.parametrize("content", [saved({"w": torch.zeros(50)}), b""], ids=["PyTorch's", "Python's"])
def test_what_is_taken_is_one_archive_to_every_reader(content: bytes) -> None:
    if not content:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            for name, data in records(saved({"w": torch.zeros(50)})).items():
                file.writestr(f"archive/{name}", data)
        content = buffer.getvalue()
    chance, refused, taken = random.Random(4), 0, 0
    for _ in range(6000):
        changed = bytearray(content)
        begin = chance.choice([0, content.index(b"PK\1\2"), len(content) - 98])
        for _ in range(chance.choice([1, 1, 2])):
            place, new = chance.randrange(begin, len(content)), chance.randrange(256)
            changed[place : place + 1] = [new, 0xFF, 0xFF, 0xFF][: chance.choice([1, 1, 1, 2, 4])]
        changed = changed[: len(content)]
        try:
            check_archive(io.BytesIO(changed))
        except ArchiveError:
            refused += 1
            continue
        try:
            theirs = records(bytes(changed))
        except (RuntimeError, UnicodeDecodeError):
            continue
        assert theirs == pythons(bytes(changed))
        taken += 1
    assert min(refused, taken) > 600
    for length in range(len(content)):
        with pytest.raises(ArchiveError):
            check_archive(io.BytesIO(content[:length]))


def test_a_text_of_a_petabyte_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"\x80\x04\x8d" + struct.pack("<Q", 1 << 50) + b"text")
    with path.open("rb") as file, pytest.raises(ArchiveError, match="is not a file that"):
        check_weights(file)
