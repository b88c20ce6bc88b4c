"""Run a sweep from its command line to its tables, new or resumed."""

from __future__ import annotations

import math
import shlex
import time
from contextlib import ExitStack, chdir, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.check.checker import Checker
from assay.check.values import check_folder
from assay.compose.compose import loader
from assay.errors import AssayError, ConfigError, ProcessError
from assay.files.symlinks import check_links
from assay.paths import project_conf
from assay.process import collect_signals
from assay.quoting import pluralize, quote_text
from assay.record.run_directory import LOG
from assay.record.run_lock import is_written, lock_error, lock_run
from assay.record.run_record import RunRecord, exit_code_of, now
from assay.rooms import name_source
from assay.run.result import print_warnings
from assay.targets.trust import KEY, trust, typed_packages
from assay.terminal import Console
from assay_analysis.journal import JobRecord, Journal, refuse_existing
from assay_analysis.objective import scores_of
from assay_sweep.definition import SweepDefinition, check_same_loss, read_definition
from assay_sweep.job_spec import JobSpec
from assay_sweep.launcher.serial import SerialLauncher
from assay_sweep.scheduler import Scheduler, make_job_record, needs_of
from assay_sweep.summary import (
    SweepProgress,
    SweepResult,
    gather_folds,
    ignore_closed_output,
    print_results,
    write_results,
)
from assay_sweep.worker.fork_client import CheckProcess, ForkServer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from omegaconf import DictConfig

    from assay.check.report import Report
    from assay.compose.compose import Job
    from assay_analysis.objective import Objective
    from assay_sweep.launcher.launcher import Launcher
    from assay_sweep.search.search import Search

_SEARCH_PATH = "hydra.searchpath"


def resolve_folders(
    directory: Path, journal: Journal, overrides: Sequence[str], config_dir: Path | None
) -> tuple[Path, Path | None]:
    """Working and config directory of a resumed sweep; refuse recorded settings that need typing again."""
    cwd = Path.cwd()
    original = Path(journal.header["cwd"])
    recorded = None
    if journal.header["config_dir"]:
        recorded = Path(journal.header["config_dir"])
    is_there = original.is_absolute() and original.is_dir()
    at_home = not is_there or original.samefile(cwd)
    flags: list[str] = []
    if recorded is not None and config_dir is None:
        # of the project that the person stands in, and not of the sweep
        folder = recorded.resolve()
        in_project = folder.is_relative_to(cwd.resolve()) and not folder.is_relative_to(
            directory.resolve()
        )
        if not (is_there and at_home and in_project):
            flags.append(f"--config-dir {shlex.quote(str(recorded))}")
    before = merge_commands(journal.commands)
    typed_now = {key_of(word) for word in overrides}
    words = [
        word for word in before if key_of(word) == _SEARCH_PATH and _SEARCH_PATH not in typed_now
    ]
    missing = [name for name in typed_packages(before) if name not in trust(overrides).packages]
    if missing and KEY not in typed_now:
        words.append(f"{KEY}=[{','.join(missing)}]")
    change_directory = ""
    if not at_home and (
        words or flags or recorded is not None or project_conf(original) is not None
    ):
        change_directory = f"cd {shlex.quote(str(original))} && "
        directory = directory.resolve()
    if change_directory or flags or words:
        requests = [*([f"to run in {original}"] if change_directory else []), *flags, *words]
        words_typed = map(shlex.quote, (str(directory), *overrides, *words))
        command = " ".join(["assay resume", *words_typed, *flags])
        raise AssayError(
            f"{directory} needs your approval for: {', '.join(requests)}",
            hint=f"if you trust it: {change_directory}{command}",
        )
    return cwd if at_home else original, config_dir if config_dir is not None else recorded


def merge_commands(commands: Iterable[Sequence[str]]) -> list[str]:
    """Merge commands into one: a later override replaces an earlier one of the same key."""
    overrides_by_key: dict[str, str] = {}
    for override in (override for command in commands for override in command):
        overrides_by_key.pop(key_of(override), None)
        overrides_by_key[key_of(override)] = override
    return list(overrides_by_key.values())


def key_of(override: str) -> str:
    """Its key, or the group that it chooses of."""
    return override.partition("=")[0].strip().lstrip("+~")


_PATIENCE = 30.0
"""Seconds that the processes of a killed sweep have to save and end."""


def start_sweep(
    overrides: Sequence[str], config_dir: Path | None = None, *, deadline: float = math.inf
) -> SweepResult:
    """Run a new sweep, until a time of `time.monotonic` at most."""
    with ExitStack() as stack:
        hydra = stack.enter_context(loader(config_dir))
        sweep = replace(read_definition(hydra, overrides, config_dir), deadline=deadline)
        checker = stack.enter_context(_open_checker(sweep))
        jobs, tokens, launcher = _check_new_sweep(sweep, checker)
        reports = _check_jobs(checker, jobs, sweep.search.total)
        check_same_loss(sweep, jobs, reports)
        journal = Journal.create(
            sweep.directory,
            overrides=list(overrides),
            config_dir=str(config_dir.absolute()) if config_dir else "",
            cwd=str(Path.cwd()),
            started=now(),
            **_objectives_for_journal(sweep.objectives),
        )
        stack.enter_context(_lock_sweep(sweep.directory))
        journal.add(
            [make_job_record(number, jobs[number], token) for number, token in tokens.items()]
        )
        return _run_jobs(
            sweep, journal, launcher, checker, jobs={n: (jobs[n], reports[n]) for n in tokens}
        )


def resume_sweep(
    directory: Path,
    overrides: Sequence[str] = (),
    config_dir: Path | None = None,
    *,
    again: bool = False,
) -> SweepResult:
    """Run what is missing of a sweep."""
    stored = Journal.open(directory, repair=False)  # a mistyped directory costs no lock
    check_links(directory)
    cwd, config_dir = resolve_folders(directory, stored, overrides, config_dir)
    with ExitStack() as stack:
        if not cwd.samefile(Path.cwd()):
            directory = directory.resolve()
            stack.enter_context(chdir(cwd))
        stack.enter_context(_lock_sweep(directory))
        journal = Journal.open(directory)
        # Trusted packages have to be named again on each resume.
        before = ([word for word in words if key_of(word) != KEY] for words in journal.commands)
        typed = merge_commands([*before, overrides])
        sweep_dir = [f"hydra.sweep.dir={quote_text(str(directory))}"]
        hydra = stack.enter_context(loader(config_dir))
        sweep = read_definition(
            hydra, [*typed, *sweep_dir], config_dir, typed=[*overrides, *sweep_dir]
        )
        checker = stack.enter_context(_open_checker(sweep))
        jobs, tokens = _match_jobs(sweep, journal, again=again)
        checker.names(jobs)
        launcher = sweep.make_launcher()
        _recover(journal, jobs.keys() - set(launcher.kept()))
        open_jobs = {
            number: job
            for number, job in jobs.items()
            if number not in journal.jobs or not _is_over(journal.jobs[number], again=again)
        }
        reports = _check_jobs(checker, open_jobs, len(open_jobs))
        check_same_loss(sweep, jobs, reports)
        if overrides:
            journal.note_command(overrides, **_objectives_for_journal(sweep.objectives))
        journal.add(
            [make_job_record(number, jobs[number], token) for number, token in tokens.items()]
        )
        for number in open_jobs:
            if journal.jobs[number].ended:
                journal.reopen(number)
        jobs_and_reports = {number: (job, reports.get(number)) for number, job in jobs.items()}
        return _run_jobs(sweep, journal, launcher, checker, jobs=jobs_and_reports)


def plan_sweep(overrides: Sequence[str], config_dir: Path | None = None) -> list[DictConfig]:
    """Compose the jobs that a sweep begins with, each with its `hydra` node."""
    with loader(config_dir) as hydra:
        sweep = read_definition(hydra, overrides, config_dir)
        _, proposals = _first_proposals(sweep.search)
        return [
            sweep.composer.compose(overrides, number)
            for number, overrides in enumerate(proposals)
        ]


def check_sweep(overrides: Sequence[str], config_dir: Path | None = None) -> list[Report]:
    """Check a sweep as `start_sweep` does, without running it."""
    with loader(config_dir) as hydra:
        sweep = read_definition(hydra, overrides, config_dir)
        checker = Checker(config_dir, accept=sweep.check_scores)
        jobs, _, _ = _check_new_sweep(sweep, checker)
        reports = _check_all(checker, jobs)
        check_same_loss(sweep, jobs, reports)
    return list(reports.values())


def _first_proposals(search: Search) -> tuple[dict[int, str], list[tuple[str, ...]]]:
    """Tokens and overrides of the first jobs; of a search that learns, jobs that stand for all others."""
    if search.learns:
        return {}, search.samples()
    proposals = list(iter(search.next, None))
    tokens = {number: proposal.token for number, proposal in enumerate(proposals)}
    return tokens, [proposal.overrides for proposal in proposals]


def _check_new_sweep(
    sweep: SweepDefinition, checker: Checker
) -> tuple[dict[int, Job], dict[int, str], Launcher]:
    """Check what can be checked of a new sweep without torch."""
    for override in sweep.overrides:
        if key_of(override) == "hydra.run.dir":
            raise ConfigError(
                "the runs of a sweep lie in its directory",
                key="hydra.run.dir",
                hint=f"hydra.sweep.dir{override[override.find('=') :]}",
            )
    with name_source(sweep.overrides, sweep.config_dir):
        check_folder("hydra.sweep.dir", str(sweep.directory))
    refuse_existing(sweep.directory)
    tokens, proposals = _first_proposals(sweep.search)
    jobs = {
        number: sweep.composer.job(overrides, number)
        for number, overrides in enumerate(proposals)
    }
    checker.names(jobs)
    launcher = sweep.make_launcher()
    for number, job in jobs.items():
        needs: dict[str, Any] = needs_of(job, has_gpus=False)
        if needs["nodes"] > 1:
            with name_source(job.overrides, sweep.config_dir):
                launcher.check_nodes(
                    JobSpec(number, 1, "", "", list(job.overrides), job.choices, **needs)
                )
    return jobs, tokens, launcher


def _check_jobs(checker: Checker, jobs: Mapping[int, Job], total: int) -> dict[int, Report]:
    """Check jobs that stand for `total` jobs, and print their warnings."""
    with Console(stderr=True).status(
        f"loading torch and Lightning, then checking {pluralize(total, 'job')}"
    ):
        reports = _check_all(checker, jobs)
    print_warnings(warning for report in reports.values() for warning in report.warnings)
    return reports


Failure = tuple[int, "Sequence[str]", AssayError]
"""Number of a job, its overrides, and why it cannot run."""
_MOST = 10
"""Different errors to show."""


def _check_all(checker: Checker, jobs: Mapping[int, Job]) -> dict[int, Report]:
    """Check all jobs, even if some fail."""
    reports: dict[int, Report] = {}
    failures: list[Failure] = []
    for number, job in jobs.items():
        try:
            reports[number] = checker.report(job)
        except ProcessError:
            raise
        except AssayError as error:
            failures.append((number, job.overrides, error))
    if failures:
        first = failures[0][2]
        if len(jobs) == 1:
            raise first
        raise _summarize(failures, len(jobs)) from first
    return reports


def _summarize(failures: Sequence[Failure], total: int) -> AssayError:
    """One error for all failures; equal messages are shown once."""
    by_message: dict[str, list[Failure]] = {}
    for failure in failures:
        by_message.setdefault(str(failure[2]), []).append(failure)
    lines = [f"{len(failures)} of {total} jobs cannot run; none was started"]
    for message, ((number, overrides, _), *others) in list(by_message.items())[:_MOST]:
        more = f" and {len(others)} more" * bool(others)
        lines.append(f"job {number}{more} ({' '.join(overrides)})")
        lines.extend(f"  {line}" for line in message.splitlines())
    if len(by_message) > _MOST:
        lines.append(f"… and {len(by_message) - _MOST} other errors")
    summary = ConfigError("\n".join(lines))
    summary.exit_code = max(error.exit_code for _, _, error in failures)
    return summary


def _match_jobs(
    sweep: SweepDefinition, journal: Journal, *, again: bool
) -> tuple[dict[int, Job], dict[int, str]]:
    """The jobs of a resumed sweep, each under its original number."""
    if sweep.search.learns:
        return {
            number: sweep.composer.job(record.overrides, number)
            for number, record in sorted(journal.jobs.items())
            if not _is_over(record, again=again)
        }, {}
    numbers: dict[str, list[int]] = {}
    for number, job_record in sorted(journal.jobs.items(), reverse=True):
        numbers.setdefault(job_record.fingerprint, []).append(number)
    jobs: dict[int, Job] = {}
    new_tokens: dict[int, str] = {}
    next_number = max(journal.jobs, default=-1) + 1
    while proposal := sweep.search.next():
        job = sweep.composer.job(proposal.overrides, next_number)
        if earlier := numbers.get(job.fingerprint):
            number = earlier.pop()
            jobs[number] = sweep.composer.job(proposal.overrides, number)
        else:
            jobs[next_number] = job
            new_tokens[next_number] = proposal.token
            next_number += 1
    return jobs, new_tokens


def _recover(journal: Journal, numbers: Collection[int]) -> None:
    """Record jobs that ended while no driver ran, once the processes of the previous driver are gone."""
    run_dirs = {
        number: journal.path.parent / str(number)
        for number, job in sorted(journal.jobs.items())
        if number in numbers and job.attempts and not job.ended
    }
    wait_for_runs(run_dirs.values())
    for number, run_dir in run_dirs.items():
        with suppress(AssayError):  # no record, or a damaged one: the attempt to go on says so
            record = RunRecord.load(run_dir)
            if record.status in ("finished", "pruned"):
                journal.end(number, record.outcome)


def wait_for_runs(run_dirs: Iterable[Path]) -> None:
    """Wait until no process writes to any of these runs."""
    deadline = time.monotonic() + _PATIENCE
    for run_dir in run_dirs:
        while is_written(run_dir):
            if time.monotonic() > deadline:
                raise lock_error(run_dir)
            time.sleep(0.1)


def _is_over(job_record: JobRecord, *, again: bool) -> bool:
    # One without a fingerprint could not even be composed.
    return job_record.ended and not (
        again and job_record.status == "failed" and job_record.fingerprint
    )


def _run_jobs(
    sweep: SweepDefinition,
    journal: Journal,
    launcher: Launcher,
    checker: Checker,
    *,
    jobs: Mapping[int, tuple[Job, Report | None]],
) -> SweepResult:
    learns = sweep.search.learns
    fixed = set(sweep.overrides)
    if not learns and len(jobs) > 1:
        fixed |= set.intersection(*(set(job.overrides) for job, _ in jobs.values()))
    console = Console(highlight=False, soft_wrap=True)
    with collect_signals() as signals:
        aims = sweep.objectives
        with SweepProgress(
            console, aims[0], launcher.slots, fixed, log=sweep.directory / LOG
        ) as progress:
            if not learns:
                progress.only = set(jobs)
            scheduler = Scheduler(
                sweep, journal, launcher, check=checker.report, watcher=progress, signals=signals
            )
            if learns:  # also of a new sweep: a storage may know more than the journal
                known = (
                    (entry.token, entry.outcome, entry.outcome and scores_of(entry.outcome, aims))
                    for _, entry in sorted(journal.jobs.items())
                )
                sweep.search.restore(list(known))
            for number, (job, report) in sorted(jobs.items()):
                if report is not None:
                    scheduler.queue(journal.jobs[number], job, report)
            scheduler.run()
        total = len(jobs)
        if learns:
            total = sweep.search.total
        stopped = 0
        if signals:
            stopped = exit_code_of(signals[0].name)
        result = SweepResult(
            sweep.directory,
            jobs=tuple(
                entry
                for number, entry in sorted(journal.jobs.items())
                if learns or number in jobs
            ),
            objectives=tuple(aims),
            total=total,
            stopped=stopped,
            config_dir=sweep.config_dir,
        )
        folds = gather_folds(result)
        write_results(result, folds)
        if sweep.deadline == math.inf:  # a try says itself what came of its runs
            with ignore_closed_output(console):
                print_results(console, result, folds)
    return result


@contextmanager
def _lock_sweep(directory: Path) -> Iterator[None]:
    """Lock a sweep for writing; report in one line what cannot be written, and how to resume."""
    try:
        with lock_run(directory):
            yield
    except OSError as error:
        raise AssayError(
            f"the sweep cannot write {error.filename or directory}: {error.strerror}",
            hint=f"assay resume {shlex.quote(str(directory))}, once it can",
        ) from error


def _objectives_for_journal(aims: Sequence[Objective]) -> dict[str, list[str]]:
    """Names and directions of the objectives, as the journal stores them."""
    return {
        "objectives": [aim.name for aim in aims],
        "directions": [str(aim.direction) for aim in aims],
    }


@contextmanager
def _open_checker(sweep: SweepDefinition) -> Iterator[Checker]:
    """A checker in another process, so that this one needs no torch; in this one if the jobs run here too."""
    if sweep.launcher_class is SerialLauncher:
        yield Checker(sweep.config_dir, accept=sweep.check_scores)
        return
    # The other one imports torch while this one composes.
    with closing(CheckProcess(ForkServer.shared())) as process:
        yield Checker(sweep.config_dir, prove=process.prove, accept=sweep.check_scores)
