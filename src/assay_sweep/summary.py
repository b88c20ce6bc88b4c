"""A sweep in a terminal while it runs, and its end: tables, the best config, and a printed summary."""

from __future__ import annotations

import csv
import os
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, final

from rich.markup import escape
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from assay.errors import AssayError, first_line
from assay.files.atomic import write_text
from assay.files.symlinks import open_append, read_tail
from assay.paths import project_conf
from assay.quoting import command, format_duration, repeat_command
from assay.record.run_directory import LOG
from assay.record.run_record import now
from assay.record.scores import format_score
from assay.run.result import label_commands, read_shares
from assay.targets.resolve import import_task
from assay.targets.trust import is_within, project_packages
from assay.terminal import make_table, print_lines
from assay_analysis import out_of_fold
from assay_analysis.comparison import compare, csv_text, results_csv
from assay_analysis.objective import score_text
from assay_analysis.read_runs import log_candidates, read_runs
from assay_analysis.run import format_values, shorten_values, varying_overrides

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.progress import TaskID

    from assay.record.run_record import Outcome
    from assay.terminal import Console
    from assay_analysis.comparison import Comparison, Row
    from assay_analysis.journal import JobRecord
    from assay_analysis.objective import Objective
    from assay_analysis.out_of_fold import OutOfFold


_TAIL = 4096
"""Bytes at the end of metrics.csv that the last scores stand in."""
_IN_THE_REASON = ("", "exception", "machine")
"""Causes that the reason states already."""


@final
class SweepProgress:
    """Shows a sweep: live in a terminal, plain lines elsewhere."""

    def __init__(
        self,
        console: Console,
        objective: Objective,
        slots: int,
        fixed: Iterable[str] = (),
        log: Path | None = None,
    ) -> None:
        self._console = console
        self._objective = objective
        self._slots = max(1, slots)
        self._fixed = frozenset(fixed)
        self._log = log
        self.only: set[int] | None = None
        """Jobs that are counted; None for all."""
        self._seconds: list[float] = []
        self._shares: Mapping[str, bool] = {}
        self._live = Progress(
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[state]}", markup=False, style="dim"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._whole = self._live.add_task("", state="")
        self._running: dict[int, tuple[TaskID, Path, int]] = {}

    def __enter__(self) -> SweepProgress:
        with ignore_closed_output(self._console):
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with ignore_closed_output(self._console):
            self._live.stop()

    def show_start(self, job: JobRecord, run_dir: Path, epochs: Any) -> None:
        """Show that an attempt starts."""
        task = self._live.add_task(f"● {job.number}  {self._label(job)}", state="starting")
        self._running[job.number] = task, run_dir, epochs if isinstance(epochs, int) else 0
        if self._live.disable and self._slots == 1:
            self._print(Text(f"job {job.number}  {self._label(job)}", style="dim"))

    def show_end(self, job: JobRecord, outcome: Outcome, *, again: bool = False) -> None:
        """Show how an attempt ended."""
        if job.number in self._running:  # else it could not even be started
            task, run_dir, _ = self._running.pop(job.number)
            self._live.remove_task(task)
            self._shares = self._shares or read_shares(run_dir)
        if outcome.status == "finished" and not outcome.reused_from:
            self._seconds.append(outcome.seconds)
        self._print(self._line(job, outcome, again=again))

    def print_message(self, text: str) -> None:
        """Print a message."""
        self._print(Text(text))

    def refresh(self, jobs: Mapping[int, JobRecord], total: int) -> None:
        """Redraw the running jobs."""
        if self._live.disable:
            return
        counted = set(jobs)
        if self.only is not None:
            counted = self.only
        counts: Counter[str] = Counter(jobs[number].status for number in counted)
        counts["waiting"] += max(0, total - counts.total())
        order = ("finished", "pruned", "failed", "running", "waiting")
        text = "  ".join(f"{counts[status]} {status}" for status in order if counts[status])
        num_left = counts["waiting"] + counts["running"]
        state = ""
        if self._seconds and num_left:
            seconds = num_left * fmean(self._seconds) / self._slots
            state = f"about {format_duration(seconds)} left"
        self._live.update(self._whole, description=text, state=state)
        for task, run_dir, epochs in self._running.values():
            self._shares = self._shares or read_shares(run_dir)
            state = last_progress(run_dir, self._objective.name, epochs, self._shares)
            self._live.update(task, state=state or "starting")
        with ignore_closed_output(self._console):
            self._live.refresh()

    def _print(self, line: Text) -> None:
        with ignore_closed_output(self._console):
            self._console.print(line)
        if self._log is not None:
            with (
                suppress(OSError),
                os.fdopen(open_append(self._log), "a", encoding="utf-8") as file,
            ):
                file.write(f"{now()} {line.plain}\n")

    # -- drawing -----------------------------------------------------------------------------------------

    def _label(self, job: JobRecord) -> str:
        varying = (text.partition("=") for text in job.overrides if text not in self._fixed)
        return format_values({key: value for key, _, value in varying})

    def _line(self, job: JobRecord, outcome: Outcome, *, again: bool) -> Text:
        symbol, plain, style = {
            "finished": ("✓", "+", "green"),
            "pruned": ("✂", "-", "yellow"),
            "interrupted": ("⏸", "|", "yellow"),
            "failed": ("✗", "x", "red"),
        }[outcome.status]
        if not symbol.encode(self._console.encoding, "ignore"):
            symbol = plain
        line = Text.assemble((f"{symbol} {job.number:<4}", style), f" {self._label(job)}  ")
        if outcome.status == "failed":
            line.append(failure_text(outcome), style="red")
            if again:
                line.append("  retrying from its last checkpoint", style="yellow")
            return line
        if outcome.status == "pruned":
            line.append(outcome.reason)
        if outcome.status == "interrupted":
            line.append(f"  {outcome.status}", style=style)
        score = self._objective.score(outcome)
        if outcome.status == "finished" and score is not None:
            name = self._objective.name
            line.append(f"{name} {format_score(name, score, self._shares)}", style="bold")
        took = f"{outcome.seconds:.1f} s"
        if outcome.reused_from:
            took = f"reused from {outcome.reused_from}"
        return line.append(f"  {took}", style="dim")


@contextmanager
def ignore_closed_output(console: Console) -> Iterator[None]:
    """Ignore a closed terminal or pipe while printing in this block: the jobs go on."""
    try:
        yield
    # rich exits the program when a pipe is closed.
    except (OSError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        console.quiet = True
        with suppress(OSError, ValueError):  # a custom stream may have no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, console.file.fileno())
            os.close(nowhere)


def last_progress(
    run_dir: Path, name: str, epochs: int = 0, shares: Mapping[str, bool] | None = None
) -> str:
    """How far a run is: its epoch, and the last score."""
    epoch = score = ""
    path = run_dir / "metrics.csv"
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        # What the end begins with is the header, or the rest of a row.
        rows = read_tail(path, _TAIL).decode(errors="replace").splitlines()[1:]
        for row in csv.DictReader([file.readline(), *rows]):
            epoch = row.get("epoch") or epoch
            score = row.get(name) or score
    if not epoch.isdigit():
        return ""
    text = f"epoch {int(epoch) + 1}"
    if epochs > 0:
        text += f"/{epochs}"
    with suppress(ValueError):  # a row that is being written
        text += f"  {name} {format_score(name, float(score), shares)}"
    return text


def failure_text(outcome: Outcome) -> str:
    """Why a job has failed, in a line."""
    reason = first_line(outcome.reason)
    if outcome.cause in _IN_THE_REASON:
        return reason
    cause = outcome.cause.replace("non_", "not ").replace("_", " ")
    return ": ".join(filter(None, (cause, reason)))


@final
@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep."""

    directory: Path
    jobs: tuple[JobRecord, ...]
    objectives: tuple[Objective, ...]
    total: int
    stopped: int = 0
    config_dir: Path | None = None

    def run_dir(self, job: JobRecord) -> Path:
        """Where a job writes."""
        return self.directory / str(job.number)

    @cached_property
    def comparison(self) -> Comparison:
        """Its runs as `assay compare` compares them."""
        places = {self.run_dir(job) for job in self.jobs}
        try:
            runs = [run for run in read_runs([self.directory], lost=True) if run.path in places]
        except AssayError:  # no job has a directory
            runs = []
        logged = {name for run in runs for name in run.metrics}
        return compare(runs, metrics=sorted(logged))

    @cached_property
    def best(self) -> JobRecord | None:
        """The best job of the best configuration; None where none is comparable and finished."""
        best = self.comparison.best_run
        return next((job for job in self.jobs if best and self.run_dir(job) == best.path), None)

    @cached_property
    def is_repeated(self) -> bool:
        """Whether several jobs share a configuration."""
        return any(len(row.runs) > 1 for row in self.comparison.rows)

    @cached_property
    def rows(self) -> Sequence[Row]:
        """A row per configuration; of repetitions of one alone, without values."""
        rows = self.comparison.rows
        if len(rows) == 1 and self.is_repeated:
            return [replace(rows[0], values={})]
        return rows

    @property
    def exit_code(self) -> int:
        """0 where every job has finished or was pruned, 130, 143 or 129 for a stopped sweep, 1 otherwise."""
        if self.stopped:
            return self.stopped
        ended = sum(job.status in ("finished", "pruned") for job in self.jobs)
        return int(not ended == len(self.jobs) == self.total)


RESULTS = "results.csv"
GROUPS = "groups.csv"
BEST = "best.yaml"
_ENDED = ("finished", "pruned", "failed")
_ROWS = 12
_FAILURES = 12
_WARNINGS = 4


def gather_folds(result: SweepResult) -> list[OutOfFold]:
    """The predictions of all folds; none if no job has tested a fold."""
    folds = out_of_fold.gather_folds(result.rows)
    import_trusted_tasks(fold.predictions.task for fold in folds)
    return folds


def write_results(result: SweepResult, folds: Sequence[OutOfFold] = ()) -> None:
    """Write the result files of a sweep."""
    write_text(result.directory / RESULTS, results_csv(result.jobs))
    if result.is_repeated:
        frame = replace(result.comparison, rows=tuple(result.rows)).to_frame()
        groups = frame.drop(columns=["status", "best", "runs"])  # of which a place may change
        write_text(result.directory / GROUPS, csv_text(groups))
    else:
        (result.directory / GROUPS).unlink(missing_ok=True)
    best = result.best
    if best is not None and (config := result.run_dir(best) / "config.yaml").is_file():
        typed = command("train", *best.overrides, config_dir=result.config_dir)
        head = f"The best of {len(result.jobs)} jobs: job {best.number}\n{typed}".splitlines()
        comment = "".join(f"# {line}\n" for line in head)
        write_text(result.directory / BEST, comment + config.read_text(encoding="utf-8"))
    else:
        (result.directory / BEST).unlink(missing_ok=True)
    out_of_fold.write(result.directory / out_of_fold.FILE, folds)


def print_results(console: Console, result: SweepResult, folds: Sequence[OutOfFold] = ()) -> None:
    """Print the best jobs, the failed ones, where the results are, and what to type next."""
    jobs = result.jobs
    if not jobs:
        return
    console.print()
    _print_ranking(console, result)
    _print_out_of_fold(console, result, folds)
    _print_failures(console, result)
    _print_warnings(console, jobs)
    counts = {word: sum(job.status == word for job in jobs) for word in _ENDED}
    counted = [f"{count} {word}" for word, count in counts.items() if count or word == "finished"]
    ended = f"{', '.join(counted)} of {result.total}"
    if num_left := result.total - sum(counts.values()):
        ended += f", {num_left} not run"
    console.print(f"[bold]sweep[/bold]  {ended}  {escape(str(result.directory / RESULTS))}")
    best = result.best
    if best is not None:
        path = escape(str(result.run_dir(best)))
        console.print(f"[bold]best[/bold]   job {best.number}  {path}  ({BEST} beside the table)")
    print_lines(console, label_commands(next_commands(result)))


def _print_ranking(console: Console, result: SweepResult) -> None:
    ranking = result.comparison.ranking
    if ranking is None:
        return
    name = ranking.metric
    order = [row for row in result.rows if row.finished and name in row.scores]
    if not order:
        return
    keys = dict.fromkeys(key for row in order for key in row.values)
    first = "runs" if result.is_repeated else "job"
    table = make_table((first, *keys, name), (first, name))
    for row in order[:_ROWS]:
        short = shorten_values(row.values)
        label = row.runs[0].path.name
        if result.is_repeated:
            label = f"{row.finished} of {len(row.runs)}"
        values = (escape(short.get(key, "")) for key in keys)
        table.add_row(label, *values, score_text(name, row.scores[name], row.shares))
    console.print(table)
    _print_num_left_out(console, len(order) - _ROWS)
    print_lines(console, [("note", note) for note in ranking.notes], 6, "yellow")
    console.print()


def _print_num_left_out(console: Console, number: int, where: str = "") -> None:
    if number > 0:
        console.print(f"… and {number} more{where}", style="dim")


def _print_warnings(console: Console, jobs: Sequence[JobRecord]) -> None:
    """Print the warnings of finished jobs, such as a model that is of no use."""
    lines = [
        ("warning", f"job {job.number}: {warning}")
        for job in jobs
        if job.status == "finished" and job.outcome
        for warning in job.outcome.warnings
    ]
    print_lines(console, lines[:_WARNINGS], 7, "yellow")
    _print_num_left_out(console, len(lines) - _WARNINGS, " warnings, see the report")


def _print_out_of_fold(console: Console, result: SweepResult, folds: Sequence[OutOfFold]) -> None:
    """The scores of each configuration over the samples of all folds at once, and what is missing."""
    configurations = out_of_fold.group_by_configuration(folds)
    for seeds_of in configurations[:_ROWS]:
        means = out_of_fold.mean_scores(seeds_of)
        scores = ", ".join(f"{name} {format_score(name, value)}" for name, value in means.items())
        label = format_values(seeds_of[0].values)
        rows = f"{len(seeds_of[0].predictions.keys):,} samples"
        if len(seeds_of) > 1:
            rows += f", mean of {len(seeds_of)} seeds"
        parts = filter(None, (escape(label), scores or "no scores", f"({rows})"))
        console.print(f"[bold]out of fold[/bold]  {'  '.join(parts)}")
        problems = dict.fromkeys(problem for fold in seeds_of for problem in fold.problems)
        print_lines(console, [("note", problem) for problem in problems], 6, "yellow")
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
        tried = ""
        if job.failures:
            tried = f" after {len(job.failures) + 1} attempts"
        console.print(f"[red]failed[/red] job {job.number}  {escape(format_values(values))}")
        console.print(f"       {escape(failure_text(outcome))}{tried}")
        console.print(f"       log {escape(str(_find_log(result, job)))}", style="dim")
    _print_num_left_out(console, len(failed) - _FAILURES, f" failed, see {RESULTS}")
    if failed:
        console.print()


def _find_log(result: SweepResult, job: JobRecord) -> Path:
    log = result.run_dir(job) / LOG
    printed = result.directory / "logs" / f"{job.number}.txt"
    died = job.outcome is not None and job.outcome.cause == "killed"
    return next((path for path in log_candidates(log, printed, died=died) if path.is_file()), log)


def next_commands(result: SweepResult) -> list[str]:
    """Commands to type next; none for a sweep without jobs."""
    if not result.jobs:
        return []
    directory = result.directory
    best = result.best
    statuses = [job.status for job in result.jobs]
    ended = sum(status in _ENDED for status in statuses)
    report = []
    if ended:
        report = [command("report", directory)]
    if result.total > ended:
        return [command("resume", directory), *report]
    if "finished" in statuses and (best is None or result.is_repeated):
        report.append(command("compare", directory))
    elif best is not None:
        grid = []
        if any(override.startswith("sweep=") for override in best.overrides):
            grid = ["hydra/sweeper=grid"]
        words = (*grid, "seed=1,2,3")
        report.append(repeat_command(best.overrides, *words, config_dir=result.config_dir))
    if "failed" in statuses:
        report.append(command("resume", directory, "--failed"))
    return report


def import_trusted_tasks(names: Iterable[str]) -> None:
    """Let `task_of` know the tasks in packages that the project in the current directory trusts."""
    packages = project_packages(project_conf())
    for name in {*names}:
        if is_within(name, packages):
            import_task("spec.task", name, packages)
