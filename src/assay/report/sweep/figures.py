"""The figures of a sweep, or of several runs, in the order of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from assay.figure.figure import Bars, Figure, Line, ParallelCoordinates, Points
from assay.record.runs.importance import importance
from assay.record.score_text import format_score, is_share
from assay.report.sweep.columns import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.record.objective import Objective
    from assay.report.sweep.columns import Column
    from assay.report.sweep.contents import Contents
    from assay.report.sweep.groups import Group

_ROWS: Final = 500
"""Lines across parallel axes."""
_AXES: Final = 10
"""Parameters with an axis, a bar and a slice of their own."""


def parameter_figures(contents: Contents, groups: Sequence[Group]) -> tuple[list[Figure], list[str]]:
    """What the parameters have to do with the scores: all at once, which matter, and one by one.

    Args:
        contents: Of the page.
        groups: Configurations, from the best to the worst.

    Returns:
        The figures, and what could not be drawn and why, one sentence each.
    """
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
    """The first two objectives against each other, and what no other configuration beats in both.

    Returns:
        None with one objective, or fewer than two configurations with both.
    """
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
    """Points that no other beats in both directions, along the front.

    Args:
        x: `[N]`, scores for the first objective.
        y: `[N]`, for the second.
        first: `minimize` or `maximize`.
        second: The same.

    >>> import numpy as np
    >>> pareto_front(np.array([1.0, 2.0, 3.0, 2.5]), np.array([3.0, 2.0, 1.0, 2.5]), "minimize", "minimize")
    [0, 1, 2]
    """
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
