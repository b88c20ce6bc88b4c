"""A figure as plotly's JSON: `data` and `layout`. Colours that follow light and dark are the page's."""

from __future__ import annotations

import html
import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Bars, Heatmap, Line, Points
from assay.quoting import number_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.figure.figure import Figure, Mark, Numbers

PALETTE: Final = (
    *("#4c83ee", "#e07b39", "#2fa37c", "#d65c7a", "#8f73d9"),
    *("#a88a3a", "#2c9fc0", "#c261b8", "#6f9e3c", "#7b8794"),
)
"""Of lines, points and bars; three to one against white and against near black."""
REFERENCE: Final = "#8a919c"
"""Of what is drawn to be compared with."""
_MOST_MARKED: Final = 30
"""Points up to which a line shows where they are: straight lines between a few promise more than is known."""
_MOST_IN_LEGEND: Final = 16
_LONGEST: Final = 24
_BARE: Final = {"showgrid": False, "zeroline": False}


def to_plotly(figure: Figure) -> dict[str, Any]:
    """Draw a figure by plotly."""
    layout: dict[str, Any] = {
        "height": 420 if figure.is_wide else 340,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": _axis(figure, "x", figure.x_label, figure.x_range),
        "yaxis": _axis(figure, "y", figure.y_label, figure.y_range),
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "barmode": "group",
    }
    colours = itertools.cycle(PALETTE)
    data = [trace for mark in figure.marks for trace in _traces(mark, figure, layout, colours)]
    layout["showlegend"] = 1 < sum(bool(trace.get("showlegend")) for trace in data) <= _MOST_IN_LEGEND
    return {"data": data, "layout": layout}


def escaped(text: str, longest: int | None = None) -> str:
    """A text as it is, where plotly would read tags, entities and TeX in it."""
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    return html.escape(text, quote=False).replace("$", "&#36;")


def plain(values: Numbers) -> list[float | int | None]:
    """Numbers as JSON has them: six digits, null for what is not finite."""
    return [_plain(float(value)) for value in values]


def _plain(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 and rounded == value else rounded


def is_marked(line: Line) -> bool:
    """Whether the points of a line are shown."""
    if line.is_reference or line.is_step or len(line.x) > _MOST_MARKED:
        return False
    return bool((np.diff(np.asarray(line.x, dtype=float)) > 0).all())  # else a curve, such as a ROC


def cell_text(mark: Heatmap, value: float) -> str:
    """What is written in a cell of a matrix; nothing where it is empty."""
    if not math.isfinite(value):
        return ""
    return f"{100 * value:.1f} %" if mark.is_share else number_text(value, 3)


def _traces(
    mark: Mark, figure: Figure, layout: dict[str, Any], colours: Iterator[str]
) -> Iterator[dict[str, Any]]:
    match mark:
        case Line():
            yield from _line(mark, figure, colours)
        case Points():
            many = len(mark.x) > 500
            style = {"size": 5 if many else 7, "opacity": 0.6 if many else 0.8, "color": next(colours)}
            yield _xy(mark.name, mark.x, mark.y, mode="markers", marker=style) | _hover(mark.texts, figure)
        case Bars():
            yield _bars(mark, figure, layout, next(colours))
        case Heatmap():
            yield _heatmap(mark, figure, layout)


def _line(mark: Line, figure: Figure, colours: Iterator[str]) -> Iterator[dict[str, Any]]:
    shape = {"shape": "hv"} if mark.is_step else {}
    if mark.is_reference:
        style = {"color": REFERENCE, "dash": "dash", "width": 1.2, **shape}
        yield _xy(mark.name, mark.x, mark.y, mode="lines", line=style, hoverinfo="skip")
        return
    colour = next(colours)
    group = {"legendgroup": escaped(mark.name)}
    if mark.low is not None and mark.high is not None:
        edge = {"mode": "lines", "line": {"width": 0, "color": colour, **shape}, "hoverinfo": "skip", **group}
        yield _xy("", mark.x, mark.low, **edge)
        yield _xy(
            "",
            mark.x,
            mark.high,
            fill="tonexty",
            fillcolor=f"rgba{(*bytes.fromhex(colour[1:]), 0.18)}",
            **edge,
        )
    yield _xy(
        mark.name,
        mark.x,
        mark.y,
        mode="lines+markers" if is_marked(mark) else "lines",
        line={"color": colour, "width": 2, **shape},
        marker={"color": colour, "size": 6},
        **group,
        **_hover((), figure),
    ) | {"showlegend": True}


def _bars(mark: Bars, figure: Figure, layout: dict[str, Any], colour: str) -> dict[str, Any]:
    # Turned this way labels end below their bars; the other way the last one would be cut off.
    layout["xaxis"] |= _ticks(mark.labels) | _BARE | {"autotickangles": [0, -45, -90]}
    layout["bargap"] = 0.2 if len(mark.labels) >= 6 else 0.5
    trace = _xy(mark.name, range(len(mark.labels)), mark.values, type="bar", marker={"color": colour})
    if mark.low is not None and mark.high is not None:
        values, low, high = (np.asarray(one, dtype=float) for one in (mark.values, mark.low, mark.high))
        ends = {"array": plain(high - values), "arrayminus": plain(values - low), "symmetric": False}
        trace["error_y"] = ends | {"type": "data", "color": REFERENCE, "thickness": 1.2, "width": 3}
    of = f" ({mark.name})" if mark.name else ""
    pairs = zip(mark.labels, mark.values, strict=True)
    return trace | _hover(
        mark.texts or [f"{name}: {number_text(value)}{of}" for name, value in pairs], figure
    )


def _heatmap(mark: Heatmap, figure: Figure, layout: dict[str, Any]) -> dict[str, Any]:
    layout["xaxis"] |= _ticks(mark.x_names) | _BARE | {"side": "top"}
    layout["yaxis"] |= _ticks(mark.y_names) | _BARE | {"autorange": "reversed"}
    layout["height"] = min(760, max(280, 110 + 30 * len(mark.y_names)))
    values = np.asarray(mark.values, dtype=float)
    row_label, column_label = escaped(figure.y_label or "row"), escaped(figure.x_label or "column")
    texts = [
        [
            f"{row_label}: {escaped(row)}<br>{column_label}: {escaped(column)}<br>{cell_text(mark, value)}"
            for column, value in zip(mark.x_names, row_values, strict=True)
        ]
        for row, row_values in zip(mark.y_names, values, strict=True)
    ]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": [plain(row) for row in values],
        "x": list(range(len(mark.x_names))),
        "y": list(range(len(mark.y_names))),
        "hovertext": texts,
        "hoverinfo": "text",
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    if mark.shows_values:  # zeros are most of a good matrix; without them the others are seen
        cells = [[cell_text(mark, value) if value else "" for value in row] for row in values]
        trace |= {"text": cells, "texttemplate": "%{text}"}
    return trace


def _xy(name: str, x: Numbers, y: Numbers, **more: Any) -> dict[str, Any]:
    trace = {"type": "scatter", "name": escaped(name, _LONGEST), "x": plain(x), "y": plain(y)}
    return trace | {"showlegend": bool(name)} | more


def _hover(texts: Sequence[str], figure: Figure) -> dict[str, Any]:
    """Texts of the marks' own; else plotly writes the numbers."""
    if any(texts):
        return {"hovertext": [escaped(text).replace("\n", "<br>") for text in texts], "hoverinfo": "text"}
    # A label with a percent sign and a brace would be read as a template of its own.
    labels = (escaped(one).translate({123: "(", 125: ")"}) for one in (figure.x_label, figure.y_label))
    parts = (
        f"{label or axis} %{{{axis}{':.2%}' if axis in figure.shares else ':,.6~r}'}"
        for axis, label in zip("xy", labels, strict=True)
    )
    return {"hovertemplate": "<br>".join(parts)}


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    """Names at whole numbers, for two may be alike; of many only some, the pointer tells the others."""
    each = max(1, math.ceil(len(names) / 60))
    shown = range(0, len(names), each)
    return {"tickvals": list(shown), "ticktext": [escaped(names[at], _LONGEST) for at in shown]}


def _axis(figure: Figure, which: str, label: str, shown: tuple[float, float] | None) -> dict[str, Any]:
    log = which in figure.log
    axis: dict[str, Any] = {"title": {"text": escaped(label)}, "automargin": True, "separatethousands": True}
    axis |= {"exponentformat": "power", "minexponent": 8}
    if which in figure.shares:
        axis |= {"tickformat": ".3~%", "autorangeoptions": {"clipmin": -0.02, "clipmax": 1.02}}
    if log:
        axis["type"] = "log"
    if shown is not None:
        axis["range"] = [math.log10(edge) if log else edge for edge in shown]
    return axis
