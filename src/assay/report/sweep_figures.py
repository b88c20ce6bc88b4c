"""The figures of a sweep, or of several runs, in the order of the page."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Final

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

    from assay.analysis.comparison import Row
    from assay.analysis.objective import Objective
    from assay.analysis.read_runs import Curve


MISSING: Final = "–"
_IN_DECADES: Final = ("lr", "learning_rate", "weight_decay", "eps")
"""Ends of keys whose values are compared by their ratios, however few they are."""


_MOST: Final = 10
"""Parameters with a figure."""
_MOST_BARS: Final = 30


def parameter_figures(rows: Sequence[Row], aim: Objective) -> tuple[list[Figure], list[str]]:
    """The importance of the parameters, and the score over each."""
    scored = [(row, row.scores[aim.name].mean) for row in rows if row.finished and aim.name in row.scores]
    typed = dict.fromkeys(key for row, _ in scored for key in row.values)
    keys = [key for key in typed if len({row.values.get(key) for row, _ in scored}) > 1]
    if len(scored) < 2 or not keys:
        few = f"Fewer than two configurations have finished with a {aim.name}."
        return [], [few] if len(rows) > 1 else []
    shares, message = importance([row.values for row, _ in scored], [mean for _, mean in scored])
    notes = [] if shares else [f"Importance: {message}"]
    figures = []
    if shares:
        order = [key for key, _ in shares]
        keys.sort(key=order.index)
        bars = Bars("", order[:_MOST], [share for _, share in shares[:_MOST]])
        label = "share of the importance"
        figures.append(
            Figure("importance", "Importance of parameters", (bars,), "", label, shares="y", caption=message)
        )
    if len(keys) > _MOST:
        notes.append(f"The first {_MOST} of {len(keys)} parameters.")
    figures += [_slice(key, scored, aim, f"slice_{number}") for number, key in enumerate(keys[:_MOST], 1)]
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


def _slice(key: str, scored: Sequence[tuple[Row, float]], aim: Objective, name: str) -> Figure:
    mark: Points | Bars
    texts, means = [row.values.get(key) or MISSING for row, _ in scored], [mean for _, mean in scored]
    log, caption = "", ""
    if all(reads_as_number(text) and math.isfinite(float(text)) for text in texts):
        x = [float(text) for text in texts]
        log = "x" * (min(x) > 0 and (key.endswith(_IN_DECADES) or is_logarithmic(x)))
        labels = [f"{row.label}\n{aim.name} {format_score(aim.name, mean)}" for row, mean in scored]
        mark = Points("", x, means, labels)
    else:
        together: dict[str, list[float]] = {}
        for text, mean in zip(texts, means, strict=True):
            together.setdefault(text, []).append(mean)  # the best configuration first
        words = list(together)[:_MOST_BARS]
        low, high, middle = ([end(together[word]) for word in words] for end in (min, max, fmean))
        labels = [
            f"{word}: mean {format_score(aim.name, mean)} of {len(together[word])}"
            for word, mean in zip(words, middle, strict=True)
        ]
        mark = Bars("", words, middle, low, high, labels)
        caption = "Mean of the configurations with each value; from the lowest to the highest."
        caption += f" The best {len(words)} of {len(together)} values." if len(words) < len(together) else ""
    shares = "y" * is_share(aim.name)
    return Figure(name, key, (mark,), key, aim.name, log=log, shares=shares, caption=caption)


_CURVES: Final = 16
"""Configurations drawn."""
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
    """The mean of several runs' curves at each step, of those that were logged there."""
    import pandas as pd

    steps = [step for curve in curves for step in curve.steps]
    values = pd.Series([value for curve in curves for value in curve.values], index=steps, dtype=float)
    found = values[np.isfinite(values)].groupby(level=0).agg(["mean", "min", "max"])
    if found.empty:
        return None
    x, mean, low, high = found.index.to_numpy(), *found.to_numpy().T
    return Line(label, x, mean) if len(curves) < 2 else Line(label, x, mean, low, high)
