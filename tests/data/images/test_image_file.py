"""Pictures as Pillow and torchvision read them, and what is no picture."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.images import (
    decode,
    has_several_frames,
    read_bytes,
    read_image,
    size_of,
    verify,
)
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 14, 3), dtype=np.uint8)
PICTURE = Image.fromarray(PIXELS)
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP")


def packed(picture: Image.Image = PICTURE, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
def test_as_pillow_reads_it(kind: str, tmp_path: Path) -> None:
    content = packed(kind=kind)
    path = tmp_path / "picture.txt"  # told by its content
    path.write_bytes(content)
    pillows = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    found = read_image(str(path))
    assert found.dtype == torch.uint8
    np.testing.assert_array_equal(found.permute(1, 2, 0).numpy(), pillows)
    assert verify(content) == size_of(str(path)) == (9, 14)
    assert not has_several_frames(content)


def test_gray_and_scaled() -> None:
    gray = decode(packed(), "GRAY", None)
    np.testing.assert_array_equal(gray[0].numpy(), np.asarray(PICTURE.convert("L")))
    scaled = decode(packed(), "RGB", (4, 5))
    assert torch.equal(scaled, F.resize(F.pil_to_tensor(PICTURE), [4, 5], antialias=True))


def test_16_bits_become_8() -> None:
    wide = np.array([[0, 256, 257], [32768, 65279, 65535]], dtype=np.uint16)
    found = decode(packed(Image.fromarray(wide)), "GRAY", None)
    np.testing.assert_array_equal(found[0].numpy(), wide // 257)


def test_what_is_not_a_picture(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    for name, says in (
        ("pipe", "it is not a regular file"),
        ("empty", "it is empty"),
        ("gone", "No such file"),
        ("", "it is not a regular file"),
    ):
        with pytest.raises(ValueError, match=says):
            read_bytes(str(tmp_path / name))
        assert size_of(str(tmp_path / name)) is None
    with pytest.raises(DataError, match="it is not an image"):
        read_image(str(tmp_path / "text"))
    assert size_of(str(tmp_path / "text")) is None
