"""The figures of a sweep, or of several runs, in the order of the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from assay.analysis.objective import format_score, is_share
from assay.analysis.read_runs import read_curves
from assay.analysis.statistics import importance
from assay.errors import AssayError
from assay.figure.figure import Bars, Figure, Line, Points, is_logarithmic
from assay.quoting import counted, reads_as_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assay.analysis.objective import Objective
    from assay.analysis.read_runs import Curve
    from assay.analysis.rows import Row


MISSING: Final = "–"
_IN_DECADES: Final = ("lr", "learning_rate", "weight_decay", "eps")
"""Ends of keys whose values are compared by their ratios, however few they are."""


@final
@dataclass(frozen=True)
class Column:
    """One key in which configurations differ."""

    key: str
    values: tuple[float | str, ...]
    is_log: bool = False

    @property
    def is_number(self) -> bool:
        """Whether every value is one."""
        return all(isinstance(value, float) for value in self.values)


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """The keys in which some configurations differ, in the order in which they appear."""
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    columns = [_column(key, [row.values.get(key) for row in rows]) for key in keys]
    return [column for column in columns if len(set(column.values)) > 1]


def _column(key: str, texts: Sequence[str | None]) -> Column:
    there = [text for text in texts if text is not None]
    finite = all(reads_as_number(text) and math.isfinite(float(text)) for text in there)
    if not there or not finite or len(there) < len(texts):
        return Column(key, tuple(MISSING if text is None else text for text in texts))
    values = tuple(float(text) for text in there)
    is_log = key.endswith(_IN_DECADES) or is_logarithmic(values)
    return Column(key, values, min(values) > 0 and is_log)


_MOST: Final = 10
"""Parameters with a figure."""
_MOST_BARS: Final = 30


def parameter_figures(rows: Sequence[Row], aim: Objective) -> tuple[list[Figure], list[str]]:
    """The importance of the parameters, and the score over each."""
    scored = [(row, row.scores[aim.name].mean) for row in rows if row.finished and aim.name in row.scores]
    columns = columns_of([row for row, _ in scored])
    if len(scored) < 2 or not columns:
        few = f"Fewer than two configurations have finished with a {aim.name}."
        return [], [few] if len(rows) > 1 else []
    shares, message = importance([row.values for row, _ in scored], [mean for _, mean in scored])
    notes = [] if shares else [f"Importance: {message}"]
    figures = []
    if shares:
        order = [key for key, _ in shares]
        columns.sort(key=lambda column: order.index(column.key))
        bars = Bars("", order[:_MOST], [share for _, share in shares[:_MOST]])
        title = "Importance of parameters"
        figures.append(
            Figure(
                "importance", title, (bars,), y_label="share of the importance", shares="y", caption=message
            )
        )
    if len(columns) > _MOST:
        notes.append(f"The first {_MOST} of {len(columns)} parameters.")
    figures += [_slice(column, scored, aim, number) for number, column in enumerate(columns[:_MOST], 1)]
    return figures, notes


def tradeoff(rows: Sequence[Row], objectives: Sequence[Objective]) -> Figure | None:
    """The first two objectives against each other, with their Pareto front."""
    aims = objectives[:2]
    names = [aim.name for aim in aims]
    both = [row for row in rows if row.finished and all(name in row.scores for name in names)]
    if len(aims) < 2 or len(both) < 2:
        return None
    x, y = np.array([[row.scores[name].mean for name in names] for row in both]).T
    front = pareto_front(x, y, aims[0].direction, aims[1].direction)
    better = ["higher" if aim.direction == "maximize" else "lower" for aim in aims]
    labels = [f"{aim.name} ({word} is better)" for aim, word in zip(aims, better, strict=True)]
    return Figure(
        "tradeoff",
        f"{aims[0].name} against {aims[1].name}",
        (
            Line("Pareto front", x[front], y[front], is_reference=True),
            Points("", x, y, [row.label for row in both]),
        ),
        labels[0],
        labels[1],
        shares="x" * is_share(aims[0].name) + "y" * is_share(aims[1].name),
        is_wide=True,
    )


def pareto_front(x: NDArray[np.float64], y: NDArray[np.float64], first: str, second: str) -> list[int]:
    """Points that no other beats in both directions, along the front."""
    costs_x, costs_y = (values if way == "minimize" else -values for values, way in ((x, first), (y, second)))
    front: list[int] = []
    for index in np.lexsort((costs_y, costs_x)):
        if not front or costs_y[index] < costs_y[front[-1]]:
            front.append(int(index))
    return front


def _slice(column: Column, scored: Sequence[tuple[Row, float]], aim: Objective, number: int) -> Figure:
    mark: Points | Bars
    if column.is_number:
        texts = [f"{row.label}\n{aim.name} {format_score(aim.name, mean)}" for row, mean in scored]
        x = [float(value) for value in column.values]
        mark, caption = Points("", x, [mean for _, mean in scored], texts), ""
    else:
        together: dict[str, list[float]] = {}
        for value, (_, mean) in zip(column.values, scored, strict=True):
            together.setdefault(str(value), []).append(mean)  # the best configuration first
        words = list(together)[:_MOST_BARS]
        means = [float(np.mean(together[word])) for word in words]
        low, high = ([end(together[word]) for word in words] for end in (min, max))
        texts = [
            f"{word}: mean {format_score(aim.name, mean)} of {len(together[word])}"
            for word, mean in zip(words, means, strict=True)
        ]
        mark = Bars("", words, means, low, high, texts)
        caption = "Mean of the configurations with each value; from the lowest to the highest."
        caption += f" The best {len(words)} of {len(together)} values." if len(words) < len(together) else ""
    return Figure(
        f"slice_{number}",
        column.key,
        (mark,),
        column.key,
        aim.name,
        log="x" * column.is_log,
        shares="y" * is_share(aim.name),
        caption=caption,
    )


_CURVES: Final = 16
"""Configurations drawn."""
_POINTS: Final = 120
"""Points of one line; more than a screen is wide enough to show apart, and 1.5 MB for the whole page."""
_METRICS: Final = 4
_FAR: Final = 100
"""Interquartile ranges off at which a value, such as the loss of a run that diverged, is out of sight."""
_NEAR: Final = 3
"""Interquartile ranges that are then shown at most."""


def curve_figures(rows: Sequence[Row], aims: Sequence[Objective]) -> tuple[list[Figure], list[str]]:
    """One figure per metric: the objectives, then the losses that were logged."""
    problems: list[str] = []
    read: dict[str, list[dict[str, Curve]]] = {}
    for rank, row in enumerate(rows, 1):
        if len(read) == _CURVES:
            break
        curves = []
        for run in row.counted:
            try:
                curves += [read_curves(run.path)] if run.path.is_dir() and not run.path.is_symlink() else []
            except AssayError as error:
                problems.append(error.message)
        if any(curves):
            read[f"{rank}: {row.words}"] = curves
    names = [aim.name for aim in aims]
    wanted = [*names, *(f"train/{name.rpartition('/')[2]}" for name in names), "train/loss", "val/loss"]
    runs = [one for curves in read.values() for one in curves]
    logged = {name for one in runs for name, curve in one.items() if len(curve.steps) > 1}
    shown = [name for name in dict.fromkeys(wanted) if name in logged][:_METRICS]
    return [_curves(name, read, len(rows)) for name in shown], problems


def _curves(name: str, read: Mapping[str, list[dict[str, Curve]]], total: int) -> Figure:
    found = [line_of(label, [one[name] for one in curves if name in one]) for label, curves in read.items()]
    lines = [line for line in found if line is not None]
    caption = [f"Of {total} configurations the best {len(lines)} with a curve."] if len(lines) < total else []
    if any(line.low is not None for line in lines):
        caption.append("Mean of the seeds; the band reaches from the lowest to the highest.")
    values = np.concatenate([np.zeros(0), *(np.asarray(line.y, dtype=float) for line in lines)])
    shown, (first, third) = None, np.quantile(values, (0.25, 0.75)) if len(values) else (0.0, 0.0)
    off = np.maximum(first - values, values - third)
    spread = third - first
    if 0 < spread < np.inf and (off > _FAR * spread).any():  # all others would be one flat line
        near = values[off <= _NEAR * spread]
        room = np.ptp(near) / 20
        shown = float(near.min() - room), float(near.max() + room)
        caption.append(f"{counted(len(values) - len(near), 'point')} far outside: a double click shows all.")
    slug = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower())
    return Figure(
        f"curve_{slug}",
        name,
        tuple(lines),
        "optimizer step",
        name,
        shares="y" * is_share(name),
        y_range=shown,
        is_wide=True,
        caption=" ".join(caption),
    )


def line_of(label: str, curves: Sequence[Curve]) -> Line | None:
    """The mean of several runs' curves; where they were logged at other steps, straight lines lie between."""
    whole = []
    for curve in curves:
        last = dict(zip(curve.steps, curve.values, strict=True))  # the last value at each step
        points = np.array([(step, last[step]) for step in sorted(last) if math.isfinite(last[step])])
        whole += [points.T.astype(float)] if len(points) else []
    if not whole:
        return None
    steps = np.unique(np.concatenate([x for x, _ in whole]))
    if len(steps) > _POINTS:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, _POINTS).round().astype(int))]
    values = np.stack([np.interp(steps, x, y, left=np.nan, right=np.nan) for x, y in whole])
    some = ~np.isnan(values).all(axis=0)  # two runs may have been logged at no common time
    steps, values = steps[some], values[:, some]
    mean = np.nanmean(values, axis=0)
    if len(whole) < 2:
        return Line(label, steps, mean)
    return Line(label, steps, mean, np.nanmin(values, axis=0), np.nanmax(values, axis=0))
