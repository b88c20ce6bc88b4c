from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import AssayError
from assay.figure.figure import PALETTE, REFERENCE, Bars, Heatmap, Line, Points, cell_text, is_marked
from assay.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from assay.figure.figure import Figure, Mark

_LONGEST = 24
_MOST_NAMES = 40


def to_png(figure: Figure) -> bytes:
    """Draw a figure as a PNG file."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that no font of the machine has
        to_matplotlib(figure).savefig(file, format="png")
    return file.getvalue()


def to_matplotlib(figure: Figure) -> Drawing:
    """Draw a figure by matplotlib."""
    try:
        from matplotlib.figure import Figure as Drawing
        from matplotlib.ticker import PercentFormatter
    except ImportError as error:
        raise AssayError(
            "figures as pictures need matplotlib", hint="pip install 'assay[plot]', or uv sync --extra plot"
        ) from error
    size = (6.0, 5.4) if any(isinstance(mark, Heatmap) for mark in figure.marks) else (7.2, 4.2)
    drawing = Drawing(figsize=size, dpi=144, layout="constrained")
    axes = drawing.add_subplot()
    axes.set_prop_cycle(color=PALETTE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    bars = [mark for mark in figure.marks if isinstance(mark, Bars)]
    drawn = [(_draw(mark, axes, bars), getattr(mark, "name", "")) for mark in figure.marks]
    axes.set_title(_plain(figure.title), loc="left", fontsize=11)
    axes.set(xlabel=_plain(figure.x_label), ylabel=_plain(figure.y_label))
    axes.set(**{f"{which}scale": "log" for which in figure.log})
    for which in figure.shares:
        (axes.xaxis if which == "x" else axes.yaxis).set_major_formatter(PercentFormatter(1))
    axes.set(xlim=figure.x_range, ylim=figure.y_range)
    named = [(handle, name) for handle, name in drawn if name]
    if 1 < len(named) <= 16:
        # A label that begins with an underscore would be left out.
        labels = [f" {_cut(name)}" for _, name in named]
        axes.legend([handle for handle, _ in named], labels, fontsize=8, frameon=False)
    return drawing


def _draw(mark: Mark, axes: Axes, bars: list[Bars]) -> Any:
    """Draw a mark; what stands for it in the legend."""
    match mark:
        case Line():
            style: dict[str, Any] = {"drawstyle": "steps-post"} if mark.is_step else {}
            if mark.is_reference:
                style |= {"color": REFERENCE, "linestyle": "--", "linewidth": 1}
            if is_marked(mark):
                style |= {"marker": "o", "markersize": 3.5}
            x = np.asarray(mark.x)
            (line,) = axes.plot(x, np.asarray(mark.y), **style)
            if mark.low is not None and mark.high is not None:
                low, high = np.asarray(mark.low, dtype=float), np.asarray(mark.high, dtype=float)
                axes.fill_between(x, low, high, alpha=0.18, color=line.get_color(), linewidth=0)
            return line
        case Points():
            return axes.scatter(np.asarray(mark.x), np.asarray(mark.y), s=12, alpha=0.7, linewidths=0)
        case Bars():
            width = 0.8 / len(bars)
            values, errors = np.asarray(mark.values, dtype=float), None
            if mark.low is not None and mark.high is not None:
                errors = np.stack([values - np.asarray(mark.low), np.asarray(mark.high) - values])
            at = np.arange(len(values)) + (bars.index(mark) - (len(bars) - 1) / 2) * width
            _name(axes, "x", mark.labels)
            return axes.bar(at, values, width, yerr=errors, error_kw={"ecolor": REFERENCE, "elinewidth": 1})
        case Heatmap():
            return _heatmap(mark, axes)


def _heatmap(mark: Heatmap, axes: Axes) -> None:
    values = np.asarray(mark.values, dtype=float)
    axes.grid(visible=False)
    axes.imshow(values, cmap="Blues", aspect="auto")
    _name(axes, "x", mark.x_names)
    _name(axes, "y", mark.y_names)
    if not mark.shows_values or values.size > 400 or not np.isfinite(values).any():
        return
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > middle else "black"
        centred: Any = {"ha": "center", "va": "center", "fontsize": 7}
        axes.text(column, row, cell_text(mark, value), color=colour, **centred)


def _name(axes: Axes, which: str, names: Any) -> None:
    """Names at whole numbers; of many only some."""
    at = list(range(0, len(names), max(1, -(-len(names) // _MOST_NAMES))))
    labels = [_cut(names[index]) for index in at]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(at, labels=labels, fontsize=8)
    if which == "x" and sum(map(len, labels)) > 60:
        axes.tick_params(axis="x", rotation=60)


def _cut(text: str) -> str:
    return _plain(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def _plain(text: str) -> str:
    """A text without mathematics; no font can draw a lone surrogate."""
    return printable(text).replace("$", r"\$")
