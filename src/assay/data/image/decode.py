"""Encoded images: decoded, judged, measured."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.image.image_cache import read_bytes
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor


Size = tuple[int, int] | None
ImageSize = Size | Literal["auto"]
Decoding = tuple[str, Size, int | None]
"""Mode, size and largest value, as `decode` takes them."""
MaxValue = int | Literal["auto"] | None
MODES = {"RGB": ("RGB", 3), "GRAY": ("L", 1)}
"""Pillow's name and the number of channels of each mode that images are converted to."""
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "PPM", "TIFF", "WEBP")
"""Told by the content, whatever a file is called; Pillow starts other programs for some of the rest."""
_ORIENTATION = 0x0112
_MOST_VALUES = 65_535
"""The largest value of 16 bits."""
_WIDE_COLORS = re.compile(r"((?:RGB[AX]?|LA);16)([BLN])")
"""Pillow's name of the bytes in a file, and their order."""
_REDUCING_GAP = 2
"""How many times the size that it is scaled to an image keeps when it is decoded at a reduced size."""
_SIDEWAYS = 5
"""The first of the EXIF orientations that exchange height and width."""


def read_image(
    path: str, mode: str = "RGB", size: Size = None, max_value: int | None = None
) -> Tensor:
    """Decode an image file."""
    return read_as("an image", path, lambda content: decode(content, mode, size, max_value))


def read_as(kind: str, path: str, decode: Callable[[bytes], Tensor]) -> Tensor:
    """Decode a file, whose path a refusal names."""
    try:
        return decode(read_bytes(path))
    except ValueError as error:
        message = f"{path} cannot be read as {kind}: {error}"
        raise DataError(message, hint="repair or remove this file (data.source.root)") from error


def decode(content: bytes, mode: str, size: Size, max_value: int | None) -> Tensor:
    """Decode an image."""
    return decode_with_size(content, mode, size, max_value)[0]


def decode_with_size(
    content: bytes, mode: str, size: Size, max_value: int | None
) -> tuple[Tensor, tuple[int, int]]:
    """Decode an image; also return its own height and width."""
    with _open_image(io.BytesIO(content)) as image:
        own_size = None
        if size is not None and image.format in ("JPEG", "MPO"):
            own_size = upright_size(image)
            # One of several times that size is decoded at a half, a quarter or an eighth of its own.
            side = _REDUCING_GAP * max(size)
            image.draft(None, (side, side))
        decoded = as_tensor(image, mode, None, max_value)
    return _resize(decoded, size), own_size or (decoded.shape[1], decoded.shape[2])


def as_tensor(image: Image.Image, mode: str, size: Size, max_value: int | None) -> Tensor:
    """An image of Pillow's as a tensor, as `read_image` makes it."""
    name, _ = MODES[mode]
    plain = turn_upright(_to_convertible(image, max_value))
    # torchvision's pil_to_tensor takes twice as long, as much as decoding a small image does.
    pixels = np.atleast_3d(np.array(plain if plain.mode == name else plain.convert(name)))
    return _resize(torch.from_numpy(pixels).permute(2, 0, 1), size)


def _resize(image: Tensor, size: Size) -> Tensor:
    if size is None:
        return image
    resized: Tensor = F.resize(image, list(size), antialias=True)
    return resized


def verify(content: bytes) -> tuple[int, int]:
    """Check that an image is intact, decoding as little as possible."""
    with _open_image(io.BytesIO(content)) as image:
        size = upright_size(image)
        image.draft(None, (1, 1))
        image.load()
        _wide_values(image)
    return size


def size_of(path: str) -> tuple[int, int] | None:
    """Height and width of the upright image, from its header; None where it cannot be read."""
    header = read_header(path)
    return header and header[0]


def read_header(path: str) -> tuple[tuple[int, int], bool] | None:
    """As `size_of`, and whether frames or pages follow the one that is read."""
    if Path(path).is_file():
        # what is wrong is found when all is read
        with suppress(ValueError), _open_image(path) as image:
            return upright_size(image), _has_more(image)
    return None


def _has_more(image: Image.Image) -> bool:
    with suppress(Exception):  # of a later page, which nobody reads
        # A photo of a phone may have a preview or a depth map behind it.
        return image.format != "MPO" and getattr(image, "n_frames", 1) > 1
    return False


def largest_value(content: bytes | str) -> int:
    """The largest value of an image of 16 bits; 0 of others, and of those that cannot be read."""
    source = io.BytesIO(content) if isinstance(content, bytes) else content
    with suppress(ValueError), _open_image(source) as image:
        if (values := _wide_values(image)) is not None:
            return int(values.max())
    return 0


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Height and width of an image once it is turned as its EXIF orientation says."""
    # Pillow turns a TIFF itself when it loads it, and gives its size as if it had.
    sideways = image.format != "TIFF" and image.getexif().get(_ORIENTATION, 1) >= _SIDEWAYS
    if sideways:
        return (image.width, image.height)
    return (image.height, image.width)


def turn_upright(image: Image.Image) -> Image.Image:
    """An image turned as its EXIF orientation says."""
    image.load()
    if image.getexif().get(_ORIENTATION, 1) != 1:
        return ImageOps.exif_transpose(image)
    return image


def _to_convertible(image: Image.Image, max_value: int | None) -> Image.Image:
    """What Pillow would convert wrongly or with a warning: 16 bits, palettes with transparency."""
    values = _wide_values(image)
    if values is not None:
        scaled = values.astype(np.uint32) * 255 // (max_value or _MOST_VALUES)
        plain = Image.fromarray(scaled.clip(max=255).astype(np.uint8))
        plain.info["exif"] = image.getexif().tobytes()
        return plain
    if image.mode in ("P", "PA"):
        return image.convert("RGBA")
    return image


def _wide_values(image: Image.Image) -> NDArray[np.integer] | None:
    """The values of an image of 16 bits, without its alpha; None of 8."""
    lower = _lower_bytes(image)
    if lower is not None:
        return (np.asarray(image).astype(np.uint16) << 8 | lower)[..., :3]
    if image.mode == "F":
        raise ValueError("its values are real numbers (Pillow's mode F); expected 8 or 16 bits")
    if not image.mode.startswith("I"):
        return None
    values = np.asarray(image)
    if values.min() < 0 or values.max() > _MOST_VALUES:
        raise ValueError(
            f"its values go from {values.min()} to {values.max()}; expected 8 or 16 bits"
        )
    return values


def _lower_bytes(image: Any) -> NDArray[np.uint16] | None:
    """Of colors with 16 bits a channel, of which Pillow gives one byte: the upper one, or the second one."""
    tiles = getattr(image, "tile", ())
    order = _WIDE_COLORS.search(str(tiles))
    if order is None:
        return None
    position = image.fp.tell()
    image.fp.seek(0)
    copy: Any = Image.open(io.BytesIO(image.fp.read()), formats=_FORMATS)
    image.fp.seek(position)
    # Pillow's mode is RGBA; so read, both bytes of both channels are its four
    is_gray = order[1] == "LA;16"
    other = "RGBA"
    if not is_gray:
        other = order[1] + ("L" if order[2] == "B" else "B")
    copy.tile = [
        tile._replace(args=other if isinstance(tile.args, str) else (other, *tile.args[1:]))
        for tile in tiles
    ]
    lower = np.asarray(copy).astype(np.uint16)
    if is_gray:
        return lower[..., 1:2]
    return lower


@contextmanager
def _open_image(source: str | io.BytesIO) -> Iterator[Image.Image]:
    try:
        with Image.open(source, formats=_FORMATS) as image:
            yield image
    except UnidentifiedImageError as error:
        raise ValueError("it is not an image") from error
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
