"""The figures of a sweep, or of several runs, in the order of the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from assay.analysis.objective import format_score, is_share
from assay.analysis.statistics import importance
from assay.figure.figure import Bars, Figure, Line, ParallelCoordinates, Points, Spans, is_logarithmic
from assay.quoting import counted, duration, reads_as_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.analysis.objective import Objective
    from assay.report.read_sweep import Contents, Group, Job, Span


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


def timeline(contents: Contents) -> Figure | None:
    """The times in which jobs ran; None where none is known."""
    ran = sorted(((span, job) for job in contents.jobs for span in job.spans), key=lambda pair: pair[0].start)
    if not ran:
        return None
    begin = ran[0][0].start
    lanes = _lanes([span for span, _ in ran])
    hosts = list(dict.fromkeys(span.place for span, _ in ran))
    several = {
        place: max(lane for (span, _), lane in zip(ran, lanes, strict=True) if span.place == place)
        for place in hosts
    }
    order = sorted(
        range(len(ran)), key=lambda at: (hosts.index(ran[at][0].place), lanes[at], ran[at][0].start)
    )
    rows = [
        f"{ran[at][0].place or 'unknown host'}{f' · {lanes[at] + 1}' if several[ran[at][0].place] else ''}"
        for at in order
    ]
    spans = Spans(
        rows,
        [(ran[at][0].start - begin).total_seconds() for at in order],
        [(ran[at][0].end - begin).total_seconds() for at in order],
        [_text(*ran[at], is_sweep=contents.is_sweep) for at in order],
        [ran[at][0].status for at in order],
    )
    busy = sum((span.end - span.start).total_seconds() for span, _ in ran)
    length = (max(span.end for span, _ in ran) - begin).total_seconds()
    caption = (
        f"From {begin:%Y-%m-%d %H:%M:%S} UTC on: {duration(busy)} of "
        f"{counted(len(contents.jobs), 'job' if contents.is_sweep else 'run')} in {duration(length)}."
    )
    return Figure(
        "timeline",
        "What ran where",
        (spans,),
        x_label="seconds since the first start",
        is_wide=True,
        caption=caption,
    )


def _lanes(spans: list[Span]) -> list[int]:
    """The first row of its place in which each span has room; spans in the order of their starts."""
    ends: dict[str, list[Span]] = {}
    lanes = []
    for span in spans:
        here = ends.setdefault(span.place, [])
        free = next((lane for lane, before in enumerate(here) if before.end <= span.start), len(here))
        here[free : free + 1] = [span]
        lanes.append(free)
    return lanes


def _text(span: Span, job: Job, *, is_sweep: bool) -> str:
    attempt = f", attempt {span.attempt}" if span.attempt > 1 else ""
    lasted = duration((span.end - span.start).total_seconds())
    seed = f" seed={job.seed}" if job.seed else ""
    name = f"job {job.name}" if is_sweep else job.name
    return f"{name}{attempt}: {span.status}, {lasted}\n{job.label if job.values else ''}{seed}"


_ROWS: Final = 500
"""Lines across parallel axes."""
_AXES: Final = 10
"""Parameters with an axis, a bar and a slice of their own."""


def parameter_figures(contents: Contents, groups: Sequence[Group]) -> tuple[list[Figure], list[str]]:
    """What the parameters have to do with the scores: all at once, which matter, and one by one."""
    aim = contents.objectives[0]
    scored = [group for group in groups if group.scores[0] is not None]
    columns = columns_of(scored, contents.scales)
    if len(scored) < 2 or not columns:
        return [], [f"Fewer than two configurations have finished with a {aim.name}."] if len(
            groups
        ) > 1 else []
    scores = [group.scores[0].mean for group in scored if group.scores[0] is not None]
    shares, told = importance([group.values for group in scored], scores)
    notes = [] if shares else [f"Importance: {told}"]
    if shares:
        place = {key: index for index, (key, _) in enumerate(shares)}
        columns = sorted(columns, key=lambda column: place[column.key])
    left_out = f" The {_AXES} that matter most of {len(columns)}." if len(columns) > _AXES else ""
    columns = columns[:_AXES]
    figures = [_parallel(contents, scored, columns, left_out)]
    if shares:
        figures.append(
            Figure(
                "importance",
                "Importance of parameters",
                (Bars("", [key for key, _ in shares[:_AXES]], [share for _, share in shares[:_AXES]]),),
                y_label=f"share of the variance of {aim.name}",
                caption=f"{told}{left_out}",
            )
        )
    figures += [_slice(column, scored, aim, number) for number, column in enumerate(columns, 1)]
    return figures, notes


def tradeoff(contents: Contents, groups: Sequence[Group]) -> Figure | None:
    """The first two objectives against each other, and what no other configuration beats in both."""
    if len(contents.objectives) < 2:
        return None
    first, second = contents.objectives[:2]
    both = [
        (group, group.scores[0].mean, group.scores[1].mean)
        for group in groups
        if group.scores[0] and group.scores[1]
    ]
    if len(both) < 2:
        return None
    x, y = np.array([one[1] for one in both]), np.array([one[2] for one in both])
    front = pareto_front(x, y, first.direction, second.direction)
    return Figure(
        "tradeoff",
        f"{first.name} against {second.name}",
        (
            Line("not beaten in both", x[front], y[front], is_reference=True),
            Points("", x, y, [_said(group, contents) for group, _, _ in both]),
        ),
        x_label=_named(first),
        y_label=_named(second),
        shares="x" * is_share(first.name) + "y" * is_share(second.name),
        is_wide=True,
        caption=f"One point per configuration. No other beats the {len(front)} on the line in both.",
    )


def pareto_front(x: np.ndarray, y: np.ndarray, first: str, second: str) -> list[int]:
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
    shown: dict[str, Sequence[float | str]] = {column.key: column.values for column in columns}
    for place, aim in enumerate(contents.objectives):
        scores = [group.scores[place] for group in groups]
        shown[aim.name] = [score.mean if score is not None else np.nan for score in scores]
    chosen = np.unique(np.linspace(0, len(groups) - 1, min(len(groups), _ROWS)).round().astype(int))
    if len(chosen) < len(groups):
        left_out += f" {len(chosen)} of {len(groups)}, evenly from the best to the worst."
        shown = {key: [values[index] for index in chosen] for key, values in shown.items()}
    return Figure(
        "parallel_coordinates",
        "All configurations",
        (
            ParallelCoordinates(
                shown,
                contents.objectives[0].name,
                frozenset(column.key for column in columns if column.is_log),
                [_said(groups[index], contents) for index in chosen],
                frozenset(aim.name for aim in contents.objectives if is_share(aim.name)),
            ),
        ),
        is_wide=True,
        caption=f"One line per finished configuration. A box drawn across lines keeps those alone; a double "
        f"click brings back the others.{left_out}",
    )


def _slice(column: Column, groups: Sequence[Group], aim: Objective, number: int) -> Figure:
    scores = [group.scores[0] for group in groups]
    means = [score.mean for score in scores if score is not None]
    name, title, shares = f"slice_{number}", column.key, "y" * is_share(aim.name)
    if column.is_number:
        x = [value for value in column.values if isinstance(value, float)]
        points = Points(
            "",
            x,
            means,
            [
                f"{group.label}\n{aim.name} {format_score(aim.name, mean)}"
                for group, mean in zip(groups, means, strict=True)
            ],
        )
        return Figure(
            name,
            title,
            (points,),
            x_label=column.key,
            y_label=aim.name,
            log="x" * column.is_log,
            shares=shares,
        )
    together: dict[str, list[float]] = {}
    for value, mean in zip(column.values, means, strict=True):
        together.setdefault(str(value), []).append(mean)
    best = {word: (min if aim.direction == "minimize" else max)(found) for word, found in together.items()}
    words = sorted(together, key=lambda word: aim.sort_key(best[word]))
    most = words[:30]
    bars = Bars(
        "",
        most,
        [float(np.mean(together[word])) for word in most],
        [min(together[word]) for word in most],
        [max(together[word]) for word in most],
        [
            f"{word}: mean {format_score(aim.name, float(np.mean(together[word])))} of {len(together[word])}"
            for word in most
        ],
    )
    cut = f" The best {len(most)} of {len(words)} values." if len(words) > len(most) else ""
    caption = f"Mean of the configurations with each value; from the lowest to the highest.{cut}"
    return Figure(name, title, (bars,), x_label=column.key, y_label=aim.name, shares=shares, caption=caption)


def _named(aim: Objective) -> str:
    return f"{aim.name} ({'higher' if aim.direction == 'maximize' else 'lower'} is better)"


def _said(group: Group, contents: Contents) -> str:
    scores = (
        f"{aim.name} {format_score(aim.name, score.mean)}"
        for aim, score in zip(contents.objectives, group.scores, strict=True)
        if score is not None
    )
    return "\n".join((group.label, *scores))
