"""A figure as values, which the pages and pictures of a run draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


Array: TypeAlias = NDArray[Any]
Numbers: TypeAlias = Sequence[float] | Array
"""One number per point; NaN is a gap."""
Names: TypeAlias = Sequence[str]


@final
@dataclass(frozen=True, eq=False)
class Line:
    """A line through points, in their order.

    Attributes:
        name: For the legend.
        x: Of each point.
        y: Of each point.
        low: Lower edge of a band around it.
        high: Upper edge of the band.
        is_reference: What others are compared with, such as the diagonal of a ROC curve.
        is_step: Constant from each point to the next.
    """

    name: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    is_reference: bool = False
    is_step: bool = False


@final
@dataclass(frozen=True, eq=False)
class Points:
    """A scatter.

    Attributes:
        name: For the legend.
        x: Of each point.
        y: Of each point.
        texts: What is said of each when the pointer is over it.
    """

    name: str
    x: Numbers
    y: Numbers
    texts: Names = ()


@final
@dataclass(frozen=True, eq=False)
class Bars:
    """One bar per label; several `Bars` of the same labels stand side by side.

    Attributes:
        name: For the legend.
        labels: Of each bar.
        values: Their lengths.
        low: Lower ends of the error bars, in the unit of `values`.
        high: Upper ends.
        texts: What is said of each when the pointer is over it.
    """

    name: str
    labels: Names
    values: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    texts: Names = ()


@final
@dataclass(frozen=True, eq=False)
class Heatmap:
    """A matrix of numbers.

    Attributes:
        values: `[R, C]`; NaN is an empty cell.
        x_names: Of the columns.
        y_names: Of the rows, from top to bottom.
        shows_values: Whether each cell says its number.
        is_share: Whether these are shares of a whole, which are written in per cent.
    """

    values: Array
    x_names: Names
    y_names: Names
    shows_values: bool = True
    is_share: bool = False


Mark: TypeAlias = Line | Points | Bars | Heatmap


@final
@dataclass(frozen=True, eq=False)
class Figure:
    """One figure.

    Names and texts are shown as they are, never as markup.

    Attributes:
        name: Of its files: lower case, digits and underscores.
        title: Above it.
        marks: What is drawn, the first one at the back. Heatmaps stand alone.
        x_label: Of the horizontal axis, with the unit.
        y_label: Of the vertical axis.
        log: The axes that are logarithmic, such as `x`.
        shares: The axes of shares of a whole, which are written in per cent, such as `y`.
        x_range: What the horizontal axis shows at first; None: all.
        y_range: The same of the vertical one.
        is_wide: Whether a page gives it the whole width.
        caption: What it shows, how it was computed, and what was left out.
    """

    name: str
    title: str
    marks: tuple[Mark, ...]
    x_label: str = ""
    y_label: str = ""
    log: str = ""
    shares: str = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    is_wide: bool = False
    caption: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        # Files are called by it.
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ValueError(
                f"figure {self.name!r}: expected lower case letters, digits and underscores"
            )


def to_frame(figure: Figure) -> pd.DataFrame:
    """The numbers behind a figure: a matrix as it is, else a row for each point or bar of each series."""
    import pandas as pd

    tables = []
    for mark in figure.marks:
        if isinstance(mark, Heatmap):
            return pd.DataFrame(
                mark.values, index=list(mark.y_names), columns=list(mark.x_names)
            ).reset_index()
        fields = vars(mark).items()
        tables.append(
            pd.DataFrame({name: data for name, data in fields if np.ndim(data) and len(data)})
        )
        tables[-1].insert(0, "series", mark.name)
    if tables:
        return pd.concat(tables, ignore_index=True)
    return pd.DataFrame()
