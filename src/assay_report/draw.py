"""A figure as plotly's JSON, and as a picture by matplotlib."""

from __future__ import annotations

import html
import io
import itertools
import math
import statistics
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import AssayError
from assay.figure import Bars, Figure, Heatmap, Line, Mark, Numbers, Points
from assay.quoting import format_number
from assay.terminal import printable, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    Trace = dict[str, Any]


def is_logarithmic(values: Sequence[float]) -> bool:
    """Whether values are positive, reach far, and their middle is nearer to that of their logarithms."""
    low = min(values)
    middle = statistics.median(values)
    high = max(values)
    if low <= 0 or high / low < 5:
        return False
    linear = (middle - low) / (high - low)
    log = math.log(middle / low) / math.log(high / low)
    return abs(log - 0.5) < abs(linear - 0.5)


PALETTE = (
    "#4c83ee",
    "#e07b39",
    "#2fa37c",
    "#d65c7a",
    "#8f73d9",
    "#a88a3a",
    "#2c9fc0",
    "#c261b8",
    "#6f9e3c",
    "#7b8794",
)
"""Of lines, points and bars; three to one against white and against near black."""
REFERENCE = "#8a919c"
"""Of what is drawn to be compared with."""
_MOST_MARKED = 30
"""Points up to which a line shows where they are: straight lines between a few promise more than is known."""
_MOST_IN_LEGEND = 16
_LONGEST = 24
_BARE = {"showgrid": False, "zeroline": False}


def to_plotly(figure: Figure) -> Trace:
    """Draw a figure by plotly."""
    layout: Trace = {
        "height": 340,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": _axis(figure, "x", figure.x_label, figure.x_range),
        "yaxis": _axis(figure, "y", figure.y_label, figure.y_range),
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "barmode": "group",
    }
    if figure.is_wide:
        layout["height"] = 420
    colours = itertools.cycle(PALETTE)
    data = [trace for mark in figure.marks for trace in _traces(mark, figure, layout, colours)]
    layout["showlegend"] = (
        1 < sum(bool(trace.get("showlegend")) for trace in data) <= _MOST_IN_LEGEND
    )
    return {"data": data, "layout": layout}


def escape(text: str, longest: int | None = None) -> str:
    """Escape tags, entities and TeX, which plotly would interpret."""
    if longest is not None:
        text = shorten(text, longest)
    return html.escape(text, quote=False).replace("$", "&#36;")


def floats(values: Numbers) -> list[float | None]:
    """Numbers as JSON has them: six digits, null for what is not finite."""
    return [
        float(f"{value:.6g}") if math.isfinite(value) else None for value in map(float, values)
    ]


def is_marked(line: Line) -> bool:
    """Whether the points of a line are shown."""
    if line.is_reference or line.is_step or len(line.x) > _MOST_MARKED:
        return False
    # else a curve, such as a ROC
    return bool((np.diff(np.asarray(line.x, dtype=float)) > 0).all())


def cell_text(mark: Heatmap, value: float) -> str:
    """The text in a cell of a matrix; empty for an empty cell."""
    if not math.isfinite(value):
        return ""
    if mark.is_share:
        return f"{100 * value:.1f} %"
    return format_number(value, 3)


def _traces(mark: Mark, figure: Figure, layout: Trace, colours: Iterator[str]) -> Iterator[Trace]:
    match mark:
        case Line(is_reference=True):
            style = {"color": REFERENCE, "dash": "dash", "width": 1.2}
            yield _xy(mark.name, mark.x, mark.y, mode="lines", line=style, hoverinfo="skip")
        case Line():
            yield from _line(mark, figure, next(colours))
        case Points():
            style = {"size": 7, "opacity": 0.8, "color": next(colours)}
            if len(mark.x) > 500:
                style |= {"size": 5, "opacity": 0.6}
            yield _xy(mark.name, mark.x, mark.y, mode="markers", marker=style) | _hover(
                mark.texts, figure
            )
        case Bars():
            yield _bars(mark, figure, layout, next(colours))
        case Heatmap():
            yield _heatmap(mark, figure, layout)


def _line(mark: Line, figure: Figure, colour: str) -> Iterator[Trace]:
    shape = {}
    if mark.is_step:
        shape = {"shape": "hv"}
    group = {"legendgroup": escape(mark.name)}
    if mark.low is not None and mark.high is not None:
        edge = {
            "mode": "lines",
            "line": {"width": 0, "color": colour, **shape},
            "hoverinfo": "skip",
            **group,
        }
        fill = {"fill": "tonexty", "fillcolor": f"rgba{(*bytes.fromhex(colour[1:]), 0.18)}"}
        yield _xy("", mark.x, mark.low, **edge)
        yield _xy("", mark.x, mark.high, **fill, **edge)
    style = {
        "line": {"color": colour, "width": 2, **shape},
        "marker": {"color": colour, "size": 6},
    }
    mode = "lines"
    if is_marked(mark):
        mode = "lines+markers"
    trace = _xy(mark.name, mark.x, mark.y, mode=mode, **style, **group, **_hover((), figure))
    yield trace | {"showlegend": True}


def _bars(mark: Bars, figure: Figure, layout: Trace, colour: str) -> Trace:
    # Turned this way labels end below their bars; the other way the last one would be cut off.
    layout["xaxis"] |= _ticks(mark.labels) | _BARE | {"autotickangles": [0, -45, -90]}
    layout["bargap"] = 0.5
    if len(mark.labels) >= 6:
        layout["bargap"] = 0.2
    trace = _xy(
        mark.name, range(len(mark.labels)), mark.values, type="bar", marker={"color": colour}
    )
    if mark.low is not None and mark.high is not None:
        values, low, high = (
            np.asarray(edge, dtype=float) for edge in (mark.values, mark.low, mark.high)
        )
        trace["error_y"] = {
            "array": floats(high - values),
            "arrayminus": floats(values - low),
            "symmetric": False,
            "type": "data",
            "color": REFERENCE,
            "thickness": 1.2,
            "width": 3,
        }
    suffix = ""
    if mark.name:
        suffix = f" ({mark.name})"
    pairs = zip(mark.labels, mark.values, strict=True)
    return trace | _hover(
        mark.texts or [f"{name}: {format_number(value)}{suffix}" for name, value in pairs], figure
    )


def _heatmap(mark: Heatmap, figure: Figure, layout: Trace) -> Trace:
    layout["xaxis"] |= _ticks(mark.x_names) | _BARE | {"side": "top"}
    layout["yaxis"] |= _ticks(mark.y_names) | _BARE | {"autorange": "reversed"}
    layout["height"] = min(760, max(280, 110 + 30 * len(mark.y_names)))
    values = np.asarray(mark.values, dtype=float)
    row_label = escape(figure.y_label or "row")
    column_label = escape(figure.x_label or "column")
    cells = [[cell_text(mark, value) for value in row] for row in values]
    texts = [
        [
            f"{row_label}: {escape(row)}<br>{column_label}: {escape(column)}<br>{cell}"
            for column, cell in zip(mark.x_names, row_cells, strict=True)
        ]
        for row, row_cells in zip(mark.y_names, cells, strict=True)
    ]
    trace: Trace = {
        "type": "heatmap",
        "z": [floats(row) for row in values],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "x": list(range(len(mark.x_names))),
        "y": list(range(len(mark.y_names))),
        "hovertext": texts,
        "hoverinfo": "text",
    }
    if mark.shows_values:  # zeros are most of a good matrix; without them the others are seen
        cells = np.where(values == 0, "", cells).tolist()
        trace |= {"text": cells, "texttemplate": "%{text}"}
    return trace


def _xy(name: str, x: Numbers, y: Numbers, **fields: Any) -> Trace:
    trace = {"type": "scatter", "name": escape(name, _LONGEST), "x": floats(x), "y": floats(y)}
    return trace | {"showlegend": bool(name)} | fields


def _hover(texts: Sequence[str], figure: Figure) -> Trace:
    """Texts of the marks' own; else plotly writes the numbers."""
    if any(texts):
        return {
            "hovertext": [escape(text).replace("\n", "<br>") for text in texts],
            "hoverinfo": "text",
        }
    # A label with a percent sign and a brace would be read as a template of its own.
    labels = (
        escape(name).translate({123: "(", 125: ")"}) for name in (figure.x_label, figure.y_label)
    )
    parts = (
        f"{label or axis} %{{{axis}{':.2%}' if axis in figure.shares else ':,.6~r}'}"
        for axis, label in zip("xy", labels, strict=True)
    )
    return {"hovertemplate": "<br>".join(parts)}


def _ticks(names: Sequence[str]) -> Trace:
    """Names at whole numbers, for two may be alike; of many only some, the pointer tells the others."""
    step = max(1, math.ceil(len(names) / 60))
    shown = range(0, len(names), step)
    return {
        "tickvals": list(shown),
        "ticktext": [escape(names[index], _LONGEST) for index in shown],
    }


def _axis(figure: Figure, which: str, label: str, shown: tuple[float, float] | None) -> Trace:
    log = which in figure.log
    axis: Trace = {
        "title": {"text": escape(label)},
        "automargin": True,
        "separatethousands": True,
        "exponentformat": "power",
        "minexponent": 8,
    }
    if which in figure.shares:
        axis |= {"tickformat": ".3~%", "autorangeoptions": {"clipmin": -0.02, "clipmax": 1.02}}
    if log:
        axis["type"] = "log"
    if shown is not None:
        axis["range"] = [math.log10(edge) if log else edge for edge in shown]
    return axis


_MOST_NAMES = 40


def to_png(figure: Figure, form: str = "png") -> bytes:
    """Draw a figure as a PNG file, or in another format of matplotlib's."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that no font of the machine has
        to_matplotlib(figure).savefig(file, format=form)
    return file.getvalue()


def to_matplotlib(figure: Figure) -> Drawing:
    """Draw a figure by matplotlib."""
    try:
        from matplotlib.figure import Figure as Drawing
        from matplotlib.ticker import PercentFormatter
    except ImportError as error:
        message = "figures as pictures need matplotlib"
        raise AssayError(
            message, hint="pip install 'assay[plot]', or uv sync --extra plot"
        ) from error
    size = (7.2, 4.2)
    if any(isinstance(mark, Heatmap) for mark in figure.marks):
        size = (6.0, 5.4)
    drawing = Drawing(figsize=size, dpi=144, layout="constrained")
    axes = drawing.add_subplot()
    axes.set_prop_cycle(color=PALETTE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    bars = [mark for mark in figure.marks if isinstance(mark, Bars)]
    drawn = [(_draw(mark, axes, bars), getattr(mark, "name", "")) for mark in figure.marks]
    axes.set_title(_without_tex(figure.title), loc="left", fontsize=11)
    axes.set(xlabel=_without_tex(figure.x_label), ylabel=_without_tex(figure.y_label))
    axes.set(**{f"{which}scale": "log" for which in figure.log})
    for which in figure.shares:
        getattr(axes, f"{which}axis").set_major_formatter(PercentFormatter(1))
    axes.set(xlim=figure.x_range, ylim=figure.y_range)
    # A label that begins with an underscore would be left out.
    named = [(handle, f" {_shorten(name)}") for handle, name in drawn if name]
    if 1 < len(named) <= _MOST_IN_LEGEND:
        axes.legend(*zip(*named, strict=True), fontsize=8, frameon=False)
    return drawing


def _draw(mark: Mark, axes: Axes, bars: list[Bars]) -> Any:
    """Draw a mark; what stands for it in the legend."""
    match mark:
        case Line():
            style: Trace = {}
            if mark.is_step:
                style = {"drawstyle": "steps-post"}
            if mark.is_reference:
                style |= {"color": REFERENCE, "linestyle": "--", "linewidth": 1}
            if is_marked(mark):
                style |= {"marker": "o", "markersize": 3.5}
            x = np.asarray(mark.x)
            (line,) = axes.plot(x, np.asarray(mark.y), **style)
            if mark.low is not None and mark.high is not None:
                low = np.asarray(mark.low, dtype=float)
                high = np.asarray(mark.high, dtype=float)
                axes.fill_between(x, low, high, alpha=0.18, color=line.get_color(), linewidth=0)
            return line
        case Points():
            return axes.scatter(
                np.asarray(mark.x), np.asarray(mark.y), s=12, alpha=0.7, linewidths=0
            )
        case Bars():
            width = 0.8 / len(bars)
            values = np.asarray(mark.values, dtype=float)
            errors = None
            if mark.low is not None and mark.high is not None:
                errors = np.stack([values - np.asarray(mark.low), np.asarray(mark.high) - values])
            x_bar = np.arange(len(values)) + (bars.index(mark) - (len(bars) - 1) / 2) * width
            _set_ticks(axes, "x", mark.labels)
            return axes.bar(
                x_bar, values, width, yerr=errors, error_kw={"ecolor": REFERENCE, "elinewidth": 1}
            )
        case Heatmap():
            return _draw_matrix(mark, axes)


def _draw_matrix(mark: Heatmap, axes: Axes) -> None:
    values = np.asarray(mark.values, dtype=float)
    axes.grid(visible=False)
    axes.imshow(values, cmap="Blues", aspect="auto")
    _set_ticks(axes, "x", mark.x_names)
    _set_ticks(axes, "y", mark.y_names)
    if mark.shows_values and values.size <= 400 and np.isfinite(values).any():
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        for (row, column), value in np.ndenumerate(values):
            colour = "black"
            if value > middle:
                colour = "white"
            text = cell_text(mark, value)
            axes.text(column, row, text, color=colour, ha="center", va="center", fontsize=7)


def _set_ticks(axes: Axes, which: str, names: Any) -> None:
    """Names at whole numbers; of many only some."""
    positions = list(range(0, len(names), max(1, -(-len(names) // _MOST_NAMES))))
    labels = [_shorten(names[index]) for index in positions]
    getattr(axes, f"{which}axis").set_ticks(positions, labels=labels, fontsize=8)
    if which == "x" and sum(map(len, labels)) > 60:
        axes.tick_params(axis="x", rotation=60)


def _shorten(text: str) -> str:
    return _without_tex(shorten(text, _LONGEST))


def _without_tex(text: str) -> str:
    """Escape `$`, and replace what no font can draw, such as a lone surrogate."""
    return printable(text).replace("$", r"\$")
