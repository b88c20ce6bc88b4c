"""Many runs, or jobs of a sweep, as one table: repetitions together, what differs, and which is best."""

from __future__ import annotations

import itertools
import operator
import re
import statistics
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.config.did_you_mean import did_you_mean, list_names
from assay.errors import AssayError, ConfigError
from assay.quoting import pluralize, reads_as_number
from assay.record.run_directory import JOURNAL
from assay.record.run_record import Outcome
from assay.record.scores import is_better_low
from assay.terminal import printable, single_line
from assay_analysis.journal import Journal
from assay_analysis.objective import RARE, describe_metric, metric_keys
from assay_analysis.run import (
    OF_THE_RECORD,
    ConfigValues,
    Run,
    config_columns,
    find_unlike_data,
    find_unlike_losses,
    format_values,
    is_config,
    is_same_value,
    list_metrics,
    plain_value,
    shorten_values,
    value,
    value_of,
    varying_overrides,
)
from assay_analysis.statistics import Verdict, judge, mean_of, read_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from assay_analysis.journal import JobRecord
    from assay_analysis.run import Runs
    from assay_analysis.statistics import Mean


@final
@dataclass(frozen=True)
class Row:
    """Runs that are repetitions of one configuration, or that share the values that were grouped by."""

    values: Mapping[str, str | None]
    runs: tuple[Run, ...]
    counted: tuple[Run, ...]
    scores: Mapping[str, Mean]
    finished: int
    repetitions: int

    @property
    def folds(self) -> int:
        """How many different folds count; 0 where there are not several."""
        folds = len({run.fold for run in self.counted})
        if folds > 1:
            return folds
        return 0

    @property
    def is_complete(self) -> bool:
        """Whether every repetition has finished."""
        return self.finished == self.repetitions

    @property
    def shares(self) -> Mapping[str, bool]:
        """Which of its scores are shares of a whole."""
        return self.runs[0].shares

    @property
    def state(self) -> str:
        """How its runs ended; empty where all have finished."""
        states = Counter(
            f"{run.status} ({run.cause})" if run.cause else run.status for run in self.runs
        )
        if set(states) == {"finished"}:
            return ""
        if len(self.runs) == 1:
            return next(iter(states))
        ordered = sorted(states.items(), key=lambda item: (item[0] != "finished", item[0]))
        return ", ".join(f"{count} {state}" for state, count in ordered)

    @property
    def seconds(self) -> float | None:
        """Mean time of its runs that have finished."""
        if self.finished:
            return statistics.fmean(run.seconds for run in self.counted)
        return None

    @cached_property
    def label(self) -> str:
        """Its values on one line."""
        return format_values(self.values) or (
            self.runs[0].path.name if len(self.runs) == 1 else "all"
        )

    @property
    def short_label(self) -> str:
        """Its values alone: for a legend, where there is no room for keys."""
        return ", ".join(shorten_values(self.values).values()) or self.label

    def best(self, ranking: Ranking) -> Run:
        """Its best finished run, where one has a score."""
        scores = read_scores(self.counted, ranking.metric)
        return min(scores, key=lambda pair: (ranking.cost(pair[1]), bool(pair[0].warnings)))[0]


def make_row(runs: Runs, values: Mapping[str, str | None], metrics: Iterable[str]) -> Row:
    """Make a row of runs; of each seed the last one counts, finished ones first."""
    ordered = sorted(runs, key=lambda run: run.status == "finished")
    by_job = {run.fingerprint or run.path: run for run in ordered}
    finished = [run for run in by_job.values() if run.status == "finished"]
    counted = finished or list(by_job.values())
    folds = [run.fold for run in counted]
    means = {metric: mean_of((run.score(metric) for run in counted), folds) for metric in metrics}
    scores = {metric: mean for metric, mean in means.items() if mean is not None}
    return Row(values, tuple(runs), tuple(counted), scores, len(finished), len(by_job))


def rank(rows: Iterable[Row], ranking: Ranking) -> list[Row]:
    """From the best to the worst; those with a run that has not finished come after, then those without."""

    def order(row: Row) -> tuple[bool, bool, bool, float, bool]:
        score = row.scores.get(ranking.metric)
        mean = 0.0
        if score:
            mean = ranking.cost(score.mean)
        is_warned = any(run.warnings for run in row.counted)  # of a model that is of no use
        return not row.finished, not row.is_complete, score is None, mean, is_warned

    return sorted(rows, key=order)


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

    def cost(self, score: float) -> float:
        """A score, or its negative, such that less is better."""
        if self.direction == "max":
            return -score
        return score


def make_ranking(
    runs: Runs, asked: str = "", configs: ConfigValues | None = None
) -> Ranking | None:
    """Choose the metric and direction to rank runs by: one rule for whatever names a best run.

    What was asked for comes first, then the stated objective of a sweep, then a metric of validation.
    """
    metrics = list_metrics(runs)
    configs = configs or ConfigValues()
    asked = asked or _stated_objective(runs)
    metric, colon, stated = asked.rpartition(":")
    if not colon or stated not in ("min", "max") or asked in metrics:
        metric = asked
        stated = ""
    notes: list[str] = []
    if not metric:
        metric, notes = _choose_metric(runs, metrics, configs)
    if metric not in metrics:
        if not runs or not metric:
            return None
        raise unknown_metric_error(metric, metrics)
    direction = stated
    if not direction:
        direction, problems = _direction(metric, runs)
        notes += problems
    losses = _unlike_losses(metric, runs, configs)
    data = tuple(find_unlike_data(runs, configs))
    if losses:
        notes.append(f"{metric} is not the same quantity in all rows: {_describe_terms(losses)}")
    if data:
        notes.append(
            f"rows come from different data ({', '.join(data)}); their scores cannot be compared"
        )
    return Ranking(metric, direction, tuple(notes), losses, () if asked else data)


def _stated_objective(runs: Runs) -> str:
    """The objective of the sweep that all runs are of, as `METRIC:DIRECTION`; empty where none was chosen."""
    folders = {run.path.parent for run in runs}
    folder = next(iter(folders), Path())
    if len(folders) > 1 or not (folder / JOURNAL).is_file():
        return ""
    try:
        journal = Journal.open(folder, repair=False)
    except AssayError:  # a damaged journal; the runs are what they are
        return ""
    name, direction = next(iter(journal.objectives), ("", ""))
    monitors = {run.best["monitor"] for run in runs if run.best}
    typed = (word.lstrip("+") for words in journal.commands for word in words)
    is_stated = monitors != {name} or any(word.startswith(_OBJECTIVE) for word in typed)
    if is_stated and any(run.score(name) is not None for run in runs):
        return f"{name}:{direction[:3]}"
    return ""


_OBJECTIVE = ("hydra.sweeper.objective=", "hydra.sweeper.direction=")
_MONITOR = "callbacks.checkpoint.monitor"


def unknown_metric_error(metric: str, metrics: Iterable[str], option: str = "") -> ConfigError:
    """The error for a metric that no run has."""
    names = sorted(map(single_line, metrics))
    suggestion = did_you_mean(metric, names, "; ")
    hint = ""
    if names:
        hint = f"available: {list_names(names, metric)}"
    return ConfigError(f"no run has a metric {metric!r}{suggestion}", key=option, hint=hint)


def _choose_metric(
    runs: Runs, metrics: Iterable[str], configs: ConfigValues
) -> tuple[str, list[str]]:
    """What checkpoints are kept by, if it is the same quantity in all runs, and why it is another metric.

    Where one class is rare, accuracy is best for a model that never predicts it: average precision decides.
    """
    monitors: list[str] = [run.best["monitor"] for run in runs if run.best]
    monitor = statistics.mode(monitors or [""])
    scores = [name for name in metrics if name.startswith("val/") and not name.endswith("loss")]
    common = [
        name
        for name in scores
        if any(name in run.directions for run in runs)
        and all(name in run.metrics for run in runs if run.status == "finished")
    ]
    scored = [name for name in metrics if name.startswith(("val/", "test/"))]
    precise = [name for score in _OF_RARE for name in common if name.rpartition("/")[2] == score]
    is_binary = bool(precise) and precise[0].endswith(_OF_RARE[0])
    is_rare = bool(precise) and _has_rare_class(runs, configs)
    if is_rare or is_binary:
        common = [*precise, *common]
    candidates = [*filter(None, [monitor]), *common]
    if is_rare and is_binary and not any(run.typed.get(_MONITOR) == monitor for run in runs):
        candidates.insert(0, common[0])
    alike = (name for name in candidates if not _unlike_losses(name, runs, configs))
    metric = next(filter(None, itertools.chain(alike, common, [monitor], scored, metrics)), "")
    if not monitor or metric == monitor:
        return metric, []
    reason = "one class is rare"
    if unlike := _unlike_losses(monitor, runs, configs):
        reason = f"{monitor} is not the same quantity in all rows: {_describe_terms(unlike)}"
    return metric, [f"ordered by {metric}: {reason}"]


_OF_RARE = ("average_precision", "f1", "auroc")
"""Scores that a model which never predicts a rare class does not win by, the best first."""


def _has_rare_class(runs: Runs, configs: ConfigValues) -> bool:
    texts = (value_of(run, "spec.class_counts", configs) for run in runs)
    counts = [int(count) for count in re.findall(r"\d+", next(filter(None, texts), ""))]
    return len(counts) > 1 and min(counts) * len(counts) < 2 * RARE * sum(counts)


def _describe_terms(losses: Mapping[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{key}={', '.join(values)}" for key, values in losses.items())


def _direction(metric: str, runs: Runs) -> tuple[str, list[str]]:
    directions = Counter(run.directions[metric] for run in runs if metric in run.directions)
    if len(directions) == 1:
        return next(iter(directions)), []
    if not directions and is_better_low(metric):
        return "min", []
    problem = f"whether {metric} is better high or low is not known"
    if directions:
        problem = f"runs do not agree on whether {metric} is better high or low"
    return "", [f"{problem}; set it with --sort {metric}:max"]


def _unlike_losses(metric: str, runs: Runs, configs: ConfigValues) -> dict[str, tuple[str, ...]]:
    """In what a loss, or a metric of one name in different options, is not the same quantity in all runs."""
    scored = {run.config_fingerprint: run for run in runs if run.score(metric) is not None}
    if metric.endswith("loss"):
        return find_unlike_losses(
            (run.choices.get("loss"), configs.loss(run)) for run in scored.values()
        )
    asked = ("metrics", "data.source.positive")
    typed = [
        [item for item in run.typed.items() if item[0].startswith(asked)]
        for run in scored.values()
    ]
    options = {str(run.choices.get("metrics")) for run in scored.values()}
    if len(options) == 1 and all(items == typed[0] for items in typed):
        return {}
    return find_unlike_losses(
        (None, {metric: _quantity(metric, run, configs)}) for run in scored.values()
    )


def _quantity(metric: str, run: Run, configs: ConfigValues) -> str:
    """A metric with what it is of, such as `val/f1 of ill`; the AUROC of two classes is that of either."""
    keys = metric_keys(metric.rpartition("/")[2])
    target, average, class_names = (value_of(run, key, configs) or "" for key in keys)
    if target.endswith("AUROC"):
        return metric
    return describe_metric(metric, target, average, class_names)


_WRITTEN = re.compile(r"\s*([^=<>!]+?)\s*(!=|<=|>=|==?|<|>)(.*)", re.DOTALL)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def filter_runs(runs: Runs, conditions: Sequence[str], configs: ConfigValues) -> list[Run]:
    """The runs that meet every condition; of those that cannot be read, none unless it is asked for them."""
    matching = list(runs)
    for condition in conditions:
        parts = _WRITTEN.fullmatch(condition)
        if parts is None:
            hint = "--where model=mlp, or --where 'test/accuracy>0.9'"
            raise ConfigError(f"{condition!r} is not a comparison", key="--where", hint=hint)
        key = parts[1]
        sign = parts[2]
        text = parts[3].strip().strip("'\"")
        values = {run.path: value(run, key, configs) for run in runs}
        if all(found_value is None for found_value in values.values()):
            raise unknown_key_error(key, runs, "--where")
        matching = [run for run in matching if _matches(values[run.path], sign, text)]
    return matching


def unknown_key_error(key: str, runs: Runs, option: str) -> ConfigError:
    """The error for a key that no run has."""
    names = [name for run in runs for name in (*run.choices, *run.typed, *run.metrics)]
    suggestion = did_you_mean(key, dict.fromkeys((*names, *OF_THE_RECORD)))
    return ConfigError(
        f"no run has {key!r}",
        key=option,
        hint=suggestion or "a group, a full key of the config, or a metric",
    )


def _matches(actual: Any, sign: str, text: str) -> bool:
    if sign in ("=", "==", "!="):
        same = actual is not None and (is_same_value(actual, text) or str(actual) == text)
        return same == (sign != "!=")
    number = plain_value(actual)
    bound = plain_value(text)
    operands = (number, bound)
    if any(
        isinstance(operand, bool) or not isinstance(operand, int | float) for operand in operands
    ):
        operands = (str(actual), text)
        if actual is None or not isinstance(bound, str):
            return False
    return _ORDERS[sign](*operands)


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
    notes: tuple[str, ...]
    total: int
    offset: int = 0
    verdict: Verdict | None = None
    best_run: Run | None = None

    def to_frame(self) -> pd.DataFrame:
        """Every row with its scores, and below them the runs that cannot be read."""
        import pandas as pd

        lines: list[dict[str, Any]] = []
        for number, row in enumerate(self.rows):
            scores = {
                f"{name}{end}": getattr(row.scores.get(name), statistic, absent)
                for name in self.metrics
                for end, statistic, absent in _STATISTICS
            }
            counts = {"finished": row.finished, "repetitions": row.repetitions}
            state = {"status": row.state or "finished", "best": int(number == self.best)}
            paths = "\n".join(str(run.path) for run in row.runs)
            lines.append({**row.values, **scores, **counts, **state, "runs": paths})
        lines += [
            {"status": f"broken: {run.reason}", "best": 0, "runs": str(run.path)}
            for run in self.broken
        ]
        return pd.DataFrame(lines, dtype=object)


_STATISTICS = (
    ("", "mean", None),
    (" std", "std", None),
    (" low", "low", None),
    (" high", "high", None),
    (" n", "n", 0),
)
"""Ends of the columns of a score, its fields, and what stands for one that is absent."""


def compare(
    runs: Runs,
    *,
    sort: str = "",
    where: Sequence[str] = (),
    group_by: Sequence[str] = (),
    metrics: Sequence[str] = (),
    each: bool = False,
    configs: ConfigValues | None = None,
    sides: Mapping[str, Sequence[Path]] | None = None,
) -> Comparison:
    """Compare runs; what was read of their configs before need not be read again.

    `sides` names two groups of folders, of which the first is judged against the second.
    """
    configs = configs or ConfigValues()
    selected = filter_runs(runs, where, configs)
    if runs and not selected:
        raise AssayError(
            f"--where: none of {pluralize(len(runs), 'run')} meets {' and '.join(where)}"
        )
    broken = tuple(run for run in selected if run.status == "broken")
    readable = [run for run in selected if run.status != "broken"]
    in_order = sorted(readable, key=lambda run: (run.started, str(run.path)))
    repetitions = _group_runs(in_order, group_by, configs)
    groups = repetitions
    if each:
        groups = [[run] for run in in_order]
    columns, values, notes = config_columns([group[0] for group in groups], group_by, configs)
    shared = {
        key: text
        for run in readable[:1]
        for key, text in run.typed.items()
        if key not in columns
        and is_config(key)
        and all(run.typed.get(key) == text for run in readable)
    }
    ranking = make_ranking(readable, sort, configs)
    shown_metrics = _metrics_shown(readable, metrics, ranking)
    rows = [
        make_row(group, texts, shown_metrics) for group, texts in zip(groups, values, strict=True)
    ]
    best = None
    verdict = None
    if ranking is not None:
        ordered = rank(rows, ranking)
        ranked = ordered
        if each:  # the best run is the same, however it is shown
            ranked = rank(
                (make_row(group, {}, [ranking.metric]) for group in repetitions), ranking
            )
        ranked = [row for row in ranked if row.finished and ranking.metric in row.scores]
        if ranked and ranking.decides:
            best = ranked[0].best(ranking)
        if not each:
            verdict = _judge(ranked, _split_sides(readable, sides or {}), ranking)
        if sort or not each:
            rows = ordered
    return Comparison(
        tuple(columns),
        tuple(shown_metrics),
        tuple(rows),
        shared,
        broken,
        ranking,
        next((number for number, row in enumerate(rows) if best in row.runs), None),
        (*notes, *_notes(rows, ranking, group_by)),
        len(rows) + len(broken),
        verdict=verdict,
        best_run=best,
    )


def page(
    comparison: Comparison,
    limit: int,
    offset: int,
    *,
    newest_first: bool,
) -> Comparison:
    """Some rows of a comparison, then of the runs that cannot be read; a limit of 0 is all that follow."""
    numbers = range(len(comparison.rows))[:: -1 if newest_first else 1]
    end = None
    if limit:
        end = offset + limit
    shown = [*numbers, *comparison.broken][offset:end]
    rows = [item for item in shown if isinstance(item, int)]
    notes = comparison.notes
    if len(shown) < comparison.total:
        note = f"{offset + 1:,} to {offset + len(shown):,} of {comparison.total:,} are shown"
        if not shown:
            note = f"--offset {offset} skips all {comparison.total:,}"
        elif end is not None and end < comparison.total:
            note += f"; --offset {end} shows the next, --limit 0 all"
        notes = (*notes, note)
    return replace(
        comparison,
        rows=tuple(comparison.rows[number] for number in rows),
        broken=tuple(item for item in shown if isinstance(item, Run)),
        best=rows.index(comparison.best) if comparison.best in rows else None,
        notes=notes,
        offset=offset,
    )


def _group_runs(runs: Runs, keys: Sequence[str], configs: ConfigValues) -> list[list[Run]]:
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        identity: Any = (
            tuple(plain_value(value(run, key, configs)) for key in keys) or run.config_fingerprint
        )
        groups.setdefault(identity, []).append(run)
    for number, key in enumerate(keys):
        if runs and all(identity[number] is None for identity in groups):
            raise unknown_key_error(key, runs, "--group-by")
    return list(groups.values())


def _metrics_shown(runs: Runs, requested: Sequence[str], ranking: Ranking | None) -> list[str]:
    metrics = list_metrics(runs)
    for name in requested:
        if name not in metrics and runs:
            raise unknown_metric_error(name, metrics, "--metric")
    ranked_by = []
    if ranking is not None:
        ranked_by = [ranking.metric]
    if not requested:
        stages = (
            [name for name in metrics if name.startswith(stage)] for stage in ("test/", "val/")
        )
        requested = sorted(
            next(filter(None, stages), []), key=lambda name: name.endswith("/loss")
        )
        requested += [name for name in metrics if name.startswith("baseline/")]
    return list(dict.fromkeys([*ranked_by, *requested]))


def _split_sides(
    runs: Runs, sides: Mapping[str, Sequence[Path]]
) -> list[tuple[str, Sequence[Run]]]:
    return [
        (name, [run for run in runs if any(map(run.path.is_relative_to, folders))])
        for name, folders in sides.items()
    ]


def _judge(
    ranked: Sequence[Row], groups: Sequence[tuple[str, Sequence[Run]]], ranking: Ranking
) -> Verdict | None:
    """The verdict on the first of two groups, else on the best row against the second."""
    groups = groups or [(row.label, row.counted) for row in ranked]
    if len(groups) != 2:
        if len(ranked) < 2 or not ranking.decides:
            return None
        second = "the second, which has not finished"
        if ranked[1].is_complete:
            second = "the second"
        groups = [("the best", ranked[0].counted), (second, ranked[1].counted)]
    first, second = (name for name, _ in groups)
    reason = ""
    if not ranking.decides:
        reason = ranking.notes[-1]
    for name, group in groups:
        if (count := len({run.config_fingerprint for run in group})) > 1:
            reason = (
                reason or f"{name} holds {count} configurations: name the runs of one, or --where"
            )
    if reason:
        return Verdict("", first, second, ranking.metric, ranking.direction, reason=reason)
    counted, other = (make_row(group, {}, ()).counted for _, group in groups)
    return judge(counted, other, ranking.metric, ranking.direction, (first, second))


def _notes(rows: Sequence[Row], ranking: Ranking | None, group_by: Sequence[str]) -> list[str]:
    repeated = sum(len(row.runs) - row.repetitions for row in rows)
    is_mixed = any(len({run.config_fingerprint for run in row.runs}) > 1 for row in rows)
    notes = {
        f"of runs of the same config and seed the last finished one counts: {repeated} left out": repeated,
        f"grouped by {', '.join(group_by)}: runs in one row differ in more than their seed": is_mixed,
        "some rows hold runs of different code (commit or uncommitted changes)": any(
            len({run.code for run in row.runs}) > 1 for row in rows
        ),
        "seeds of one fold are tested on the same samples: their mean counts once, and n is folds": any(
            0 < row.folds < len(row.counted) for row in rows
        ),
        "scores that are missing, nan or infinite are left out of their means; n says how many count": any(
            0 < score.n < (row.folds or len(row.counted))
            for row in rows
            for score in row.scores.values()
        ),
    }
    found = [note for note, holds in notes.items() if holds]
    if ranking:
        found += ranking.notes
    return found


def results_csv(jobs: Sequence[JobRecord]) -> str:
    """One row per job: what was typed for it, how it ended, and every last score."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for job, values in zip(jobs, varying_overrides(jobs), strict=True):
        outcome = job.outcome or Outcome("interrupted")
        best = outcome.best
        scores = {}
        if best:
            scores = {f"best {best['monitor']}": best["value"], "best epoch": best["epoch"]}
        ended = {"status": job.status, "cause": outcome.cause, "reused from": outcome.reused_from}
        rows.append({"job": job.number, **values, **ended, **scores, **outcome.metrics})
    frame = pd.DataFrame(rows, dtype=object)
    return csv_text(frame.loc[:, (frame.notna() & (frame != "")).any()])


def csv_text(frame: pd.DataFrame) -> str:
    """A table as CSV; no cell is a formula to a spreadsheet."""
    return printable(spreadsheet_frame(frame).to_csv(index=False, lineterminator="\n"))


_FORMULA = re.compile(r"[=+\-@\t\r]")
"""How text begins that a spreadsheet runs (OWASP, "CSV Injection")."""


def spreadsheet_cell(value: Any) -> Any:
    """A cell of a CSV file: text that a spreadsheet would run as a formula begins with an apostrophe."""
    if isinstance(value, str) and _FORMULA.match(value) and not reads_as_number(value):
        return f"'{value}"
    return value


def spreadsheet_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose texts and names of columns are as `spreadsheet_cell` writes them."""
    cells: pd.DataFrame = frame.apply(
        lambda one: one if one.dtype.kind in "biufc" else one.map(spreadsheet_cell)
    )
    cells.columns = [spreadsheet_cell(name) for name in frame.columns]
    return cells
