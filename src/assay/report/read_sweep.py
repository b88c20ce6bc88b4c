"""What the page of a sweep, or of several runs, is made of: read once, from journal and run directories."""

from __future__ import annotations

import os
import shlex
import statistics
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final

from assay.analysis.comparison import compare, verdict_of
from assay.analysis.config_values import fold_of, in_one_line, in_short, varying
from assay.analysis.objective import Objective, objectives
from assay.analysis.read_runs import read_runs as read
from assay.analysis.statistics import mean_of
from assay.config.serialize import REPETITIONS
from assay.errors import AssayError
from assay.files.symlinks import check_inside
from assay.record.journal import FILE, Journal
from assay.record.outcome import Outcome, Status
from assay.record.run_directory import find_runs
from assay.record.run_lock import is_written
from assay.record.run_record import FILE as RECORD
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.analysis.run import Run
    from assay.analysis.statistics import Mean
    from assay.record.journal import JobRecord


@final
@dataclass(frozen=True)
class Group:
    """One configuration."""

    values: Mapping[str, str]
    jobs: tuple[Job, ...]
    scores: tuple[Mean | None, ...]

    @property
    def finished(self) -> int:
        """Jobs that have."""
        return sum(job.status == "finished" for job in self.jobs)

    @property
    def status(self) -> str:
        """Of its jobs, where it is one; else `finished` where some have."""
        kinds = {job.status for job in self.jobs}
        return next(iter(kinds)) if len(kinds) == 1 else "finished" if self.finished else "failed"

    @property
    def label(self) -> str:
        """What it has of its own, on one line."""
        return in_one_line(self.values) or (self.jobs[0].name if len(self.jobs) == 1 else "all")

    @property
    def words(self) -> str:
        """Its values alone: for a legend, where there is no room for keys."""
        return ", ".join(in_short(self.values).values()) or self.label

    @property
    def seconds(self) -> float | None:
        """Mean time of its jobs that have finished."""
        times = [
            job.outcome.seconds for job in self.jobs if job.status == "finished" and job.outcome is not None
        ]
        return statistics.fmean(times) if times else None


def ranked(contents: Contents) -> list[Group]:
    """Configurations from the best to the worst; those with a job that has not finished come last."""
    together: dict[tuple[str, tuple[tuple[str, str], ...]], list[Job]] = {}
    for job in contents.jobs:
        together.setdefault((job.configuration, tuple(job.values.items())), []).append(job)
    groups = [
        Group(dict(key), tuple(jobs), tuple(_score(jobs, aim) for aim in contents.objectives))
        for (_, key), jobs in together.items()
    ]
    first = contents.objectives[0]

    def order(group: Group) -> tuple[bool, bool, float]:
        score = group.scores[0]
        return group.finished < len(group.jobs), *first.sort_key(score.mean if score else None)

    return sorted(groups, key=order)


def verdict(contents: Contents, groups: Sequence[Group]) -> str:
    """Whether the gap between the best and the second is more than noise; empty where there are no two."""
    if len(groups) < 2 or not (first := groups[0].scores[0]) or not (second := groups[1].scores[0]):
        return ""
    aim = contents.objectives[0]
    is_behind = aim.sort_key(second.mean) < aim.sort_key(first.mean)
    return verdict_of(aim.name, first, second, is_behind=is_behind).text


def _score(jobs: Sequence[Job], aim: Objective) -> Mean | None:
    finished = [job for job in jobs if job.status == "finished"]
    scores = (aim.score(job.outcome) if job.outcome is not None else None for job in finished)
    return mean_of(scores, [job.fold for job in finished])


JobStatus: TypeAlias = Status | Literal["waiting", "broken"]


@final
@dataclass(frozen=True)
class Span:
    """A time in which a job ran."""

    start: datetime
    end: datetime
    status: JobStatus
    attempt: int = 1
    place: str = ""


@final
@dataclass(frozen=True)
class Job:
    """A run, or a job of a sweep that may not have one."""

    name: str
    values: Mapping[str, str]
    seed: str
    status: JobStatus
    outcome: Outcome | None = None
    run_dir: Path | None = None
    output: Path | None = None
    attempts: int = 1
    spans: tuple[Span, ...] = ()
    configuration: str = ""
    fold: int | None = None

    @property
    def tested(self) -> dict[str, float]:
        """Its scores of the test."""
        metrics = self.outcome.metrics if self.outcome is not None else {}
        return {name: value for name, value in metrics.items() if name.startswith("test/")}

    @property
    def label(self) -> str:
        """What it has of its own, on one line."""
        return in_one_line(self.values) or self.name


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
    scales: Mapping[str, bool] = field(default_factory=dict)
    is_sweep: bool = True
    decides: bool = True

    @property
    def keys(self) -> list[str]:
        """Of the values that not all jobs share, in the order in which they appear."""
        return list(dict.fromkeys(key for job in self.jobs for key in job.values))


def spans_of(record: RunRecord, *, is_alive: bool) -> tuple[Span, ...]:
    """When and where a run ran, from its record."""
    starts = [record.started, *(entry.get("at", "") for entry in record.resumed)]
    before = [entry.get("before") or {} for entry in record.resumed]
    ends: list[tuple[object, object, object]] = [
        (one.get("finished"), one.get("seconds"), one.get("status")) for one in before
    ]
    last = "running" if is_alive else record.outcome.status
    ends.append((record.finished, record.seconds, last))
    machines = [record.machine, *(entry.get("machine") or record.machine for entry in record.resumed)]
    spans = []
    for number, (started, (finished, seconds, status), machine) in enumerate(
        zip(starts, ends, machines, strict=True), 1
    ):
        start = time_of(started)
        if start is None:
            continue
        end = time_of(finished)
        if end is None and isinstance(seconds, int | float) and 0 < seconds < 1e9:
            end = start + timedelta(seconds=seconds)
        if end is None:
            end = datetime.now(UTC) if is_alive and number == len(starts) else start
        known: JobStatus = status if status in _STATUSES else "interrupted"  # type: ignore[assignment]  # one of them
        spans.append(Span(start, max(start, end), known, number, place_of(machine)))
    return tuple(spans)


def place_of(machine: Mapping[str, object]) -> str:
    """The host, and the GPUs where the job was given its own."""
    environment = machine.get("environment")
    devices = environment.get("CUDA_VISIBLE_DEVICES", "") if isinstance(environment, dict) else ""
    host = str(machine.get("hostname") or "unknown host")
    return f"{host} · GPU {devices}" if machine.get("gpus") and devices else host


def time_of(text: object) -> datetime | None:
    """A time as records and journals say it; None for anything else."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


_STATUSES = ("finished", "failed", "pruned", "interrupted", "running")


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
        spans=_run_spans(run),
        fold=run.fold,
    )


def _run_spans(run: Run) -> tuple[Span, ...]:
    try:
        return spans_of(RunRecord.load(run.path), is_alive=run.status == "running")
    except AssayError:  # a broken one, which says so itself
        return ()


def _above(runs: Sequence[Run]) -> Path:
    return Path(os.path.commonpath([run.path.absolute().parent for run in runs]))


LEFT: Final = "attempts"
"""Folder of what failed attempts left that were begun anew."""


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
    for job_record, values in zip(records, varying(records), strict=True):
        run_dir = places.get(job_record.number)
        if run_dir is not None and not _shows(run_dir, directory, notices):
            run_dir = None
        job = _job(job_record, values, run_dir, notices, is_driven=is_driven)
        output = directory / "logs" / f"{job_record.number}.txt" if shows_logs else None
        jobs.append(replace(job, output=output))
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
        {
            key: value.replace(" ", "").startswith("tag(log,")
            for command in journal.commands
            for key, _, value in (word.lstrip("+").partition("=") for word in command)
            if "interval(" in value
        },
    )


def _shows(path: Path, directory: Path, notices: list[str]) -> bool:
    try:
        check_inside(path, directory)
    except AssayError as error:
        notices.append(f"{error.message}.")
        return False
    return True


def _job(
    job_record: JobRecord,
    values: Mapping[str, str],
    run_dir: Path | None,
    notices: list[str],
    *,
    is_driven: bool,
) -> Job:
    record = None
    if run_dir is not None:
        try:
            record = RunRecord.load(run_dir)
        except AssayError as error:
            notices.append(f"Job {job_record.number}: {error.message}")
    is_alive = (
        run_dir is not None and record is not None and record.status == "running" and is_written(run_dir)
    )
    status: JobStatus = job_record.status
    if status == "running" and not is_driven and not is_alive:
        status = "interrupted"  # its sweep was killed
    if status == "waiting" and job_record.attempts:
        status = "interrupted"
    return Job(
        str(job_record.number),
        {key: value for key, value in values.items() if key not in REPETITIONS},
        str(job_record.seed),
        status,
        job_record.outcome,
        run_dir,
        attempts=job_record.attempts,
        spans=_spans(job_record, record, status, is_alive=is_alive),
        fold=fold_of(job_record.overrides),
    )


def _spans(
    job_record: JobRecord, record: RunRecord | None, status: JobStatus, *, is_alive: bool
) -> tuple[Span, ...]:
    """By the journal, which knows of every attempt; by the record of what the journal does not say."""
    ran = spans_of(record, is_alive=is_alive) if record is not None else ()
    place = place_of(record.machine) if record is not None else ""
    spans: list[Span] = []
    for part in job_record.history:
        start, end = time_of(part.started), time_of(part.ended)
        if start is None:
            continue
        within = [span for span in ran if span.end >= start and (end is None or span.start <= end)]
        if within:
            start = max(start, within[0].start)  # what came before was waiting in a queue
        ended: JobStatus = part.status
        if end is None:
            ended = status if part is job_record.history[-1] else "interrupted"
            end = (
                datetime.now(UTC) if ended == "running" else max((span.end for span in within), default=start)
            )
        spans.append(Span(start, max(start, end), ended, part.number, place))
    return tuple(spans) or ran


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
            if run_dir in known or run_dir.is_relative_to(directory / LEFT):
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
