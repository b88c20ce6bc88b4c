"""What configurations differ in, as columns of numbers or of words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from assay.figure.figure import is_logarithmic
from assay.quoting import reads_as_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.report.sweep.groups import Group

MISSING: Final = "–"
_IN_DECADES: Final = ("lr", "learning_rate", "weight_decay", "eps")
"""Ends of keys whose values are compared by their ratios, however few they are."""


@final
@dataclass(frozen=True)
class Column:
    """One key in which configurations differ.

    Attributes:
        key: Such as `optimizer.lr`.
        values: A number each, or a text each; `–` for one that has no such key.
        is_log: Whether its axis is logarithmic.
    """

    key: str
    values: tuple[float | str, ...]
    is_log: bool = False

    @property
    def is_number(self) -> bool:
        """Whether every value is one."""
        return all(isinstance(value, float) for value in self.values)


def columns_of(groups: Sequence[Group], scales: Mapping[str, bool]) -> list[Column]:
    """The keys in which some configurations differ, in the order in which they appear.

    Args:
        groups: Configurations.
        scales: Whether a key's axis is logarithmic, where that is known.
    """
    keys = list(dict.fromkeys(key for group in groups for key in group.values))
    columns = [_column(key, [group.values.get(key) for group in groups], scales.get(key)) for key in keys]
    return [column for column in columns if len(set(column.values)) > 1]


def _column(key: str, texts: Sequence[str | None], scale: bool | None) -> Column:
    there = [text for text in texts if text is not None]
    finite = all(reads_as_number(text) and math.isfinite(float(text)) for text in there)
    if not there or not finite or len(there) < len(texts):
        return Column(key, tuple(MISSING if text is None else text for text in texts))
    values = tuple(float(text) for text in there)
    if scale is None:
        scale = key.endswith(_IN_DECADES) or is_logarithmic(values)
    return Column(key, values, min(values) > 0 and scale)
