"""By which score configurations are ordered, and which of two is better."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from assay.config.did_you_mean import did_you_mean, named
from assay.errors import AssayError, ConfigError
from assay.record.journal import FILE as JOURNAL
from assay.record.journal import Journal
from assay.record.objective import is_better_low
from assay.record.runs.config_values import ConfigValues, unlike_data, unlike_losses
from assay.terminal import in_a_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.record.runs.run import Run
    from assay.record.runs.statistics import Mean


@final
@dataclass(frozen=True)
class Ranking:
    """What makes a row better than another.

    Attributes:
        metric: The score.
        direction: `min` or `max`; empty where nobody knows.
        notes: What to bear in mind, one sentence each.
        losses: Where the metric is a loss that is not the same quantity in all runs, in what it differs, by
            key: then no run is the best.
        data: Kinds of data, where they differ and nobody has asked for this metric: then no run is, either.
    """

    metric: str
    direction: str
    notes: tuple[str, ...] = ()
    losses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether a run can be the best."""
        return bool(self.direction) and not self.losses and not self.data

    def sort_key(self, score: Mean | None) -> tuple[bool, float]:
        """Orders rows from the best to the worst, those without a score last."""
        if score is None:
            return True, 0.0
        return False, -score.mean if self.direction == "max" else score.mean


def ranking_of(runs: Sequence[Run], asked: str = "", configs: ConfigValues | None = None) -> Ranking | None:
    """What to order runs by.

    Args:
        runs: Those that are compared.
        asked: A metric, or `METRIC:min`, `METRIC:max`; by default what the checkpoints of most runs are kept
            by, or where their losses are not the same, another score of the validation.
        configs: Reads what was not typed.

    Returns:
        None where no run has a score.

    Raises:
        ConfigError: No run has the metric.
    """
    there = dict.fromkeys(name for run in runs for name in run.metrics)
    there |= dict.fromkeys(run.best["monitor"] for run in runs if run.best)
    configs = configs or ConfigValues()
    metric, colon, stated = asked.rpartition(":")
    if not colon or stated not in ("min", "max") or asked in there:
        metric, stated = asked, ""
    if not metric:
        metric = _default(runs, there, configs)
    if metric not in there:
        if not runs or not metric:
            return None
        raise no_such_metric(metric, there)
    direction, notes = (stated, []) if stated else _direction(metric, runs)
    losses, data = _unlike_losses(metric, runs, configs), tuple(unlike_data(runs, configs))
    if losses:
        notes.append(f"{metric} is not the same quantity in all rows: {in_words(losses)}")
    if data:
        notes.append(
            f"rows are of different data ({', '.join(data)}): their scores are not of the same samples"
        )
    return Ranking(metric, direction, tuple(notes), losses, () if asked else data)


def default_metric(paths: Sequence[Path], runs: Sequence[Run]) -> str:
    """What the sweep was after, where one sweep alone is looked at; empty where that is not known.

    Args:
        paths: As typed.
        runs: Found there.
    """
    if len(paths) != 1 or not (paths[0] / JOURNAL).is_file():
        return ""
    try:
        aims = Journal.open(paths[0], repair=False).objectives
    except AssayError:  # a damaged journal; the runs are what they are
        return ""
    name, direction = aims[0] if aims else ("", "")
    known = any(run.score(name) is not None for run in runs)
    return f"{name}:{direction[:3]}" if known else ""


def no_such_metric(metric: str, there: Iterable[str], option: str = "") -> ConfigError:
    """What is said where no run has a metric.

    Args:
        metric: As typed.
        there: Those that there are.
        option: That it was typed for.
    """
    names = sorted(map(in_a_line, there))
    near = did_you_mean(metric, names, "; ")
    return ConfigError(
        f"no run has a metric {metric!r}{near}",
        key=option,
        hint=f"there is: {named(names, metric)}" if names else "",
    )


def in_words(losses: Mapping[str, Sequence[str]]) -> str:
    """In what losses differ.

    >>> in_words({"loss.gamma": ("1", "2"), "loss.alpha": ("0.5", "null")})
    'loss.gamma=1, 2; loss.alpha=0.5, null'
    """
    return "; ".join(f"{key}={', '.join(values)}" for key, values in losses.items())


def _default(runs: Sequence[Run], there: Iterable[str], configs: ConfigValues) -> str:
    kept_by = Counter(run.best["monitor"] for run in runs if run.best)
    metric = kept_by.most_common(1)[0][0] if kept_by else ""
    if metric and not _unlike_losses(metric, runs, configs):
        return metric
    scores = [name for name in there if name.startswith("val/") and not name.endswith("loss")]
    known = [name for name in scores if any(name in run.directions for run in runs)]
    common = [name for name in known if all(name in run.metrics for run in runs if run.status == "finished")]
    every = list(there)
    rest = [name for name in every if name.startswith(("val/", "test/"))] or every
    return next(iter(common), metric or next(iter(rest), ""))


def _direction(metric: str, runs: Sequence[Run]) -> tuple[str, list[str]]:
    said = Counter(run.directions[metric] for run in runs if metric in run.directions)
    if len(said) == 1:
        return next(iter(said)), []
    if said:
        return "", [
            f"runs do not agree on whether {metric} is better high or low; --sort {metric}:max says it"
        ]
    if is_better_low(metric):
        return "min", []
    return "", [f"whether {metric} is better high or low is not known; --sort {metric}:max says it"]


def _unlike_losses(metric: str, runs: Sequence[Run], configs: ConfigValues) -> dict[str, tuple[str, ...]]:
    if not metric.endswith("loss"):
        return {}
    scored = {run.config_fingerprint: run for run in runs if run.score(metric) is not None}
    return unlike_losses((run.choices.get("loss"), configs.loss(run)) for run in scored.values())
