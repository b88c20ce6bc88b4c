"""Predicted masks in the size of the picture they are of, and the same as pictures."""

from __future__ import annotations

import colorsys
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np
from PIL import Image
from typing_extensions import override

from assay.task.prediction.predictions import MOST_COLUMNS, Scored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """A PNG file whose pixels are the classes, and which shows them in colours."""
    image = Image.fromarray(np.ascontiguousarray(mask), "L")
    image.putpalette(palette().tobytes())
    return _png(image)


def swatch(label: int) -> bytes:
    """A small PNG file in the colour of a class."""
    return _png(Image.new("RGB", (24, 24), tuple(palette()[label].tolist())))


def side_by_side(picture: bytes, target: NDArray[Any], predicted: NDArray[Any]) -> bytes:
    """A PNG file of a picture, of its mask over it, and of the predicted mask over it."""
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


_MOST_SAID = 3


@final
@dataclass(frozen=True, eq=False)
class MaskPredictions(Scored):
    """The classes of the pixels of N pictures, or of one: `mask`, `shares`, `png`.

    Scores are in the size that the model works in.

    Attributes:
        sizes: Height and width of each picture as it was given; empty: as the model works in.
    """

    file_suffix: ClassVar[str] = ".png"
    sample_ndim: ClassVar[int] = 3

    sizes: Sequence[tuple[int, int]] = ()

    @property
    def masks(self) -> list[NDArray[np.uint8]]:
        """Class of each pixel, uint8 `[height, width]` of each picture."""
        return [one.mask for one in self]

    @property
    def mask(self) -> NDArray[np.uint8]:
        """Class of each pixel of one picture, in its size: the nearest that was predicted."""
        found: NDArray[np.uint8] = self.scores.argmax(0).astype(np.uint8)
        rows, columns = (
            np.minimum(((np.arange(wanted) + 0.5) * there / wanted).astype(int), there - 1)
            for wanted, there in zip(self.sizes[0] if self.sizes else found.shape, found.shape, strict=True)
        )
        return found[np.ix_(rows, columns)]

    @property
    def shares(self) -> dict[str, float]:
        """Share of the pixels of one picture that each class has."""
        counts = np.bincount(self.mask.reshape(-1), minlength=len(self.class_names))
        return dict(zip(self.class_names, (counts / counts.sum()).tolist(), strict=True))

    def png(self) -> bytes:
        """The mask of one picture as a PNG file: its pixels are the classes, shown in colours."""
        return mask_png(self.mask)

    @override
    def in_words(self) -> str:
        ordered = sorted(self.shares.items(), key=lambda share: -share[1])
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in ordered[:_MOST_SAID] if share)

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        shares = [one.shares for one in self]
        best = [max(found, key=lambda name: found[name]) for found in shares]
        names = self.class_names if len(self.class_names) <= MOST_COLUMNS else ()
        return {"prediction": best} | {f"share {name}": [found[name] for found in shares] for name in names}

    @override
    def resized(self, sizes: Sequence[tuple[int, int]]) -> MaskPredictions:
        return replace(self, sizes=sizes)

    @override
    def file_of(self, index: int) -> bytes:
        return bytes(self[index].png())

    @override
    def __getitem__(self, index: Any) -> Any:
        sizes = self.sizes[index if isinstance(index, slice) else slice(index, index + 1 or None)]
        return replace(super().__getitem__(index), sizes=sizes)
