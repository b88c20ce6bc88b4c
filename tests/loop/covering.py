"""Combinations of settings in which each pair of settings is tried somewhere."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Row = dict[str, str]


def cover(
    axes: Mapping[str, Sequence[str]],
    strength: int,
    possible: Callable[[Row], bool],
    seed: int = 0,
    among: str | None = None,
) -> list[Row]:
    """Rows with a value of each axis that together have each combination of so many values.

    A greedy search, as AETG does it (Cohen et al. 1997).

    Args:
        axes: The values of each axis; the first one is taken where the others are not possible.
        strength: How many axes are combined: 1 for each value, 2 for each pair.
        possible: Whether some values, of some axes, can go together.
        seed: Of the choice among equals.
        among: Only combinations with a value of this axis need be there.
    """
    draw = random.Random(seed)
    open_ = {
        combination: None
        for names in itertools.combinations(axes, strength)
        if among is None or among in names
        for values in itertools.product(*(axes[name] for name in names))
        if possible(dict(combination := tuple(zip(names, values, strict=True))))
    }
    rows: list[Row] = []
    while open_:
        row: Row = dict(next(iter(open_)))
        others = [name for name in axes if name not in row]
        draw.shuffle(others)
        for name in others:
            choices = [value for value in axes[name] if possible({**row, name: value})]
            if not choices:
                raise ValueError(f"nothing of {name} goes with {row}")
            draw.shuffle(choices)
            ways = [
                [one for one in axes if one in {*some, name}]  # in the order of the axes, as in `open_`
                for some in itertools.combinations(row, strength - 1)
            ]
            filled = [{**row, name: value} for value in choices]
            row = max(filled, key=lambda one: sum(tuple((k, one[k]) for k in way) in open_ for way in ways))
        done = [one for one in open_ if all(row.get(name) == value for name, value in one)]
        for one in done:
            del open_[one]
        rows.append({name: row[name] for name in axes})
    return rows
