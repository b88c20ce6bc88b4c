"""The end of a sweep: its tables, its best config, and a printed summary."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

from rich.markup import escape
from rich.table import Table

from assay.analysis import out_of_fold
from assay.analysis.comparison import best_job, groups_csv, job_rows, rank, results_csv
from assay.analysis.objective import format_score, score_text
from assay.analysis.run import format_values, shorten_values, varying_overrides
from assay.files.atomic import write_text
from assay.record.log_file import FILE, log_candidates
from assay.run.result import label_commands
from assay.sweep.progress import failure_text
from assay.targets.resolve import import_trusted_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.analysis.objective import Objective
    from assay.analysis.out_of_fold import OutOfFold
    from assay.record.journal import JobRecord
    from assay.terminal import Console


@final
@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep."""

    directory: Path
    jobs: tuple[JobRecord, ...]
    objectives: tuple[Objective, ...]
    total: int
    stopped: int = 0

    def run_dir(self, job: JobRecord) -> Path:
        """Where a job writes."""
        return self.directory / str(job.number)

    @cached_property
    def best(self) -> JobRecord | None:
        """The best job of the best row; None where no job has a score."""
        return best_job(self.jobs, self.objectives[0])

    @cached_property
    def is_repeated(self) -> bool:
        """Whether several jobs share a configuration."""
        return any(len(row.runs) > 1 for row in job_rows(self.jobs, ()))

    @property
    def exit_code(self) -> int:
        """0 where every job has finished or was pruned, 130, 143 or 129 for a stopped sweep, 1 otherwise."""
        if self.stopped:
            return self.stopped
        is_complete = len(self.jobs) == self.total
        return 0 if is_complete and all(job.status in ("finished", "pruned") for job in self.jobs) else 1


RESULTS: Final = "results.csv"
GROUPS: Final = "groups.csv"
BEST: Final = "best.yaml"
_ENDED: Final = ("finished", "pruned", "failed")
_ROWS: Final = 12
_FAILURES: Final = 12
_WARNINGS: Final = 4


def gather_folds(result: SweepResult) -> list[OutOfFold]:
    """The predictions of all folds; none if no job has tested a fold."""
    folds = out_of_fold.gather_folds(job_rows(result.jobs, (), result.run_dir))
    import_trusted_tasks(fold.predictions.task for fold in folds)
    return folds


def write_results(result: SweepResult, folds: Sequence[OutOfFold] = ()) -> None:
    """Write the result files of a sweep."""
    write_text(result.directory / RESULTS, results_csv(result.jobs))
    if result.is_repeated:
        write_text(result.directory / GROUPS, groups_csv(result.jobs, result.objectives))
    else:
        (result.directory / GROUPS).unlink(missing_ok=True)
    best = result.best
    if best is not None:
        config = result.run_dir(best) / "config.yaml"
        if config.is_file():
            command = _train_command(best).replace("\n", "\n# ")
            head = f"# The best of {len(result.jobs)} jobs: job {best.number}\n# {command}\n"
            write_text(result.directory / BEST, head + config.read_text(encoding="utf-8"))
    out_of_fold.write(result.directory / out_of_fold.FILE, folds)


def print_results(console: Console, result: SweepResult, folds: Sequence[OutOfFold] = ()) -> None:
    """Print the best jobs, the failed ones, where the results are, and what to type next."""
    jobs, objective = result.jobs, result.objectives[0]
    if not jobs:
        return
    console.print()
    _print_ranking(console, jobs, objective)
    _print_out_of_fold(console, result, folds)
    _print_failures(console, result)
    _print_warnings(console, jobs)
    counts = {word: sum(job.status == word for job in jobs) for word in _ENDED}
    num_left = result.total - sum(counts.values())
    ended = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == "finished")
    console.print(
        f"[bold]sweep[/bold]  {ended} of {result.total}{f', {num_left} not run' if num_left else ''}"
        f"  {escape(str(result.directory / RESULTS))}"
    )
    best = result.best
    if best is not None:
        path = escape(str(result.run_dir(best)))
        console.print(f"[bold]best[/bold]   job {best.number}  {path}  ({BEST} beside the table)")
        scores = best.outcome.metrics if best.outcome else {}
        for name, value in scores.items():
            kind, _, score = name.partition("/")
            if kind == "baseline" and value > (own := scores.get(f"test/{score}", value)):
                numbers = f"{format_score(score, value)}, more than that job's {format_score(score, own)}"
                console.print(f"[bold]baseline[/bold]  {escape(score.replace('_', ' '))} {numbers}")
    for label, line in label_commands(next_commands(result)):
        console.print(f"[bold]{label:<6}[/bold] {escape(line)}")


def _print_ranking(console: Console, jobs: Sequence[JobRecord], objective: Objective) -> None:
    name = objective.name
    rows = [row for row in job_rows(jobs, [name]) if row.finished and name in row.scores]
    order = rank(rows, name, objective.direction)
    repeated = any(len(row.runs) > 1 for row in order)
    if not order:
        return
    keys = list(dict.fromkeys(key for row in order for key in row.values))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("runs" if repeated else "job", justify="right")
    for key in keys:
        table.add_column(key, overflow="fold")
    table.add_column(name, justify="right")
    for row in order[:_ROWS]:
        short = shorten_values(row.values)
        label = f"{row.finished} of {len(row.runs)}" if repeated else row.runs[0].path.name
        values = (escape(short.get(key, "")) for key in keys)
        table.add_row(label, *values, score_text(name, row.scores[name]))
    console.print(table)
    _print_num_left_out(console, len(order) - _ROWS)
    console.print()


def _print_num_left_out(console: Console, number: int, where: str = "") -> None:
    if number > 0:
        console.print(f"… and {number} more{where}", style="dim")


def _print_warnings(console: Console, jobs: Sequence[JobRecord]) -> None:
    """Print the warnings of finished jobs, such as a model that is of no use."""
    finished = [(job.number, job.outcome) for job in jobs if job.status == "finished"]
    warned = [(number, warning) for number, outcome in finished if outcome for warning in outcome.warnings]
    for number, warning in warned[:_WARNINGS]:
        console.print(f"[yellow]warning[/yellow] job {number}: {escape(warning)}")
    _print_num_left_out(console, len(warned) - _WARNINGS, " warnings, see the report")


def _print_out_of_fold(console: Console, result: SweepResult, folds: Sequence[OutOfFold]) -> None:
    """The scores of each configuration over the samples of all folds at once, and what is missing."""
    configurations = out_of_fold.group_by_configuration(folds)
    for seeds_of in configurations[:_ROWS]:
        means = out_of_fold.mean_scores(seeds_of)
        scores = ", ".join(f"{name} {format_score(name, value)}" for name, value in means.items())
        label = format_values(seeds_of[0].values)
        rows = f"{len(seeds_of[0].predictions.keys):,} samples"
        mean_note = f", mean of {len(seeds_of)} seeds" if len(seeds_of) > 1 else ""
        console.print(
            f"[bold]out of fold[/bold]  {escape(f'{label}  ' if label else '')}{scores or 'no scores'}"
            f"  ({rows}{mean_note})"
        )
        for problem in dict.fromkeys(problem for fold in seeds_of for problem in fold.problems):
            console.print(f"[yellow]note[/yellow]   {escape(problem)}")
    _print_num_left_out(console, len(configurations) - _ROWS)
    if configurations:
        console.print(f"       {escape(str(result.directory / out_of_fold.FILE))}\n")


def _print_failures(console: Console, result: SweepResult) -> None:
    jobs = result.jobs
    failed = [
        (job, job.outcome, values)
        for job, values in zip(jobs, varying_overrides(jobs), strict=True)
        if job.status == "failed" and job.outcome is not None
    ]
    for job, outcome, values in failed[:_FAILURES]:
        tried = f" after {len(job.failures) + 1} attempts" if job.failures else ""
        console.print(f"[red]failed[/red] job {job.number}  {escape(format_values(values))}")
        console.print(f"       {escape(failure_text(outcome))}{tried}")
        console.print(f"       log {escape(str(_find_log(result, job)))}", style="dim")
    _print_num_left_out(console, len(failed) - _FAILURES, f" failed, see {RESULTS}")
    if failed:
        console.print()


def _find_log(result: SweepResult, job: JobRecord) -> Path:
    log, printed = result.run_dir(job) / FILE, result.directory / "logs" / f"{job.number}.txt"
    died = job.outcome is not None and job.outcome.cause == "killed"
    return next((path for path in log_candidates(log, printed, died=died) if path.is_file()), log)


def next_commands(result: SweepResult) -> list[str]:
    """Commands to type next; none for a sweep without jobs."""
    jobs = result.jobs
    if not jobs:
        return []
    directory, best = shlex.quote(str(result.directory)), result.best
    ended = sum(job.status in _ENDED for job in jobs)
    report = [f"assay report {directory}"] if ended else []
    if result.total > ended:
        return [f"assay resume {directory}", *report]
    if best is None:
        failed = any(job.status == "failed" for job in jobs)
        return [*report, *([f"assay resume {directory} --failed"] if failed else [])]
    if result.is_repeated:
        return [*report, f"assay compare {directory}"]
    return [*report, f"{_train_command(best, multirun=True)} seed=1,2,3"]


def _train_command(job: JobRecord, *, multirun: bool = False) -> str:
    overrides = [override for override in job.overrides if not (multirun and override.startswith("seed="))]
    if multirun and any(override.startswith("sweep=") for override in overrides):
        overrides.append("hydra/sweeper=grid")  # what was searched is found
    return shlex.join(["assay", "train", *(["-m"] if multirun else []), *overrides])
