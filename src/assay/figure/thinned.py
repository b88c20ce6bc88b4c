"""A figure with fewer points, where nobody would see the difference on a screen."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Line, Points

if TYPE_CHECKING:
    from assay.figure.figure import Figure, Mark

_LINE: Final = 800
"""Points that a line keeps."""
_SCATTER: Final = 2000
"""Points that a scatter keeps."""


def thinned(figure: Figure) -> Figure:
    """Leave points out of long lines and large scatters.

    Of each stretch of a line its lowest and its highest point stay, so that no peak is lost; of a scatter,
    an even choice that is the same each time.

    Args:
        figure: With any number of points.

    Returns:
        The same figure where nothing was left out; else its caption says so.
    """
    marks, told = [], []
    for mark in figure.marks:
        chosen = _chosen(mark)
        marks.append(mark if chosen is None else _only(mark, chosen))
        if chosen is not None and isinstance(mark, Points):
            told.append(f"{len(chosen):,} of {len(mark.x):,} points are drawn, chosen at random.")
        elif chosen is not None:
            told.append("Long curves are drawn through the lowest and highest point of each stretch.")
    if not told:
        return figure
    return replace(
        figure, marks=tuple(marks), caption=" ".join((figure.caption, *dict.fromkeys(told))).strip()
    )


def _chosen(mark: Mark) -> Any:
    """Indices of the points that stay; None for all."""
    if isinstance(mark, Line) and len(mark.x) > _LINE:
        return _extremes(np.asarray(mark.y, dtype=float), _LINE)
    if isinstance(mark, Points) and len(mark.x) > _SCATTER:
        return np.sort(np.random.default_rng(0).choice(len(mark.x), _SCATTER, replace=False))
    return None


def _extremes(values: Any, most: int) -> Any:
    """First and last point, and the lowest and highest of each of so many stretches."""
    edges = np.linspace(0, len(values), most // 2 + 1).astype(int)
    chosen = {0, len(values) - 1}
    for begin, end in itertools.pairwise(edges):
        stretch = values[begin:end]
        if np.isfinite(stretch).any():
            chosen |= {begin + int(np.nanargmin(stretch)), begin + int(np.nanargmax(stretch))}
        else:  # a gap stays one
            chosen.add(int(begin))
    return np.asarray(sorted(chosen))


def _only(mark: Mark, chosen: Any) -> Mark:
    changed: dict[str, Any] = {}
    for name in ("x", "y", "low", "high", "texts"):
        values = getattr(mark, name, None)
        if values is not None and len(values):
            kept = [values[index] for index in chosen]
            changed[name] = tuple(kept) if name == "texts" else np.asarray(kept)
    return replace(mark, **changed)
