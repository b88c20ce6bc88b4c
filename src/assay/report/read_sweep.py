"""What the page of a sweep, or of several runs, is made of: read once, from journal and run directories."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from assay.analysis.comparison import compare, verdict_of
from assay.analysis.config_values import varying
from assay.analysis.jobs import Job, JobGroup, group_jobs, jobs_of, rank
from assay.analysis.objective import Objective, objectives
from assay.analysis.read_runs import read_runs as read
from assay.errors import AssayError
from assay.files.symlinks import check_inside
from assay.record.journal import FILE, Journal
from assay.record.outcome import JobStatus, Outcome
from assay.record.run_directory import find_runs
from assay.record.run_lock import is_written
from assay.record.run_record import FILE as RECORD
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.analysis.run import Run
    from assay.record.journal import JobRecord


def ranked(contents: Contents) -> list[JobGroup]:
    """Configurations from the best to the worst; those with a job that has not finished come last."""
    return rank(group_jobs(contents.jobs, contents.objectives), contents.objectives[0])


def verdict(contents: Contents, groups: Sequence[JobGroup]) -> str:
    """Whether the gap between the best and the second is more than noise; empty where there are no two."""
    if len(groups) < 2 or not (first := groups[0].scores[0]) or not (second := groups[1].scores[0]):
        return ""
    aim = contents.objectives[0]
    is_behind = aim.sort_key(second.mean) < aim.sort_key(first.mean)
    return verdict_of(aim.name, first, second, is_behind=is_behind).text


@final
@dataclass(frozen=True)
class Contents:
    """All that a page says of a sweep or of several runs."""

    title: str
    source: str
    jobs: tuple[Job, ...]
    objectives: tuple[Objective, ...]
    shared: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    is_sweep: bool = True
    decides: bool = True

    @property
    def keys(self) -> list[str]:
        """Of the values that not all jobs share, in the order in which they appear."""
        return list(dict.fromkeys(key for job in self.jobs for key in job.values))


def read_runs(paths: Sequence[Path]) -> Contents:
    """Read all runs in some folders."""
    runs = read(paths)
    comparison = compare(runs)
    ranking = comparison.ranking
    root = _above(runs)
    jobs = []
    for number, row in enumerate(comparison.rows):
        done = {run.fingerprint for run in row.counted}
        # What was run again counts by the last one that has finished, as the comparison's notes say.
        kept = [run for run in row.runs if run in row.counted or run.fingerprint not in done]
        values = {key: value for key, value in row.values.items() if value is not None}
        jobs += [replace(_run_job(run, root, values), configuration=str(number)) for run in kept]
    jobs += [replace(_run_job(run, root, {}), configuration=str(run.path)) for run in comparison.broken]
    aim = Objective("val/loss", "minimize")  # where no run has a score yet
    if ranking is not None:
        aim = Objective(ranking.metric, "minimize" if ranking.direction == "min" else "maximize")
    return Contents(
        paths[0].resolve().name if len(paths) == 1 else f"{len(jobs)} runs",
        ", ".join(map(str, paths)),
        tuple(jobs),
        (aim,),
        tuple(f"{key}={value}" for key, value in comparison.shared.items()),
        notices=tuple(f"{note[:1].upper()}{note[1:]}." for note in comparison.notes),
        is_sweep=False,
        decides=ranking is None or ranking.decides,
    )


def _run_job(run: Run, root: Path, values: Mapping[str, str]) -> Job:
    status = run.status
    best: dict[str, Any] = dict(run.best)
    outcome = Outcome(
        "failed" if status in ("broken", "running") else cast("Any", status),
        run.cause,
        run.reason,
        metrics=dict(run.metrics),
        best=best,
        seconds=run.seconds,
        warnings=list(run.warnings),
    )
    return Job(
        os.path.relpath(run.path, root) if run.path != root else run.path.name,
        values,
        "" if status == "broken" else str(run.seed),
        status,
        outcome,
        run.path,
        fold=run.fold,
    )


def _above(runs: Sequence[Run]) -> Path:
    return Path(os.path.commonpath([run.path.absolute().parent for run in runs]))


def is_sweep(directory: Path) -> bool:
    """Whether a folder is a sweep's."""
    return (directory / FILE).is_file()


def read_sweep(directory: Path) -> Contents:
    """Read a sweep, also one that still runs or was killed."""
    journal = Journal.open(directory, repair=False)
    records = [job_record for _, job_record in sorted(journal.jobs.items())]
    places = _places(directory, records)
    is_driven = is_written(directory)
    notices: list[str] = []
    jobs = []
    shows_logs = _shows(directory / "logs", directory, notices)
    for job in jobs_of(records):
        run_dir = places.get(int(job.name))
        if run_dir is not None and not _shows(run_dir, directory, notices):
            run_dir = None
        status = _status(job, run_dir, notices, is_driven=is_driven)
        output = directory / "logs" / f"{job.name}.txt" if shows_logs else None
        jobs.append(replace(job, status=status, run_dir=run_dir, output=output))
    left = sum(job.status not in ("finished", "failed", "pruned") for job in jobs)
    if left:
        goes_on = "it is still running" if is_driven else f"assay resume {shlex.quote(str(directory))}"
        notices.append(f"{left} of {len(jobs)} jobs are not done: {goes_on}.")
    differing = {key for values in varying(records) for key in values}
    shared = tuple(
        override
        for override in (records[0].overrides if len(records) > 1 else ())
        if override.partition("=")[0].lstrip("+") not in differing
    )
    return Contents(
        directory.resolve().name,
        str(directory),
        tuple(jobs),
        _objectives(journal),
        shared,
        tuple(shlex.join(["assay", "train", "-m", *command]) for command in journal.commands),
        tuple(notices),
    )


def _shows(path: Path, directory: Path, notices: list[str]) -> bool:
    try:
        check_inside(path, directory)
    except AssayError as error:
        notices.append(f"{error.message}.")
        return False
    return True


def _status(job: Job, run_dir: Path | None, notices: list[str], *, is_driven: bool) -> JobStatus:
    is_alive = is_driven
    if run_dir is not None:
        try:
            record = RunRecord.load(run_dir)
            is_alive |= record.status == "running" and is_written(run_dir)
        except AssayError as error:
            notices.append(f"Job {job.name}: {error.message}")
    was_killed = job.status == "running" and not is_alive
    return "interrupted" if was_killed or (job.status == "waiting" and job.attempts) else job.status


def _places(directory: Path, records: list[JobRecord]) -> dict[int, Path]:
    """Run directories by the jobs' numbers; found by fingerprint where they are not called by the number."""
    places = {
        job_record.number: directory / str(job_record.number)
        for job_record in records
        if (directory / str(job_record.number) / RECORD).is_file()
    }
    lost = {
        job_record.fingerprint: job_record.number
        for job_record in records
        if job_record.attempts and job_record.number not in places
    }
    if lost:
        known = set(places.values())
        for run_dir in find_runs(directory):
            if run_dir in known:
                continue
            try:
                number = lost.get(RunRecord.load(run_dir).fingerprint)
            except AssayError:
                continue
            if number is not None:
                places[number] = run_dir
    return places


def _objectives(journal: Journal) -> tuple[Objective, ...]:
    named = tuple(Objective(name, direction) for name, direction in journal.objectives)  # type: ignore[arg-type]  # checked by the journal
    return named or tuple(objectives({}, {}))


def read_contents(paths: Sequence[Path]) -> Contents:
    """Read a sweep, or any runs; a sweep whose journal is damaged is what its runs are."""
    if len(paths) != 1 or not is_sweep(paths[0]):
        return read_runs(paths)
    try:
        return read_sweep(paths[0])
    except AssayError as error:
        try:
            contents = read_runs(paths)
        except AssayError:
            raise error from None
        notice = f"{error.message}. What follows is from the run directories alone."
        return replace(contents, notices=(notice, *contents.notices))
