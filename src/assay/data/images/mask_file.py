"""One file of a mask: the value of each pixel, as it is stored."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from assay.data.images.image_file import read_bytes
from assay.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_FORMATS = ("PNG", "BMP", "DIB", "PPM", "TIFF", "GIF")
"""Those that keep values as they are: a JPEG would make others of them."""


def read_mask(path: str, size: tuple[int, int] | None = None) -> Tensor:
    """The values of a mask's pixels.

    Args:
        path: A PNG, BMP, PPM, TIFF or GIF file of grey values, of a palette, or of black and white.
        size: Height and width to scale to, by the nearest pixel; None leaves it as it is.

    Returns:
        uint8 `[H, W]`.

    Raises:
        DataError: The file is not a mask, or is damaged.
    """
    try:
        return decode_mask(read_bytes(path), size)
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read as a mask: {error}",
            hint="repair or remove this file (data.source.root)",
        ) from error


def decode_mask(content: bytes, size: tuple[int, int] | None = None) -> Tensor:
    """The values of a mask's pixels.

    Args:
        content: Of a file.
        size: As for `read_mask`.

    Raises:
        ValueError: It is not a mask, or is damaged; the message says why.
    """
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as opened:
            opened.load()
            values = _values(opened)
    except ValueError:
        raise
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(
            "it is a JPEG, which changes the values"
            if content.startswith(b"\xff\xd8")
            else f"it is not a PNG file: {error}"
        ) from error
    if size is not None and values.shape != tuple(size):
        scaled = Image.fromarray(values, "L").resize((size[1], size[0]), Image.Resampling.NEAREST)
        values = np.asarray(scaled)
    return torch.from_numpy(np.array(values))


def _values(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode == "1":
        return np.asarray(image).astype(np.uint8)
    if image.mode in ("L", "P"):  # of a palette the indices, not the colours
        return np.asarray(image)
    if image.mode in ("LA", "PA"):
        return np.asarray(image)[:, :, 0]
    if image.mode in ("RGB", "RGBA"):
        channels = np.asarray(image)[:, :, :3]
        if (channels == channels[:, :, :1]).all():
            return channels[:, :, 0]
        raise ValueError("it has colours; a class per pixel, as grey values or a palette, was expected")
    if image.mode.startswith("I"):
        whole = np.asarray(image)
        if whole.min() >= 0 and whole.max() <= 255:
            return whole.astype(np.uint8)
        raise ValueError(f"it has values up to {whole.max()}; 0 to 255 were expected")
    raise ValueError(
        f"Pillow's mode {image.mode} is not that of a mask; grey values or a palette were expected"
    )
