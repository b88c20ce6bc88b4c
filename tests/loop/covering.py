"""Combinations of settings in which each pair of settings is tried somewhere."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Row = dict[str, str]
Combination = tuple[tuple[str, str], ...]
TRIES = 100
"""How often a row is begun anew whose values leave nothing for an axis."""


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

    Raises:
        ValueError: A combination is possible, and no row with it is found.
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
        first = dict(next(iter(open_)))
        row = next(
            (made for _ in range(TRIES) if (made := _filled(first, axes, possible, open_, draw))), None
        )
        if row is None:
            raise ValueError(f"nothing goes with {first}")
        for one in [one for one in open_ if all(row[name] == value for name, value in one)]:
            del open_[one]
        rows.append({name: row[name] for name in axes})
    return rows


def _filled(
    first: Row,
    axes: Mapping[str, Sequence[str]],
    possible: Callable[[Row], bool],
    open_: Collection[Combination],
    draw: random.Random,
) -> Row | None:
    """A row with these values; to each axis what leaves the fewest combinations open. None: a dead end."""
    row = dict(first)
    others = [name for name in axes if name not in row]
    draw.shuffle(others)
    for name in others:
        choices = [value for value in axes[name] if possible({**row, name: value})]
        draw.shuffle(choices)
        ways = [
            [one for one in axes if one in {*some, name}]  # in the order of the axes, as in `open_`
            for some in itertools.combinations(row, len(first) - 1)
        ]
        filled = [{**row, name: value} for value in choices]
        if not filled:
            return None
        row = max(filled, key=lambda one: sum(tuple((k, one[k]) for k in way) in open_ for way in ways))
    return row
