from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images  # type: ignore[import-untyped]  # it ships no types

from assay.data.core.samples import Samples
from assay.data.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assay.data.core.types import Floats, Rows


_COVERS = 0.4
"""Share of ink from which on a pixel is the digit's."""
_COLUMNS = {"train": (0.0, 0.6), "val": (0.6, 0.8), "test": (0.8, 1.0)}
"""Of photographs and digits, so that nothing of one subset is seen in another."""


@final
class DigitsSegmentation(Source):
    """scikit-learn's digits, scaled up, on darkened crops of its photographs `china.jpg` and `flower.jpg`.

    Each image has one or two digits in a light colour of their own, which may cover each other. Class 0 is
    the photograph, and each digit is a class. The subsets share neither digits nor places of photographs.

    Args:
        num_samples: Of training, validation and test.
        digits: Those that are used, in the order of their classes.
        size: Height and width of an image.
        seed: Of what is put where.

    Raises:
        ValueError: A number is too small.
    """

    task: str = "segmentation"

    def __init__(
        self,
        num_samples: Sequence[int] = (1000, 150, 250),
        digits: Sequence[int] = (0, 1, 4),
        *,
        size: int = 32,
        seed: int = 0,
    ) -> None:
        if min(num_samples) < 1 or not 24 <= size <= 80:
            raise ValueError(
                f"num_samples={num_samples}, size={size}: expected > 0, and 24 to 80"
            )
        self._num_samples = dict(zip(_COLUMNS, num_samples, strict=True))
        self._digits = tuple(digits)
        self._size = size
        self._seed = seed
        self.class_names = ("background", *map(str, digits))

    def read(self) -> Mapping[str, Samples]:
        """Subsets `train`, `val` and `test`: inputs uint8 `[N, 3, H, W]`, targets uint8 `[N, H, W]`."""
        digits, labels = load_digits(return_X_y=True)
        used = np.isin(labels, self._digits)
        images = digits[used].reshape(-1, 8, 8) / 16
        labels = labels[used]
        classes = np.array([self._digits.index(label) + 1 for label in labels])
        photographs = [np.asarray(photograph) for photograph in load_sample_images().images]
        subsets = {}
        for number, (subset, (begin, end)) in enumerate(_COLUMNS.items()):
            draw = np.random.default_rng([self._seed, number])
            chosen = slice(int(begin * len(images)), int(end * len(images)))
            cut = [
                one[:, int(begin * one.shape[1]) : int(end * one.shape[1])] for one in photographs
            ]
            scenes = [
                self._scene(draw, images[chosen], classes[chosen], cut)
                for _ in range(self._num_samples[subset])
            ]
            inputs = torch.from_numpy(np.stack([image for image, _ in scenes])).permute(
                0, 3, 1, 2
            )
            masks = torch.from_numpy(np.stack([mask for _, mask in scenes]))
            subsets[subset] = Samples(inputs.contiguous(), masks)
        return subsets

    def _scene(
        self,
        draw: np.random.Generator,
        digits: Floats,
        classes: Rows,
        photographs: Sequence[NDArray[np.uint8]],
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        size = self._size
        photograph = photographs[int(draw.integers(len(photographs)))]
        top, left = (int(draw.integers(length - size + 1)) for length in photograph.shape[:2])
        image = 0.6 * photograph[top : top + size, left : left + size]
        mask = np.zeros((size, size), np.uint8)
        for _ in range(draw.integers(1, 3)):
            which = int(draw.integers(len(digits)))
            side = int(draw.integers(14, 21))
            small = Image.fromarray((255 * digits[which]).astype(np.uint8), "L")
            ink = np.asarray(small.resize((side, side), Image.Resampling.BICUBIC)) / 255
            row, column = draw.integers(0, size - side + 1, 2)
            area = slice(row, row + side), slice(column, column + side)
            colour = draw.uniform(170, 255, 3)
            image[area] = (1 - ink[..., None]) * image[area] + ink[..., None] * colour
            mask[area] = np.where(ink > _COVERS, classes[which], mask[area])
        return image.round().astype(np.uint8), mask
