"""Which value of a mask is which class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import torch

from assay.errors import DataError
from assay.task.segmentation import IGNORED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

NUM_VALUES: Final = 256


@final
class ClassValues:
    """The values that stand for classes, given or found.

    Args:
        class_names: A name for each class; None: their numbers.
        values: The value of each class; None: their numbers, or 0 and 255 where there are no other ones.
        ignore_value: Of pixels that are left out; None for none.

    Attributes:
        in_words: The values of classes, once they are known.

    Raises:
        ValueError: Names or values are not what they have to be.
    """

    def __init__(
        self, class_names: Sequence[str] | None, values: Sequence[int] | None, ignore_value: int | None
    ) -> None:
        if class_names is not None and not 2 <= len(set(class_names)) == len(class_names) <= IGNORED:
            raise ValueError(
                f"class_names={list(class_names)}: two to {IGNORED} different names were expected"
            )
        for value in (*(values or ()), *([] if ignore_value is None else [ignore_value])):
            if type(value) is not int or not 0 <= value < NUM_VALUES:
                raise ValueError(
                    f"values and ignore_value: whole numbers from 0 to 255 were expected, not {value!r}"
                )
        if values is not None and not 2 <= len(set(values)) == len(values):
            raise ValueError(f"values={list(values)}: two or more different numbers were expected")
        if class_names is not None and values is not None and len(class_names) != len(values):
            raise ValueError(f"there are {len(class_names)} class_names for {len(values)} values")
        self._names = None if class_names is None else tuple(map(str, class_names))
        self._values = None if values is None else tuple(values)
        self._ignored = ignore_value
        self.in_words = ""

    def found(self, counts: NDArray[np.int32]) -> tuple[tuple[str, ...], Tensor, str]:
        """Names of the classes, the class of each value, and what was decided.

        Args:
            counts: Pixels of each value in each mask, `[N, 256]`.

        Returns:
            C names; int64 `[256]`, where `IGNORED` is left out and -1 unknown; a sentence or nothing.

        Raises:
            DataError: What is there cannot be told to be classes.
        """
        there = np.flatnonzero(counts.any(0)).tolist()
        values, note = self._values, ""
        if values is None and there == [0, 255] and (self._names is None or len(self._names) == 2):
            values = (0, 255)
            note = "the masks have the values 0 and 255 alone: these are the two classes"
        if values is None:
            known = [value for value in there if value != self._ignored]
            if self._names is None and known != list(range(len(known))):
                raise DataError(
                    f"data.source.values: the masks have the values {_listed(known)}, which do not number "
                    "classes from 0",
                    hint=f"data.source.values=[{','.join(map(str, known[:20]))}], or data.source.class_names="
                    "[…] with a name for each, those without a pixel included",
                )
            values = tuple(range(len(self._names) if self._names is not None else len(known)))
        names = self._names or tuple(map(str, range(len(values))))
        table = torch.full((NUM_VALUES,), -1, dtype=torch.int64)
        if self._ignored is not None:
            table[self._ignored] = IGNORED
        table[list(values)] = torch.arange(len(values))
        self.in_words = _listed(list(values))
        return names, table, note


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:20])) + (", …" if len(values) > 20 else "")
