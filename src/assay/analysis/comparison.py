"""Many runs as one table: repetitions put together, what differs, and which is best."""

from __future__ import annotations

import operator
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from assay.analysis.objective import is_better_low
from assay.analysis.rows import Row, rank, row_of
from assay.analysis.run import (
    OF_THE_RECORD,
    ConfigValues,
    config_columns,
    is_config,
    plain_value,
    same_value,
    unlike_data,
    unlike_losses,
    value,
)
from assay.analysis.statistics import (
    LEVEL,
    PAIRED_TEST,
    WELCH,
    corrected_resampled,
    same_folds,
    welch,
)
from assay.config.did_you_mean import did_you_mean, named
from assay.errors import AssayError, ConfigError
from assay.quoting import counted, number_text
from assay.record.journal import FILE as JOURNAL
from assay.record.journal import Journal
from assay.terminal import in_a_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.analysis.run import Run


@final
@dataclass(frozen=True)
class Ranking:
    """What makes a row better than another."""

    metric: str
    direction: str
    notes: tuple[str, ...] = ()
    losses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether a run can be the best."""
        return bool(self.direction) and not self.losses and not self.data


def ranking_of(runs: Sequence[Run], asked: str = "", configs: ConfigValues | None = None) -> Ranking | None:
    """What to order runs by."""
    there = _metrics_of(runs)
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
    """What the sweep was after, where one sweep alone is looked at; empty where that is not known."""
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
    """What is said where no run has a metric."""
    names = sorted(map(in_a_line, there))
    near = did_you_mean(metric, names, "; ")
    return ConfigError(
        f"no run has a metric {metric!r}{near}",
        key=option,
        hint=f"there is: {named(names, metric)}" if names else "",
    )


def in_words(losses: Mapping[str, Sequence[str]]) -> str:
    """In what losses differ."""
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


_WRITTEN: Final = re.compile(r"\s*([^=<>!]+?)\s*(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def meeting(runs: Sequence[Run], conditions: Sequence[str], configs: ConfigValues) -> list[Run]:
    """The runs that meet every condition; of those that cannot be read, none unless it is asked for them."""
    kept = list(runs)
    for condition in conditions:
        parts = _WRITTEN.fullmatch(condition)
        if parts is None:
            raise ConfigError(
                f"{condition!r} is not a condition",
                key="--where",
                hint="--where model=mlp, or --where 'test/accuracy>0.9'",
            )
        key, sign, text = parts[1], parts[2], parts[3].strip().strip("'\"")
        values = {run.path: value(run, key, configs) for run in runs}
        if all(one is None for one in values.values()):
            raise no_such_key(key, runs, "--where")
        kept = [run for run in kept if _holds(values[run.path], sign, text)]
    return kept


def no_such_key(key: str, runs: Sequence[Run], option: str) -> ConfigError:
    """What is said where no run has a key."""
    known = [name for run in runs for name in (*run.choices, *run.typed, *run.metrics)]
    near = did_you_mean(key, dict.fromkeys((*known, *OF_THE_RECORD)))
    return ConfigError(
        f"no run has {key!r}", key=option, hint=near or "a group, a full key of the config, or a metric"
    )


def _holds(found: Any, sign: str, text: str) -> bool:
    if sign in ("=", "!="):
        same = found is not None and (same_value(found, text) or str(found) == text)
        return same == (sign == "=")
    number, bound = plain_value(found), plain_value(text)
    both = (number, bound)
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in both):
        both = (str(found), text)
        if found is None or not isinstance(bound, str):
            return False
    return _ORDERS[sign](*both)


@final
@dataclass(frozen=True)
class BestTest:
    """Whether the best row is ahead of the second by more than noise.

    Attributes:
        name: Of the test.
        p_value: Null where n is too small to say.
        verdict: In words; empty where there are no two rows to compare.
    """

    name: str = WELCH
    p_value: float | None = None
    verdict: str = ""


@final
@dataclass(frozen=True)
class Comparison:
    """A table of runs."""

    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    shared: Mapping[str, str]
    broken: tuple[Run, ...]
    ranking: Ranking | None
    best: int | None
    test: BestTest
    notes: tuple[str, ...]


def compare(
    runs: Sequence[Run],
    *,
    sort: str = "",
    where: Sequence[str] = (),
    group_by: Sequence[str] = (),
    metrics: Sequence[str] = (),
    each: bool = False,
) -> Comparison:
    """Compare runs."""
    configs = ConfigValues()
    kept = meeting(runs, where, configs)
    if runs and not kept:
        raise AssayError(f"--where: none of {counted(len(runs), 'run')} meets {' and '.join(where)}")
    broken = tuple(run for run in kept if run.status == "broken")
    read = [run for run in kept if run.status != "broken"]
    grouped = [[run] for run in _by_start(read)] if each else _grouped(read, group_by, configs)
    columns, values, notes = config_columns([group[0] for group in grouped], group_by, configs)
    found_shared = shared_values(read, columns)
    ranking = ranking_of(read, sort, configs)
    shown = _metrics_shown(read, metrics, ranking)
    rows = [row_of(group, own, shown) for group, own in zip(grouped, values, strict=True)]
    in_order = list(rows)
    if ranking is not None:
        rows = rank(rows, ranking.metric, ranking.direction)
    ranked = [row for row in rows if ranking is not None and row.finished and ranking.metric in row.scores]
    best = ranked[0] if ranked and ranking is not None and ranking.decides else None
    test = _test(ranked, ranking) if best is not None and not each else BestTest()
    if each and not sort:
        rows = in_order
    return Comparison(
        tuple(columns),
        tuple(shown),
        tuple(rows),
        found_shared,
        broken,
        ranking,
        next((number for number, row in enumerate(rows) if row is best), None),
        test,
        (*notes, *_notes(rows, ranking, group_by)),
    )


def shared_values(runs: Sequence[Run], columns: Sequence[str]) -> dict[str, str]:
    """What was typed for every one of some runs, by key, as far as no column says it."""
    if not runs:
        return {}
    first = runs[0].typed
    return {
        key: text
        for key, text in first.items()
        if key not in columns and is_config(key) and all(run.typed.get(key) == text for run in runs)
    }


def _by_start(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.started, str(run.path)))


def _grouped(runs: Sequence[Run], keys: Sequence[str], configs: ConfigValues) -> list[list[Run]]:
    together: dict[Any, list[Run]] = {}
    for run in _by_start(runs):
        if keys:
            mark: Any = tuple(plain_value(value(run, key, configs)) for key in keys)
        else:
            mark = run.config_fingerprint
        together.setdefault(mark, []).append(run)
    for number, key in enumerate(keys):
        if runs and all(mark[number] is None for mark in together):
            raise no_such_key(key, runs, "--group-by")
    return list(together.values())


def _metrics_of(runs: Sequence[Run]) -> list[str]:
    logged = (name for run in runs for name in run.metrics)
    return list(dict.fromkeys([*logged, *(run.best["monitor"] for run in runs if run.best)]))


def _metrics_shown(runs: Sequence[Run], asked: Sequence[str], ranking: Ranking | None) -> list[str]:
    there = _metrics_of(runs)
    for name in asked:
        if name not in there and runs:
            raise no_such_metric(name, there, "--metric")
    first = [ranking.metric] if ranking is not None else []
    if not asked:
        stages = ([name for name in there if name.startswith(stage)] for stage in ("test/", "val/"))
        asked = sorted(
            next((names for names in stages if names), ()), key=lambda name: name.endswith("/loss")
        )
        asked += [name for name in there if name.startswith("baseline/")]
    return list(dict.fromkeys([*first, *asked]))


def _test(ranked: Sequence[Row], ranking: Ranking | None) -> BestTest:
    """Whether the gap between the first two scores is more than noise."""
    if ranking is None or len(ranked) < 2:
        return BestTest()
    first, second = (row.scores[ranking.metric] for row in ranked[:2])
    ahead = second.mean - first.mean if ranking.direction == "min" else first.mean - second.mean
    # Behind: where some repetitions of the second have not finished.
    side = "ahead of the second" if ahead >= 0 else "behind the second, which has not finished,"
    gap = f"the best is {side} by {number_text(abs(ahead))} in {ranking.metric}"
    paired = same_folds(first, second)
    p = corrected_resampled(first, second) if paired else welch(first.values, second.values)
    name, numbers = PAIRED_TEST if paired else WELCH, f"n = {first.n} and {second.n}"
    if p is not None:
        word = "more than noise" if p < 1 - LEVEL else "not more than noise"
        said = f": {word} ({name}, p = {p:.2g}, {numbers})"
    elif min(first.n, second.n) < 2:
        said = f"; n too small to say whether that is more than noise ({numbers})"
    else:
        said = f"; the scores do not vary between repetitions, so no test can be made ({numbers})"
    return BestTest(name, p, gap + said)


def _notes(rows: Sequence[Row], ranking: Ranking | None, group_by: Sequence[str]) -> list[str]:
    notes = []
    repeated = sum(len(row.runs) - row.repetitions for row in rows)
    if repeated:
        notes.append(f"of runs of the same config and seed the last finished one counts: {repeated} left out")
    if group_by and any(len({run.config_fingerprint for run in row.runs}) > 1 for row in rows):
        notes.append(f"grouped by {', '.join(group_by)}: runs of one row differ in more than their seed")
    if any(len({run.code for run in row.runs}) > 1 for row in rows):
        notes.append("some rows hold runs of different code (commit or uncommitted changes)")
    if any(_other_data(row) for row in rows):
        notes.append(
            "the data have changed between runs of the same config and seed (data_sha256 of their records)"
        )
    if any(0 < row.folds < len(row.counted) for row in rows):
        notes.append(
            "seeds of one fold are tested on the same samples: their mean counts once, and n is folds"
        )
    if any(0 < row.scores[name].n < (row.folds or len(row.counted)) for row in rows for name in row.scores):
        notes.append(
            "scores that are missing, nan or infinite are left out of their means; n says how many count"
        )
    if ranking is not None:
        notes += ranking.notes
    return notes


def _other_data(row: Row) -> bool:
    known: dict[str, str] = {}
    return any(known.setdefault(run.fingerprint, run.data_sha256) != run.data_sha256 for run in row.runs)
