"""Somebody's own data set, whose samples are mappings."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset


class Patches(Dataset[dict[str, Tensor | int]]):
    """Bright on the left (0) or on the right (1)."""

    def __init__(self, num_samples: int, size: int) -> None:
        draw = np.random.default_rng(0)
        self.images = draw.standard_normal((num_samples, 1, size, size)).astype(np.float32)
        self.sides = draw.integers(0, 2, num_samples)
        for image, side in zip(self.images, self.sides, strict=True):
            image[..., side * size // 2 : (side + 1) * size // 2] += 2

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor | int]:
        return {"data": torch.from_numpy(self.images[index]), "label": int(self.sides[index])}
