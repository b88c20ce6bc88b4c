"""The end of a sweep: its tables, its best config, and a few lines on what came out and what is next."""

from __future__ import annotations

import csv
import io
import math
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

from rich.markup import escape
from rich.table import Table

from assay.analysis import out_of_fold
from assay.analysis.config_values import INNER_FOLDS, fold_of, in_one_line, in_short, varying
from assay.analysis.objective import format_score, score_text
from assay.analysis.statistics import importance, mean_of
from assay.config.serialize import REPETITIONS
from assay.files.atomic import write_text
from assay.quoting import spreadsheet_cell
from assay.record.log_file import FILE, logs_of
from assay.run.result import LONG, labelled
from assay.sweep.progress import why
from assay.targets.own_task import import_trusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.analysis.objective import Objective
    from assay.analysis.out_of_fold import OutOfFold
    from assay.analysis.statistics import Mean
    from assay.record.journal import JobRecord
    from assay.terminal import Console


@final
@dataclass(frozen=True)
class SweepResult:
    """What a sweep has come to."""

    directory: Path
    jobs: tuple[JobRecord, ...]
    objectives: tuple[Objective, ...]
    total: int
    stopped: int = 0
    run_dirs: Mapping[int, Path] = field(default_factory=dict)

    def run_dir(self, job: JobRecord) -> Path:
        """Where a job writes."""
        return self.run_dirs.get(job.number, self.directory / str(job.number))

    @property
    def exit_code(self) -> int:
        """0 where every job has finished or was pruned, 130, 143 or 129 for a stopped sweep, 1 otherwise."""
        if self.stopped:
            return self.stopped
        whole = len(self.jobs) == self.total
        return 0 if whole and all(job.status in ("finished", "pruned") for job in self.jobs) else 1


RESULTS: Final = "results.csv"
GROUPS: Final = "groups.csv"
_STATISTICS: Final = ("mean", "std", "low", "high", "n")


@final
@dataclass(frozen=True)
class Group:
    """Jobs that repeat one configuration."""

    values: Mapping[str, str]
    jobs: tuple[int, ...]
    finished: int
    scores: Mapping[str, Mean]


def groups(jobs: Sequence[JobRecord], objectives: Sequence[Objective]) -> list[Group]:
    """Put together what differs in the seed and the fold alone, in the order of the first job of each."""
    together: dict[tuple[tuple[str, str], ...], list[JobRecord]] = {}
    for job, values in zip(jobs, varying(jobs), strict=True):
        key = tuple((name, value) for name, value in values.items() if name not in REPETITIONS)
        together.setdefault(key, []).append(job)
    return [_group(dict(key), members, objectives) for key, members in together.items()]


def ranked(jobs: Sequence[JobRecord], objective: Objective) -> list[Group]:
    """Groups from the best to the worst; those with a job that has not finished come after the whole ones."""

    def key(group: Group) -> tuple[bool, bool, float]:
        score = group.scores.get(objective.name)
        return group.finished < len(group.jobs), *objective.sort_key(score.mean if score else None)

    return sorted(groups(jobs, [objective]), key=key)


def best_job(jobs: Sequence[JobRecord], objective: Objective) -> JobRecord | None:
    """The best job of the best group; None where no job has a score."""
    by_number = {job.number: job for job in jobs}
    for group in ranked(jobs, objective):
        members = [by_number[number] for number in group.jobs]
        finished = [job for job in members if job.status == "finished" and _score(job, objective) is not None]
        if finished:
            return min(finished, key=lambda job: objective.sort_key(_score(job, objective)))
    return None


def write_tables(directory: Path, jobs: Sequence[JobRecord], objectives: Sequence[Objective]) -> None:
    """Write both tables; `groups.csv` only where a configuration was repeated."""
    write_text(directory / RESULTS, results_csv(jobs))
    grouped = groups(jobs, objectives)
    if any(len(group.jobs) > 1 for group in grouped):
        write_text(directory / GROUPS, groups_csv(grouped, objectives))
    else:
        (directory / GROUPS).unlink(missing_ok=True)


def results_csv(jobs: Sequence[JobRecord]) -> str:
    """One row per job: what was typed for it, how it ended, and every last score."""
    rows = []
    for job, values in zip(jobs, varying(jobs), strict=True):
        row: dict[str, Any] = {"job": job.number, **values, "status": job.status}
        if job.outcome is not None:
            row["cause"] = job.outcome.cause
            row["changed"] = " ".join(job.changes)
            best = job.outcome.best
            if best:
                row |= {f"best {best['monitor']}": best["value"], "best epoch": best["epoch"]}
            row |= dict(sorted(job.outcome.metrics.items()))
        rows.append(row)
    first = [
        "job",
        *_in_order({key: None for values in varying(jobs) for key in values}),
        "status",
        "cause",
        "changed",
    ]
    scores = {key: None for row in rows for key in row if key not in first}
    filled = {key for row in rows for key, value in row.items() if value != ""}
    columns = [*first, *sorted(scores, key=lambda name: (not name.startswith("best "), name))]
    return csv_text([name for name in columns if name in filled], rows)


def groups_csv(grouped: Sequence[Group], objectives: Sequence[Objective]) -> str:
    """A row per group: its values, how many jobs finished, and its scores."""
    names = [objective.name for objective in objectives]
    names += sorted({name for group in grouped for name in group.scores} - set(names))
    rows = []
    for group in grouped:
        row: dict[str, Any] = {**group.values, "finished": group.finished, "of": len(group.jobs)}
        for name in names:
            score = group.scores.get(name)
            row |= {f"{name} {what}": getattr(score, what, None) for what in _STATISTICS}
            row[f"{name} n"] = score.n if score else 0
        rows.append(row)
    values = {key: None for group in grouped for key in group.values}
    columns = [f"{name} {what}" for name in names for what in _STATISTICS]
    return csv_text([*_in_order(values), "finished", "of", *columns], rows)


def _group(values: dict[str, str], members: Sequence[JobRecord], objectives: Sequence[Objective]) -> Group:
    finished = [job for job in members if job.status == "finished" and job.outcome is not None]
    outcomes = [job.outcome for job in finished if job.outcome is not None]
    folds = [fold_of(job.overrides) for job in finished]
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.metrics)
    means = {name: mean_of((outcome.metrics.get(name) for outcome in outcomes), folds) for name in names}
    means |= {aim.name: mean_of((aim.score(outcome) for outcome in outcomes), folds) for aim in objectives}
    scores = {name: mean for name, mean in means.items() if mean is not None}
    return Group(values, tuple(job.number for job in members), len(outcomes), scores)


def _score(job: JobRecord, objective: Objective) -> float | None:
    return objective.score(job.outcome) if job.outcome is not None else None


def _in_order(keys: Iterable[str]) -> list[str]:
    """The seed and the fold after what they repeat."""
    return sorted(keys, key=lambda key: key in REPETITIONS)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV; no cell is a formula to a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(spreadsheet_cell, columns))
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "" if value is None else "nan"
    return repr(value) if isinstance(value, float) else str(spreadsheet_cell(value))


BEST: Final = "best.yaml"
IMPORTANCE: Final = "importance.csv"
_ENDED: Final = ("finished", "pruned", "failed")
_ROWS: Final = 12
_FAILURES: Final = 12
_SCORES: Final = 4
_WARNINGS: Final = 4
"""Characters of a command that is not repeated in full."""


def gathered(result: SweepResult) -> list[OutOfFold]:
    """The predictions of its folds, together; none where no job has tested a fold."""
    found = out_of_fold.gathered(out_of_fold.fold_runs(result.jobs, result.run_dir))
    import_trusted(one.predictions.task for one in found)
    return found


def importance_of(result: SweepResult) -> list[tuple[str, float]]:
    """Share of each parameter in the differences of the first score, the greatest first; as on its page."""
    name = result.objectives[0].name
    scored = [group for group in groups(result.jobs, result.objectives) if name in group.scores]
    return importance([group.values for group in scored], [group.scores[name].mean for group in scored])[0]


def write_results(
    result: SweepResult, folds: Sequence[OutOfFold] = (), shares: Sequence[tuple[str, float]] = ()
) -> None:
    """Write what the sweep has come to."""
    write_tables(result.directory, result.jobs, result.objectives)
    best = best_job(result.jobs, result.objectives[0])
    if best is not None:
        config = result.run_dir(best) / "config.yaml"
        if config.is_file():
            command = _command(best).replace("\n", "\n# ")
            head = f"# The best of {len(result.jobs)} jobs: job {best.number}\n# {command}\n"
            write_text(result.directory / BEST, head + config.read_text(encoding="utf-8"))
    out_of_fold.write(result.directory / out_of_fold.FILE, folds)
    if shares:
        rows = [{"parameter": name, "importance": share} for name, share in shares]
        write_text(result.directory / IMPORTANCE, csv_text(["parameter", "importance"], rows))


def say_results(
    console: Console,
    result: SweepResult,
    folds: Sequence[OutOfFold] = (),
    shares: Sequence[tuple[str, float]] = (),
) -> None:
    """The best jobs, those that failed, where everything is, and what to type next."""
    jobs, first = result.jobs, result.objectives[0]
    if not jobs:
        return
    console.print()
    _say_ranking(console, jobs, first)
    _say_out_of_fold(console, result, folds)
    if shares:
        words = "  ".join(f"{name} {100 * share:.0f} %" for name, share in shares)
        console.print(f"[bold]importance[/bold]  {escape(words)}")
    _say_failures(console, result)
    _say_warnings(console, jobs)
    counts = {word: sum(job.status == word for job in jobs) for word in _ENDED}
    left = result.total - sum(counts.values())
    ended = ", ".join(
        f"{count} {status}" for status, count in counts.items() if count or status == "finished"
    )
    console.print(
        f"[bold]sweep[/bold]  {ended} of {result.total}{f', {left} not run' if left else ''}"
        f"  {escape(str(result.directory / RESULTS))}"
    )
    best = best_job(jobs, first)
    if best is not None:
        place = escape(str(result.run_dir(best)))
        console.print(f"[bold]best[/bold]   job {best.number}  {place}  ({BEST} beside the table)")
    for label, line in labelled(next_commands(result, short=True)):
        console.print(f"[bold]{label:<6}[/bold] {escape(line)}")


def _say_ranking(console: Console, jobs: Sequence[JobRecord], objective: Objective) -> None:
    by_number = {job.number: job for job in jobs}
    order = [group for group in ranked(jobs, objective) if objective.name in group.scores]
    repeated = any(len(group.jobs) > 1 for group in order)
    if not order:
        return
    keys = list(dict.fromkeys(key for group in order for key in group.values))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("runs" if repeated else "job", justify="right")
    for key in keys:
        table.add_column(key, overflow="fold")
    table.add_column(objective.name, justify="right")
    for group in order[:_ROWS]:
        short = in_short(group.values)
        values = [escape(short.get(key, "")) for key in keys]
        name = f"{group.finished} of {len(group.jobs)}" if repeated else str(group.jobs[0])
        pruned = by_number[group.jobs[0]].status == "pruned"
        table.add_row(
            name,
            *values,
            score_text(objective.name, group.scores[objective.name]),
            style="dim" if pruned else "",
        )
    console.print(table)
    if len(order) > _ROWS:
        console.print(f"… and {len(order) - _ROWS} more", style="dim")
    console.print()


def _say_warnings(console: Console, jobs: Sequence[JobRecord]) -> None:
    """Jobs that have finished with a model that is of no use."""
    warned = [
        (job.number, warning)
        for job in jobs
        if job.status == "finished" and job.outcome is not None
        for warning in job.outcome.warnings
    ]
    for number, warning in warned[:_WARNINGS]:
        console.print(f"[yellow]warning[/yellow] job {number}: {escape(warning)}")
    if len(warned) > _WARNINGS:
        console.print(f"… and {len(warned) - _WARNINGS} more warnings, see the report", style="dim")


def _say_out_of_fold(console: Console, result: SweepResult, folds: Sequence[OutOfFold]) -> None:
    """The scores of each configuration over the samples of all folds at once, and what is missing."""
    together: dict[tuple[tuple[str, str], ...], list[OutOfFold]] = {}
    for one in folds:
        together.setdefault(tuple(one.values.items()), []).append(one)
    chosen = [
        (job, {key: value for key, value in values.items() if key not in (*REPETITIONS, INNER_FOLDS)})
        for job, values in zip(result.jobs, varying(result.jobs), strict=True)
        if values.get(INNER_FOLDS) == "null"
    ]
    for job, values in chosen:
        console.print(
            f"[bold]chosen[/bold]  fold {fold_of(job.overrides)}, seed {job.seed}: "
            f"{escape(in_one_line(values) or 'as typed')}  ({job.status})"
        )
    if chosen:
        _say_tested(console, [job for job, _ in chosen if job.status == "finished"])
    for pairs, several in list(together.items())[:_ROWS]:
        all_means = out_of_fold.mean_scores(several)
        means = list(all_means.items())[:_SCORES]
        scores = ", ".join(f"{name} {format_score(name, value)}" for name, value in means)
        scores += f", … and {len(all_means) - _SCORES} more" if len(all_means) > _SCORES else ""
        label = in_one_line(dict(pairs))
        rows = f"{len(several[0].predictions.keys):,} samples"
        seeds = f", mean of {len(several)} seeds" if len(several) > 1 else ""
        console.print(
            f"[bold]out of fold[/bold]  {escape(f'{label}  ' if label else '')}{scores or 'no scores'}"
            f"  ({rows}{seeds})"
        )
        for problem in dict.fromkeys(problem for one in several for problem in one.problems):
            console.print(f"[yellow]note[/yellow]   {escape(problem)}")
    if len(together) > _ROWS:
        console.print(f"… and {len(together) - _ROWS} more", style="dim")
    if together:
        console.print(f"       {escape(str(result.directory / out_of_fold.FILE))}\n")


def _say_tested(console: Console, jobs: Sequence[JobRecord]) -> None:
    """The mean and interval of each score over the outer folds of a nested search."""
    metrics = [job.outcome.metrics if job.outcome is not None else {} for job in jobs]
    names = dict.fromkeys(name for own in metrics for name in own if name.startswith("test/"))
    for name in names:
        mean = mean_of([own.get(name) for own in metrics], [fold_of(job.overrides) for job in jobs])
        if mean is not None:
            console.print(f"[bold]nested[/bold]  {name} {score_text(name, mean)} over {mean.n} outer folds")


def _say_failures(console: Console, result: SweepResult) -> None:
    jobs = result.jobs
    failed = [
        (job, job.outcome, values)
        for job, values in zip(jobs, varying(jobs), strict=True)
        if job.status == "failed" and job.outcome is not None
    ]
    for job, outcome, values in failed[:_FAILURES]:
        tried = f" after {len(job.failures) + 1} attempts" if job.failures else ""
        console.print(f"[red]failed[/red] job {job.number}  {escape(in_one_line(values))}")
        console.print(f"       {escape(why(outcome))}{tried}")
        console.print(f"       log {escape(str(_log(result, job)))}", style="dim")
    if len(failed) > _FAILURES:
        console.print(f"… and {len(failed) - _FAILURES} more failed, see {RESULTS}", style="dim")
    if failed:
        console.print()


def _log(result: SweepResult, job: JobRecord) -> Path:
    own, printed = result.run_dir(job) / FILE, result.directory / "logs" / f"{job.number}.txt"
    died = job.outcome is not None and job.outcome.cause == "killed"
    return next((path for path in logs_of(own, printed, died=died) if path.is_file()), own)


def next_commands(result: SweepResult, *, short: bool = False) -> list[str]:
    """What to type next; nothing of a sweep without jobs."""
    if not result.jobs:
        return []
    ended = sum(job.status in _ENDED for job in result.jobs)
    failed = sum(job.status == "failed" for job in result.jobs)
    lines = _next(result, result.total - ended, failed, short=short)
    if ended:
        lines.insert(1 if result.total > ended else 0, f"assay report {shlex.quote(str(result.directory))}")
    return lines


def _next(result: SweepResult, left: int, failed: int, *, short: bool) -> list[str]:
    place, best = shlex.quote(str(result.directory)), best_job(result.jobs, result.objectives[0])
    if left:
        return [f"assay resume {place}"]
    if best is None and failed:
        return [f"assay resume {place} --failed"]
    if best is None:
        runs = [shlex.quote(str(result.run_dir(job))) for job in result.jobs if job.status == "finished"]
        return [f"assay diff {runs[0]} {runs[1]}"] if len(runs) > 1 else []
    if not any(len(group.jobs) > 1 for group in groups(result.jobs, result.objectives)):
        command = f"{_command(best, multirun=True)} seed=1,2,3"
        if not short or len(command) <= LONG:
            return [command]
        shared = set.intersection(*(set(job.overrides) for job in result.jobs))
        own = replace(best, overrides=tuple(one for one in best.overrides if one not in shared))
        return [f"{_command(own, multirun=True)} seed=1,2,3 …  (… is the rest of the command in {BEST})"]
    return [f"assay compare {place}"]


def _command(job: JobRecord, *, multirun: bool = False) -> str:
    kept = [override for override in job.overrides if not (multirun and override.startswith("seed="))]
    if multirun and any(override.startswith("sweep=") for override in kept):
        kept.append("hydra/sweeper=grid")  # what was searched is found
    return shlex.join(["assay", "train", *(["-m"] if multirun else []), *kept])
