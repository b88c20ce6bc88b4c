"""One file of a picture: read, decoded, judged."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

ImageSize = tuple[int, int] | Literal["auto"] | None
MODES = {"RGB": ("RGB", 3), "GRAY": ("L", 1)}
"""Pillow's name and the number of channels of each mode that pictures are converted to."""
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "PPM", "TIFF", "WEBP")
"""Told by the content, whatever a file is called; Pillow starts other programs for some of the rest."""
_ORIENTATION = 0x0112
_MOST_LOOKED_AT, _LARGE, _LONGEST = 1000, 512, 224
"""Headers, and pixels: a side from which on pictures are scaled, and what it is scaled to."""
_SIDEWAYS = 5
"""The first of the EXIF orientations that exchange height and width."""


def check_reading(
    image_size: Sequence[int] | str | None, mode: str, in_memory: bool | str, on_bad: str
) -> tuple[int, int] | None:
    """Refuse what a folder of pictures cannot be read with.

    Args:
        image_size: Height and width to scale to; None for none; `auto`.
        mode: `RGB` or `GRAY`.
        in_memory: `auto`, True or False.
        on_bad: `auto`, `error` or `skip`.

    Returns:
        The size; None for none, and where it is to be found.

    Raises:
        ValueError: An argument is not one of its choices.
    """
    if on_bad not in ("auto", "error", "skip"):
        raise ValueError(f"on_bad={on_bad!r}: auto, error or skip was expected")
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}: RGB or GRAY was expected")
    if in_memory not in (True, False, "auto"):
        raise ValueError(f"in_memory={in_memory!r}: auto, true or false was expected")
    if image_size is None or image_size == "auto":
        return None
    if isinstance(image_size, str):
        raise ValueError(f"image_size={image_size!r}: auto, null or [height, width] was expected")
    if len(image_size) != 2 or min(image_size) < 1:
        raise ValueError(f"image_size={list(image_size)}: [height, width] was expected")
    return int(image_size[0]), int(image_size[1])


def choose_size(paths: Sequence[str]) -> tuple[tuple[int, int] | None, str]:
    """The size that pictures are scaled to where `auto` is asked for, and a sentence on it.

    Args:
        paths: Of the files; the headers of up to 1,000 are read.

    Returns:
        Nothing, where all have one size that is not too large; else the median of heights and widths, no
        longer than 224 pixels, in steps of 8.
    """
    found = [size for path in paths[:: -(-len(paths) // _MOST_LOOKED_AT) or 1] if (size := size_of(path))]
    sizes = set(found)
    if not sizes or (len(sizes) == 1 and max(found[0]) <= _LARGE):
        return None, ""
    middle = np.median(np.array(found), 0)
    scale = min(1.0, _LONGEST / middle.max())
    height, width = (max(8, int(scale * side / 8 + 0.5) * 8) for side in middle)
    ratios = [(one / other) / (height / width) for one, other in found]
    stretched = max(*ratios, *(1 / one for one in ratios))
    told = f"pictures of {len(sizes):,} sizes are" if len(sizes) > 1 else "pictures are"
    changed = f"; their proportions change by up to {100 * (stretched - 1):.0f} %" if stretched > 1.02 else ""
    return (height, width), (
        f"data.source.image_size=auto: {told} scaled to {height}×{width} (height × width){changed}"
    )


def too_many(bad: int, total: int, on_bad: str) -> bool:
    """Whether files that cannot be used end the reading: any under `error`, over a twentieth under `auto`."""
    return bad == total or (bad > 0 and on_bad == "error") or (on_bad == "auto" and 20 * bad > max(20, total))


def read_image(path: str, mode: str = "RGB", size: tuple[int, int] | None = None) -> Tensor:
    """Decode an image file.

    Turned as its EXIF orientation says. Of several frames or pages it is the first one. Transparency is left
    out; 16 bits become 8.

    Args:
        path: A JPEG, PNG, GIF, BMP, PPM, TIFF or WebP file, whatever it is called.
        mode: `RGB` or `GRAY`.
        size: Height and width to scale to (bilinear, antialiased); None leaves the image as it is.

    Returns:
        uint8 `[C, H, W]`.

    Raises:
        DataError: The file is not an image, or damaged.
    """
    try:
        return decode(read_bytes(path), mode, size)
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read as an image: {error}",
            hint="repair or remove this file (data.source.root)",
        ) from error


def read_bytes(path: str) -> bytes:
    """The contents of a regular file.

    Args:
        path: Of the file; a pipe would be waited for.

    Raises:
        ValueError: It cannot be read, is empty, or is not a file; the message says which.
    """
    try:
        # pathlib takes as long as reading a small picture does.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise ValueError("it is not a regular file")
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if not content:
        raise ValueError("it is empty")
    return content


def decode(content: bytes, mode: str, size: tuple[int, int] | None) -> Tensor:
    """Decode an image.

    Args:
        content: Of a file.
        mode: As for `read_image`.
        size: As for `read_image`.

    Raises:
        ValueError: It is not an image, or damaged; the message says why.
    """
    try:
        with _opened(io.BytesIO(content)) as opened:
            return as_tensor(opened, mode, size)
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(_reason(error)) from error


def as_tensor(image: Image.Image, mode: str, size: tuple[int, int] | None) -> Tensor:
    """A picture of Pillow's as a tensor, as `read_image` makes it.

    Args:
        image: Of any mode; stays as it is.
        mode: As for `read_image`.
        size: As for `read_image`.

    Raises:
        ValueError: Its values have 32 bits, or what Pillow raises where the file behind it is damaged.
    """
    name, _ = MODES[mode]
    plain = _plain(_upright(image))
    # torchvision's pil_to_tensor takes twice as long, as much as decoding a small picture does.
    pixels = torch.from_numpy(np.array(plain if plain.mode == name else plain.convert(name)))
    decoded = pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
    return decoded if size is None else F.resize(decoded, list(size), antialias=True)


def verify(content: bytes) -> tuple[int, int]:
    """Decode an image as cheaply as it can be found out whether it is whole.

    A JPEG is decoded to an eighth of its size: all of its data is read, and most of the work left out.

    Returns:
        Height and width of the upright image.

    Raises:
        ValueError: As for `decode`.
    """
    try:
        with _opened(io.BytesIO(content)) as opened:
            size = upright_size(opened)
            opened.draft(None, (1, 1))
            opened.load()
            _refuse_wide(opened)
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(_reason(error)) from error
    return size


def size_of(path: str) -> tuple[int, int] | None:
    """Height and width of the upright image, from its header; None where it cannot be read."""
    try:
        if not Path(path).is_file():
            return None
        with _opened(path) as image:
            return upright_size(image)
    except Exception:  # the decoders raise whatever comes to them; what is wrong is found when all is read
        return None


def has_several_frames(content: bytes) -> bool:
    """Whether an image is an animation, or has several pages.

    Args:
        content: Of a file that can be read.
    """
    with _opened(io.BytesIO(content)) as image:  # a camera's MPO is one picture, and smaller ones of it
        return image.format not in ("JPEG", "MPO") and getattr(image, "n_frames", 1) > 1


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Height and width of a picture once it is turned as its EXIF orientation says."""
    sideways = image.getexif().get(_ORIENTATION, 1) >= _SIDEWAYS
    return (image.width, image.height) if sideways else (image.height, image.width)


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION, 1) != 1 else image


def _plain(image: Image.Image) -> Image.Image:
    """What Pillow would convert wrongly or with a warning: 16 bits, palettes with transparency."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
    _refuse_wide(image)
    return image.convert("RGBA") if image.mode in ("P", "PA") else image


def _refuse_wide(image: Image.Image) -> None:
    if image.mode in ("I", "F"):  # Pillow would cut its values off at 255
        raise ValueError(f"its values have 32 bits (Pillow's mode {image.mode}); 8 or 16 were expected")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image"
    return " ".join(str(error).split()) or type(error).__name__


def _opened(source: str | io.BytesIO) -> Image.Image:
    return Image.open(source, formats=_FORMATS)
