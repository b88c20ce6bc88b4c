"""Learning curves of configurations: the mean of the seeds, and a band from the lowest to the highest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from assay.errors import AssayError
from assay.figure.figure import Figure, Line
from assay.quoting import counted
from assay.record.objective import is_share
from assay.record.runs.curves import read_curves

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from assay.record.runs.curves import Curve
    from assay.report.sweep.contents import Contents, Group

_LINES: Final = 16
"""Configurations drawn."""
_POINTS: Final = 120
"""Points of one line; more than a screen is wide enough to show apart, and 1.5 MB for the whole page."""
_METRICS: Final = 4
_FAR: Final = 100
"""Interquartile ranges off at which a value, such as the loss of a run that diverged, is out of sight."""
_NEAR: Final = 3
"""Interquartile ranges that are then shown at most."""


def curve_figures(contents: Contents, groups: Sequence[Group]) -> tuple[list[Figure], list[str]]:
    """One figure per metric: the objectives, then the losses that were logged.

    Args:
        contents: Of the page.
        groups: From the best to the worst.

    Returns:
        The figures, and what could not be read, one sentence each.
    """
    problems: list[str] = []
    read: list[tuple[str, list[dict[str, Curve]]]] = []
    for rank, group in enumerate(groups, 1):
        if len(read) == _LINES:
            break
        curves = [_curves(job.run_dir, job.name, problems) for job in group.jobs if job.run_dir is not None]
        if any(curves):
            read.append((f"{rank}: {group.words}", [one for one in curves if one]))
    names = [aim.name for aim in contents.objectives]
    wanted = [*names, *(f"train/{name.rpartition('/')[2]}" for name in names), "train/loss", "val/loss"]
    logged = {
        name for _, curves in read for one in curves for name, curve in one.items() if len(curve.steps) > 1
    }
    shown = [name for name in dict.fromkeys(wanted) if name in logged][:_METRICS]
    return [_figure(name, read, len(groups)) for name in shown], problems


def _figure(name: str, read: list[tuple[str, list[dict[str, Curve]]]], total: int) -> Figure:
    lines = []
    for label, curves in read:
        line = line_of(label, [one[name] for one in curves if name in one])
        if line is not None:
            lines.append(line)
    most = f"Of {total} configurations the best {len(lines)} with a curve. " if len(lines) < total else ""
    band = any(line.low is not None for line in lines)
    how = "Mean of the seeds; the band reaches from the lowest to the highest. " if band else ""
    shown, cut = _shown(lines)
    slug = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower())
    return Figure(
        name=f"curve_{slug}",
        title=name,
        marks=tuple(lines),
        x_label="optimizer step",
        y_label=name,
        shares="y" * is_share(name),
        y_range=shown,
        is_wide=True,
        caption=f"{most}{how}{cut}".strip(),
    )


def _shown(lines: Sequence[Line]) -> tuple[tuple[float, float] | None, str]:
    """What the axis shows where some values lie so far off that all others would be one flat line."""
    values = np.concatenate([np.asarray(line.y, dtype=float) for line in lines] or [np.zeros(1)])
    first, third = np.quantile(values, (0.25, 0.75))
    spread = third - first
    if not 0 < spread < np.inf or not (
        values.min() < first - _FAR * spread or values.max() > third + _FAR * spread
    ):
        return None, ""
    near = values[(values >= first - _NEAR * spread) & (values <= third + _NEAR * spread)]
    low, high = float(near.min()), float(near.max())
    room = (high - low) / 20
    cut = f"{counted(len(values) - len(near), 'point')} far outside: a double click shows all."
    return (low - room, high + room), cut


def line_of(label: str, curves: Sequence[Curve]) -> Line | None:
    """The mean of several runs' curves; where they were logged at other steps, straight lines lie between.

    Args:
        label: For the legend.
        curves: Of one metric, one per seed.

    Returns:
        At most 120 points, the first and the last among them; None where there are none that are finite.
    """
    whole = [one for one in map(_finite, curves) if len(one[0])]
    if not whole:
        return None
    steps = np.unique(np.concatenate([one[0] for one in whole]))
    if len(steps) > _POINTS:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, _POINTS).round().astype(int))]
    values = np.stack([np.interp(steps, x, y, left=np.nan, right=np.nan) for x, y in whole])
    some = ~np.isnan(values).all(axis=0)  # two runs may have been logged at no common time
    steps, values = steps[some], values[:, some]
    mean = np.nanmean(values, axis=0)
    if len(whole) < 2:
        return Line(label, steps, mean)
    return Line(label, steps, mean, np.nanmin(values, axis=0), np.nanmax(values, axis=0))


def _finite(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps, each once, and the last value at each."""
    last = dict(zip(curve.steps, curve.values, strict=True))
    x, y = np.array(list(last), dtype=float), np.array(list(last.values()), dtype=float)
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    return x[np.isfinite(y)], y[np.isfinite(y)]


def _curves(run_dir: Path, name: str, problems: list[str]) -> dict[str, Curve]:
    try:
        return read_curves(run_dir)
    except AssayError as error:
        problems.append(f"{name}: {error.message}")
        return {}
