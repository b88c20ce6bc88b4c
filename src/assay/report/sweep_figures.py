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
from assay.figure.figure import Bars, Figure, Line, ParallelCoordinates, Points, is_logarithmic
from assay.quoting import counted, reads_as_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assay.analysis.objective import Objective
    from assay.analysis.read_runs import Curve
    from assay.report.read_sweep import Contents, Group


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


def columns_of(groups: Sequence[Group], scales: Mapping[str, bool]) -> list[Column]:
    """The keys in which some configurations differ, in the order in which they appear."""
    keys = list(dict.fromkeys(key for group in groups for key in group.values))
    columns = [_column(key, [group.values.get(key) for group in groups], scales.get(key)) for key in keys]
    return [column for column in columns if len(set(column.values)) > 1]


def _column(key: str, texts: Sequence[str | None], scale: bool | None) -> Column:
    there = [text for text in texts if text is not None]
    finite = all(reads_as_number(text) and math.isfinite(float(text)) for text in there)
    if not there or not finite or len(there) < len(texts):
        return Column(key, tuple(MISSING if text is None else text for text in texts))
    values = tuple(float(text) for text in there)
    if scale is None:
        scale = key.endswith(_IN_DECADES) or is_logarithmic(values)
    return Column(key, values, min(values) > 0 and scale)


_ROWS: Final = 500
"""Lines across parallel axes."""
_AXES: Final = 10
"""Parameters with an axis, a bar and a slice of their own."""
_MOST_BARS: Final = 30


def parameter_figures(contents: Contents, groups: Sequence[Group]) -> tuple[list[Figure], list[str]]:
    """What the parameters have to do with the scores: all at once, which matter, and one by one."""
    aim = contents.objectives[0]
    scored = [(group, score.mean) for group in groups if (score := group.scores[0]) is not None]
    columns = columns_of([group for group, _ in scored], contents.scales)
    if len(scored) < 2 or not columns:
        few = f"Fewer than two configurations have finished with a {aim.name}."
        return [], [few] if len(groups) > 1 else []
    shares, told = importance([group.values for group, _ in scored], [mean for _, mean in scored])
    order = [key for key, _ in shares]
    columns = sorted(columns, key=lambda column: order.index(column.key) if shares else 0)
    left_out = f" The {_AXES} that matter most of {len(columns)}." if len(columns) > _AXES else ""
    columns = columns[:_AXES]
    figures = [_parallel(contents, [group for group, _ in scored], columns, left_out)]
    if shares:
        bars = Bars("", order[:_AXES], [share for _, share in shares[:_AXES]])
        label = f"share of the variance of {aim.name}"
        caption = f"{told}{left_out}"
        figures.append(
            Figure("importance", "Importance of parameters", (bars,), y_label=label, caption=caption)
        )
    figures += [_slice(column, scored, aim, number) for number, column in enumerate(columns, 1)]
    return figures, [] if shares else [f"Importance: {told}"]


def tradeoff(contents: Contents, groups: Sequence[Group]) -> Figure | None:
    """The first two objectives against each other, and what no other configuration beats in both."""
    if len(contents.objectives) < 2:
        return None
    aims = first, second = contents.objectives[:2]
    both = [group for group in groups if group.scores[0] and group.scores[1]]
    if len(both) < 2:
        return None
    x, y = (np.array([group.scores[at].mean for group in both if group.scores[at]]) for at in (0, 1))  # type: ignore[union-attr]  # none is None
    front = pareto_front(x, y, first.direction, second.direction)
    line = Line("not beaten in both", x[front], y[front], is_reference=True)
    labels = [
        f"{aim.name} ({'higher' if aim.direction == 'maximize' else 'lower'} is better)" for aim in aims
    ]
    return Figure(
        "tradeoff",
        f"{first.name} against {second.name}",
        (line, Points("", x, y, [_said(group, contents.objectives) for group in both])),
        labels[0],
        labels[1],
        shares="x" * is_share(first.name) + "y" * is_share(second.name),
        is_wide=True,
        caption=f"One point per configuration. No other beats the {len(front)} on the line in both.",
    )


def pareto_front(x: NDArray[np.float64], y: NDArray[np.float64], first: str, second: str) -> list[int]:
    """Points that no other beats in both directions, along the front."""
    costs_x, costs_y = (values if way == "minimize" else -values for values, way in ((x, first), (y, second)))
    front: list[int] = []
    for index in np.lexsort((costs_y, costs_x)):
        if not front or costs_y[index] < costs_y[front[-1]]:
            front.append(int(index))
    return front


def _parallel(
    contents: Contents, groups: Sequence[Group], columns: Sequence[Column], left_out: str
) -> Figure:
    chosen = np.unique(np.linspace(0, len(groups) - 1, min(len(groups), _ROWS)).round().astype(int))
    if len(chosen) < len(groups):
        left_out += f" {len(chosen)} of {len(groups)}, evenly from the best to the worst."
    shown: dict[str, Sequence[float | str]] = {
        column.key: [column.values[at] for at in chosen] for column in columns
    }
    for place, aim in enumerate(contents.objectives):
        scores = [groups[at].scores[place] for at in chosen]
        shown[aim.name] = [math.nan if score is None else score.mean for score in scores]
    lines = ParallelCoordinates(
        shown,
        contents.objectives[0].name,
        frozenset(column.key for column in columns if column.is_log),
        [_said(groups[at], contents.objectives) for at in chosen],
        frozenset(aim.name for aim in contents.objectives if is_share(aim.name)),
    )
    caption = (
        "One line per finished configuration. A box drawn across lines keeps those alone; a double click "
        f"brings back the others.{left_out}"
    )
    return Figure("parallel_coordinates", "All configurations", (lines,), is_wide=True, caption=caption)


def _slice(column: Column, scored: Sequence[tuple[Group, float]], aim: Objective, number: int) -> Figure:
    mark: Points | Bars
    if column.is_number:
        texts = [f"{group.label}\n{aim.name} {format_score(aim.name, mean)}" for group, mean in scored]
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


def _said(group: Group, aims: Sequence[Objective]) -> str:
    pairs = zip(aims, group.scores, strict=True)
    scores = (f"{aim.name} {format_score(aim.name, score.mean)}" for aim, score in pairs if score is not None)
    return "\n".join((group.label, *scores))


_CURVES: Final = 16
"""Configurations drawn."""
_POINTS: Final = 120
"""Points of one line; more than a screen is wide enough to show apart, and 1.5 MB for the whole page."""
_METRICS: Final = 4
_FAR: Final = 100
"""Interquartile ranges off at which a value, such as the loss of a run that diverged, is out of sight."""
_NEAR: Final = 3
"""Interquartile ranges that are then shown at most."""


def curve_figures(contents: Contents, groups: Sequence[Group]) -> tuple[list[Figure], list[str]]:
    """One figure per metric: the objectives, then the losses that were logged."""
    problems: list[str] = []
    read: dict[str, list[dict[str, Curve]]] = {}
    for rank, group in enumerate(groups, 1):
        if len(read) == _CURVES:
            break
        curves = []
        for job in group.jobs:
            try:
                curves += [read_curves(job.run_dir)] if job.run_dir is not None else []
            except AssayError as error:
                problems.append(f"{job.name}: {error.message}")
        if any(curves):
            read[f"{rank}: {group.words}"] = curves
    names = [aim.name for aim in contents.objectives]
    wanted = [*names, *(f"train/{name.rpartition('/')[2]}" for name in names), "train/loss", "val/loss"]
    runs = [one for curves in read.values() for one in curves]
    logged = {name for one in runs for name, curve in one.items() if len(curve.steps) > 1}
    shown = [name for name in dict.fromkeys(wanted) if name in logged][:_METRICS]
    return [_curves(name, read, len(groups)) for name in shown], problems


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
