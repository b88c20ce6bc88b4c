"""A figure as plotly's JSON: `data` and `layout`. Colours that follow light and dark are the page's."""

from __future__ import annotations

import html
import itertools
import math
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from assay.figure.figure import Bars, Heatmap, Line, ParallelCoordinates, Points, Spans, parallel_axis
from assay.quoting import number_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from assay.figure.figure import Figure, Mark, Numbers

PALETTE: Final = (
    *("#4c83ee", "#e07b39", "#2fa37c", "#d65c7a", "#8f73d9"),
    *("#a88a3a", "#2c9fc0", "#c261b8", "#6f9e3c", "#7b8794"),
)
"""Of lines, points and bars; three to one against white and against near black."""
REFERENCE: Final = "#8a919c"
"""Of what is drawn to be compared with."""
STATUS: Final = {
    "finished": "#2fa37c",
    "failed": "#d6455d",
    "interrupted": "#e0a339",
    "running": "#4c83ee",
    "pruned": "#8a919c",
}
"""Of spans that are runs."""
_SHADES: Final = (
    *("#7b52ab", "#6a63b8", "#5576bd", "#3f8abf", "#2c9cb3", "#2aab9a", "#46b87b", "#7cbf57", "#b0b93a"),
    "#d9a92b",
)
"""From the lowest to the highest; seen on white and on near black."""
MOST_MARKED: Final = 30
"""Points up to which a line shows where they are: straight lines between a few promise more than is known."""
_MOST_IN_LEGEND = 16
_LONGEST = 24
_LARGEST_EXPONENT: Final = 8
"""Up to which the numbers of an axis are written out."""
_FEW: Final = 6
"""Bars that would be slabs, and steps of an axis between which there is nothing."""


def to_plotly(figure: Figure) -> dict[str, Any]:
    """Draw a figure by plotly."""
    colours = itertools.cycle(PALETTE)
    data = [trace for mark in figure.marks for trace in _traces(mark, figure, colours)]
    layout: dict[str, Any] = {
        "height": _height(figure),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": _axis(figure, "x"),
        "yaxis": _axis(figure, "y"),
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "showlegend": 1 < sum(bool(trace.get("showlegend")) for trace in data) <= _MOST_IN_LEGEND,
        "barmode": "group",
    }
    for mark in figure.marks:
        _name_positions(mark, layout)
    return {"data": data, "layout": layout}


def escaped(text: str, longest: int | None = None) -> str:
    """A text as it is, where plotly would read tags, entities and TeX in it."""
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    return html.escape(text, quote=False).replace("$", "&#36;")


def plain(values: Numbers | None) -> list[float | int | None] | None:
    """Numbers as JSON has them: six digits, null for what is not finite."""
    if values is None:
        return None
    return [_plain(float(value)) for value in values]


def _plain(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e6 and rounded == value else rounded


def _traces(mark: Mark, figure: Figure, colours: Iterator[str]) -> Iterable[dict[str, Any]]:
    match mark:
        case Line():
            return _line(mark, figure, colours)
        case Points():
            return [_points(mark, figure, colours)]
        case Bars():
            return [_bars(mark, colours)]
        case Heatmap():
            return [_heatmap(mark, figure)]
        case ParallelCoordinates():
            return _parallel(mark)
        case Spans():
            return _spans(mark, colours)


def _line(mark: Line, figure: Figure, colours: Iterator[str]) -> Iterable[dict[str, Any]]:
    shape = {"shape": "hv"} if mark.is_step else {}
    if mark.is_reference:
        style = {"color": REFERENCE, "dash": "dash", "width": 1.2}
        yield _xy(mark.name, mark.x, mark.y) | {
            "mode": "lines",
            "line": style | shape,
            "hoverinfo": "skip",
            "showlegend": bool(mark.name),
        }
        return
    colour = next(colours)
    if mark.low is not None and mark.high is not None:
        for edge, fill in (
            (mark.low, {}),
            (mark.high, {"fill": "tonexty", "fillcolor": _translucent(colour)}),
        ):
            yield _xy(mark.name, mark.x, edge) | {
                "mode": "lines",
                "line": {"width": 0, "color": colour, **shape},
                "hoverinfo": "skip",
                "showlegend": False,
                "legendgroup": escaped(mark.name),
                **fill,
            }
    yield _xy(mark.name, mark.x, mark.y) | {
        "mode": "lines+markers" if is_marked(mark) else "lines",
        "line": {"color": colour, "width": 2, **shape},
        "marker": {"color": colour, "size": 6},
        "legendgroup": escaped(mark.name),
        "showlegend": True,
        "hovertemplate": _hover(figure),
    }


def _points(mark: Points, figure: Figure, colours: Iterator[str]) -> dict[str, Any]:
    many = len(mark.x) > 500
    trace = _xy(mark.name, mark.x, mark.y) | {
        "mode": "markers",
        "marker": {"size": 5 if many else 7, "opacity": 0.6 if many else 0.8, "color": next(colours)},
        "showlegend": bool(mark.name),
    }
    return trace | _texts(mark.texts, _hover(figure))


def _bars(mark: Bars, colours: Iterator[str]) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "bar",
        "name": escaped(mark.name, _LONGEST),
        "x": list(range(len(mark.labels))),
        "y": plain(mark.values),
        "marker": {"color": next(colours)},
        "showlegend": bool(mark.name),
    }
    if mark.low is not None and mark.high is not None:
        values = np.asarray(mark.values, dtype=float)
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": plain(np.asarray(mark.high, dtype=float) - values),
            "arrayminus": plain(values - np.asarray(mark.low, dtype=float)),
            "color": REFERENCE,
            "thickness": 1.2,
            "width": 3,
        }
    texts = mark.texts or [
        f"{label}: {number_text(value)}" + (f" ({mark.name})" if mark.name else "")
        for label, value in zip(mark.labels, mark.values, strict=True)
    ]
    return trace | _texts(texts, "")


def _heatmap(mark: Heatmap, figure: Figure) -> dict[str, Any]:
    values = np.asarray(mark.values, dtype=float)
    texts = [
        [
            f"{escaped(figure.y_label or 'row')}: {escaped(row)}<br>"
            f"{escaped(figure.x_label or 'column')}: {escaped(column)}<br>{cell_text(mark, value)}"
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
    if mark.shows_values:
        trace |= {
            # Zeros are most of a good matrix; without them the others are seen.
            "text": [[cell_text(mark, value) if value else "" for value in row] for row in values],
            "texttemplate": "%{text}",
        }
    return trace


def _parallel(mark: ParallelCoordinates) -> Iterable[dict[str, Any]]:
    """Lines of SVG: plotly's own kind needs WebGL, and compiles code, which the page forbids."""
    axes = [parallel_axis(values, log=name in mark.log)[0] for name, values in mark.columns.items()]
    rows = np.stack([*axes, np.full(len(axes[0]), np.nan)], axis=1)
    texts = list(mark.texts) or [""] * len(rows)
    shade = axes[list(mark.columns).index(mark.colour)] if mark.colour else np.zeros(len(rows))
    bins = np.nan_to_num(shade * (len(_SHADES) - 1)).round().astype(int)
    for number in np.unique(bins):
        chosen = np.flatnonzero(bins == number)
        hover = [text for row in chosen for text in (*[""] * (len(axes) - 1), texts[row], "")]
        yield {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [*range(len(axes)), None] * len(chosen),
            "y": plain(rows[chosen].ravel()),
            "line": {"color": _SHADES[number], "width": 1.3},
            "marker": {"color": _SHADES[number], "size": 3},
            "opacity": 0.75,
            "showlegend": False,
        } | _texts(hover, "")


def _spans(mark: Spans, colours: Iterator[str]) -> Iterable[dict[str, Any]]:
    where = {row: position for position, row in enumerate(dict.fromkeys(mark.rows))}
    kinds = mark.colours or [""] * len(mark.rows)
    texts = mark.texts or [""] * len(mark.rows)
    for kind in dict.fromkeys(kinds):
        chosen = [index for index, one in enumerate(kinds) if one == kind]
        starts = [float(mark.starts[index]) for index in chosen]
        lengths = [float(mark.ends[index]) - start for index, start in zip(chosen, starts, strict=True)]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": escaped(kind, _LONGEST),
            "base": plain(starts),
            "x": plain(lengths),
            "y": [where[mark.rows[index]] for index in chosen],
            "marker": {"color": STATUS.get(kind) or next(colours)},
            "showlegend": bool(kind),
        } | _texts([texts[index] for index in chosen], "")


def _name_positions(mark: Mark, layout: dict[str, Any]) -> None:
    """Names along an axis: categories lie at whole numbers, for two of them may be called alike."""
    if isinstance(mark, Heatmap):
        layout["xaxis"] |= _ticks(mark.x_names) | {"showgrid": False, "zeroline": False, "side": "top"}
        layout["yaxis"] |= _ticks(mark.y_names) | {
            "showgrid": False,
            "zeroline": False,
            "autorange": "reversed",
        }
    elif isinstance(mark, Bars):
        # Turned this way they end below their bars; the other way the last one would be cut off.
        turned = {"autotickangles": [0, -45, -90]}
        layout["xaxis"] |= _ticks(mark.labels) | turned | {"showgrid": False, "zeroline": False}
        layout["bargap"] = 0.2 if len(mark.labels) >= _FEW else 0.5
    elif isinstance(mark, Spans):
        rows = list(dict.fromkeys(mark.rows))
        layout["yaxis"] |= _ticks(rows) | {"showgrid": False, "zeroline": False, "autorange": "reversed"}
        layout["barmode"] = "overlay"
    elif isinstance(mark, ParallelCoordinates):
        names = {"tickvals": list(range(len(mark.columns))), "range": [-0.35, len(mark.columns) - 0.8]}
        cut = [escaped(name, _LONGEST) for name in mark.columns]
        layout["xaxis"] |= names | {"ticktext": cut, "zeroline": False, "side": "top", "tickangle": -20}
        layout["yaxis"] |= {"visible": False, "range": [-0.04, 1.06]}
        layout["margin"] |= {"l": 28, "r": 72}  # for the values of the first axis, the name of the last
        layout["meta"] = {"axes": len(mark.columns)}
        layout["annotations"] = [
            {"x": place, "y": at, "text": escaped(text, _LONGEST // 2), "showarrow": False}
            | {"xanchor": "right", "xshift": -5, "font": {"size": 10.5}}
            for place, (name, values) in enumerate(mark.columns.items())
            for at, text in parallel_axis(values, log=name in mark.log, share=name in mark.shares)[1]
        ]


def _ticks(names: Sequence[str]) -> dict[str, Any]:
    """Of many names only some are written; the pointer tells the others."""
    each = max(1, math.ceil(len(names) / 60))
    return {
        "tickvals": list(range(0, len(names), each)),
        "ticktext": [escaped(name, _LONGEST) for name in names[::each]],
    }


def is_marked(line: Line) -> bool:
    """Whether the points of a line are shown."""
    if line.is_reference or line.is_step or len(line.x) > MOST_MARKED:
        return False
    return bool((np.diff(np.asarray(line.x, dtype=float)) > 0).all())  # else a curve, such as a ROC


def _axis(figure: Figure, which: Literal["x", "y"]) -> dict[str, Any]:
    label, shown = (figure.x_label, figure.x_range) if which == "x" else (figure.y_label, figure.y_range)
    log = which in figure.log
    axis: dict[str, Any] = {"title": {"text": escaped(label)}, "automargin": True, "separatethousands": True}
    axis |= {"exponentformat": "power", "minexponent": _LARGEST_EXPONENT}
    if which in figure.shares:
        axis |= {"tickformat": ".3~%", "autorangeoptions": {"clipmin": -0.02, "clipmax": 1.02}}
    if log:
        axis["type"] = "log"
        values = sorted({float(one) for one in _drawn(figure, which) if one > 0})
        if len(values) <= _FEW:
            axis |= {"tickvals": values, "ticktext": [number_text(one) for one in values]}
    elif shown is None and _counts_few(figure, which):
        axis["dtick"] = 1
    if shown is not None:
        axis["range"] = [math.log10(edge) if log else edge for edge in shown]
    return axis


def _drawn(figure: Figure, which: Literal["x", "y"]) -> NDArray[Any]:
    drawn = [
        np.asarray(mark.values if isinstance(mark, Bars) else getattr(mark, which), dtype=float)
        for mark in figure.marks
        if isinstance(mark, Line | Points) or (isinstance(mark, Bars) and which == "y")
    ]
    return np.concatenate([*drawn, [0.0] if any(isinstance(mark, Bars) for mark in figure.marks) else []])


def _counts_few(figure: Figure, which: Literal["x", "y"]) -> bool:
    """Whether an axis has but a few whole numbers, between which there is nothing to be named."""
    values = _drawn(figure, which)
    return bool(values.size) and bool((values == np.round(values)).all()) and 1 <= np.ptp(values) <= _FEW


def _height(figure: Figure) -> int:
    mark = figure.marks[0] if figure.marks else None
    if isinstance(mark, Heatmap):
        return min(760, max(280, 110 + 30 * len(mark.y_names)))
    if isinstance(mark, Spans):
        return min(900, 110 + 24 * len(set(mark.rows)))
    return 420 if figure.is_wide else 340


def _xy(name: str, x: Numbers, y: Numbers) -> dict[str, Any]:
    return {"type": "scatter", "name": escaped(name, _LONGEST), "x": plain(x), "y": plain(y)}


def _texts(texts: Sequence[str], otherwise: str) -> dict[str, Any]:
    """Hover texts of the marks' own; else plotly writes the numbers."""
    if any(texts):
        return {"hovertext": [escaped(text).replace("\n", "<br>") for text in texts], "hoverinfo": "text"}
    return {"hovertemplate": otherwise} if otherwise else {"hoverinfo": "x+y"}


def _hover(figure: Figure) -> str:
    x, y = ("%{" + axis + (":.2%}" if axis in figure.shares else ":,.6~r}") for axis in "xy")
    # A label with a percent sign and a brace would be read as a template of its own.
    labels = [
        escaped(label).replace("{", "(").replace("}", ")") for label in (figure.x_label, figure.y_label)
    ]
    return f"{labels[0] or 'x'} {x}<br>{labels[1] or 'y'} {y}"


def cell_text(mark: Heatmap, value: float) -> str:
    """What is written in a cell of a matrix; nothing where it is empty."""
    if not math.isfinite(value):
        return ""
    return f"{100 * value:.1f} %" if mark.is_share else number_text(value, 3)


def _translucent(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
