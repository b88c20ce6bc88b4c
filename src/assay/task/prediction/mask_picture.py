"""Masks as pictures: colours of classes, files, and masks over the picture they belong to."""

from __future__ import annotations

import colorsys
import io
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ALPHA: Final = 0.6
_GAP: Final = 4
_SMALLEST: Final = 160
"""Pixels along the longer side, below which a picture is made larger, in whole steps."""


def palette() -> NDArray[np.uint8]:
    """Colours of the values of a mask, `[256, 3]`: the first class is dark, what is left out white."""
    golden = (5**0.5 - 1) / 2
    colours = [
        colorsys.hsv_to_rgb(label * golden % 1, 0.55 + 0.4 * (label % 2), 0.95 - 0.2 * (label // 2 % 2))
        for label in range(256)
    ]
    table: NDArray[np.uint8] = np.round(255 * np.array(colours)).astype(np.uint8)
    table[0], table[255] = (40, 40, 48), (255, 255, 255)
    return table


def mask_png(mask: NDArray[np.uint8]) -> bytes:
    """A PNG file whose pixels are the classes, and which shows them in colours.

    Args:
        mask: `[H, W]`.
    """
    image = Image.fromarray(np.ascontiguousarray(mask), "L")
    image.putpalette(palette().tobytes())
    return _png(image)


def swatch(label: int) -> bytes:
    """A small PNG file in the colour of a class.

    Args:
        label: Index of the class.
    """
    return _png(Image.new("RGB", (24, 24), tuple(palette()[label].tolist())))


def side_by_side(picture: bytes, target: NDArray[Any], predicted: NDArray[Any]) -> bytes:
    """A PNG file of a picture, of its mask over it, and of the predicted mask over it.

    Args:
        picture: A PNG file.
        target: True mask `[H, W]`, of any size; 255 is left out.
        predicted: As `target`.
    """
    with Image.open(io.BytesIO(picture), formats=("PNG",)) as opened:
        base = opened.convert("RGB")
    times = max(1, _SMALLEST // max(base.size))
    base = base.resize((base.width * times, base.height * times), Image.Resampling.NEAREST)
    strip = Image.new("RGB", (3 * base.width + 2 * _GAP, base.height), "white")
    panels = [base, *(_over(base, mask) for mask in (target, predicted))]
    for place, panel in enumerate(panels):
        strip.paste(panel, (place * (base.width + _GAP), 0))
    return _png(strip)


def _over(base: Image.Image, mask: NDArray[Any]) -> Image.Image:
    small = Image.fromarray(mask.astype(np.uint8), "L").resize(base.size, Image.Resampling.NEAREST)
    colours = Image.fromarray(palette()[np.asarray(small)], "RGB")
    return Image.blend(base, colours, _ALPHA)


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
