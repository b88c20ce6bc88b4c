from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import AssayError
from assay.figure.figure import Bars, Heatmap, Line, ParallelCoordinates, Points, Spans, parallel_axis
from assay.figure.to_plotly import PALETTE, REFERENCE, STATUS, cell_text, is_marked
from assay.quoting import number_text
from assay.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from assay.figure.figure import Figure

_LONGEST = 24
_MOST_NAMES = 40


def to_matplotlib(figure: Figure) -> Drawing:
    """Draw a figure by matplotlib."""
    try:
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise AssayError(
            "figures as pictures need matplotlib", hint="pip install 'assay[plot]', or uv sync --extra plot"
        ) from error
    size = (6.0, 5.4) if any(isinstance(mark, Heatmap) for mark in figure.marks) else (7.2, 4.2)
    drawing = Drawing(figsize=size, dpi=144, layout="constrained")
    axes = drawing.add_subplot()
    axes.set_prop_cycle(color=PALETTE)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    legend = _marks(figure, axes)
    _label(figure, axes)
    _legend(axes, [(name, handle) for name, handle in legend if name])
    return drawing


def _marks(figure: Figure, axes: Axes) -> list[tuple[str, Any]]:
    """Draw them; what the legend says of them."""
    legend: list[tuple[str, Any]] = []
    bars = [mark for mark in figure.marks if isinstance(mark, Bars)]
    for mark in figure.marks:
        match mark:
            case Line():
                legend += _line(mark, axes)
            case Points():
                legend += _points(mark, axes)
            case Bars():
                legend.append((mark.name, _bars(mark, axes, bars.index(mark), len(bars))))
            case Heatmap():
                _heatmap(mark, axes)
            case ParallelCoordinates():
                _parallel(mark, axes)
            case Spans():
                legend += _spans(mark, axes)
    return legend


def _label(figure: Figure, axes: Axes) -> None:
    from matplotlib.ticker import FixedFormatter

    axes.set_title(printable(figure.title), loc="left", fontsize=11, parse_math=False)
    axes.set_xlabel(printable(figure.x_label), parse_math=False)
    axes.set_ylabel(printable(figure.y_label), parse_math=False)
    if "x" in figure.log:
        axes.set_xscale("log")
    if "y" in figure.log:
        axes.set_yscale("log")
    for which, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if not isinstance(axis.get_major_formatter(), FixedFormatter):
            axis.set_major_formatter(_percent if which in figure.shares else _number)
    if figure.x_range is not None:
        axes.set_xlim(figure.x_range)
    if figure.y_range is not None:
        axes.set_ylim(figure.y_range)


def _percent(value: float, _: object) -> str:
    return f"{100 * value:.4g} %"


def _number(value: float, _: object) -> str:
    return number_text(value, 6)


def _legend(axes: Axes, entries: list[tuple[str, Any]]) -> None:
    if not 1 < len(entries) <= 16:
        return
    # Named afterwards: a label that begins with an underscore would be left out.
    legend = axes.legend([handle for _, handle in entries], ["."] * len(entries), fontsize=8, frameon=False)
    for text, (name, _) in zip(legend.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(_cut(name))


def _line(mark: Line, axes: Axes) -> list[tuple[str, Any]]:
    style: dict[str, Any] = {"drawstyle": "steps-post"} if mark.is_step else {}
    if mark.is_reference:
        style |= {"color": REFERENCE, "linestyle": "--", "linewidth": 1}
    if is_marked(mark):
        style |= {"marker": "o", "markersize": 3.5}
    (line,) = axes.plot(np.asarray(mark.x), np.asarray(mark.y), **style)
    if mark.low is not None and mark.high is not None:
        edges = np.asarray(mark.low, dtype=float), np.asarray(mark.high, dtype=float)
        step: Any = {"step": "post"} if mark.is_step else {}
        axes.fill_between(np.asarray(mark.x), *edges, alpha=0.18, color=line.get_color(), linewidth=0, **step)
    return [(mark.name, line)]


def _points(mark: Points, axes: Axes) -> list[tuple[str, Any]]:
    points = axes.scatter(np.asarray(mark.x), np.asarray(mark.y), s=12, alpha=0.7, linewidths=0)
    return [(mark.name, points)]


def _bars(mark: Bars, axes: Axes, index: int, count: int) -> Any:
    width = 0.8 / count
    values = np.asarray(mark.values, dtype=float)
    errors = None
    if mark.low is not None and mark.high is not None:
        errors = np.stack([values - np.asarray(mark.low), np.asarray(mark.high) - values])
    at = np.arange(len(values)) + (index - (count - 1) / 2) * width
    drawn = axes.bar(at, values, width, yerr=errors, error_kw={"ecolor": REFERENCE, "elinewidth": 1})
    _names(axes, "x", mark.labels)
    return drawn


def _heatmap(mark: Heatmap, axes: Axes) -> None:
    values = np.asarray(mark.values, dtype=float)
    axes.grid(visible=False)
    axes.imshow(values, cmap="Blues", aspect="auto")
    _names(axes, "x", mark.x_names)
    _names(axes, "y", mark.y_names)
    if mark.shows_values and values.size <= 400:
        middle = (np.nanmin(values) + np.nanmax(values)) / 2 if np.isfinite(values).any() else 0.0
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if value > middle else "black"
                axes.text(
                    column, row, cell_text(mark, value), ha="center", va="center", fontsize=7, color=colour
                )


def _parallel(mark: ParallelCoordinates, axes: Axes) -> None:
    columns = [parallel_axis(values, log=name in mark.log)[0] for name, values in mark.columns.items()]
    colour = columns[list(mark.columns).index(mark.colour)] if mark.colour else np.zeros(len(columns[0]))
    from matplotlib import colormaps

    for row, shade in zip(np.stack(columns, axis=1), colour, strict=True):
        axes.plot(row, color=colormaps["viridis"](float(shade)), alpha=0.6, linewidth=1)
    _names(axes, "x", list(mark.columns))
    axes.set_yticks([])


def _spans(mark: Spans, axes: Axes) -> list[tuple[str, Any]]:
    where = {row: position for position, row in enumerate(dict.fromkeys(mark.rows))}
    kinds = list(mark.colours) or [""] * len(mark.rows)
    drawn = []
    for number, kind in enumerate(dict.fromkeys(kinds)):
        chosen = [index for index, one in enumerate(kinds) if one == kind]
        starts = np.asarray([mark.starts[index] for index in chosen], dtype=float)
        lengths = np.asarray([mark.ends[index] for index in chosen], dtype=float) - starts
        rows = [where[mark.rows[index]] for index in chosen]
        colour = STATUS.get(kind, PALETTE[number % len(PALETTE)])
        drawn.append((kind, axes.barh(rows, lengths, left=starts, height=0.7, color=colour)))
    _names(axes, "y", list(where))
    axes.invert_yaxis()
    return drawn


def _names(axes: Axes, which: str, names: Any) -> None:
    """Names at whole numbers; of many only some."""
    each = -(-len(names) // _MOST_NAMES)
    at = list(range(0, len(names), max(1, each)))
    labels = [_cut(names[index]) for index in at]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(at, labels=labels, parse_math=False, fontsize=8)
    if which == "x" and sum(map(len, labels)) > 60:
        axes.tick_params(axis="x", rotation=60)


def _cut(text: str) -> str:
    text = printable(text)  # no font can draw a lone surrogate
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
