from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.core.samples import Samples
from assay.data.core.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class Digits(Source):
    """1,797 images of handwritten digits, 8×8 pixels of 17 grey levels, 10 classes.

    The test set of the UCI "Optical Recognition of Handwritten Digits" data, as scikit-learn bundles it.
    """

    task: str = "multiclass"
    class_names = tuple(str(digit) for digit in range(10))

    def read(self) -> Mapping[str, Samples]:
        """All samples: inputs float32 `[1797, 1, 8, 8]` in 0…16, targets int64 `[1797]`."""
        images, targets = load_digits(return_X_y=True)
        inputs = torch.from_numpy(images).to(torch.float32).view(-1, 1, 8, 8)
        return {"all": Samples(inputs, torch.from_numpy(targets).to(torch.int64))}
