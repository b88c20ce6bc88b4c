"""`journal.jsonl`: what has happened to each job of a sweep. It only grows, and survives every death."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import msgspec

from assay.errors import AssayError, explain_write_errors
from assay.files.atomic import Output, sync_directory
from assay.files.symlinks import check_links, open_append, read_whole
from assay.record.run_directory import JOURNAL
from assay.record.run_record import Outcome, Status, from_json_numbers, to_json_numbers
from assay.record.secrets import redact_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    Event = dict[str, Any]

VERSION = 1
_OF_JOB = ("number", "fingerprint", "overrides", "token", "seed")
"""What a job is; all else is what has happened to it."""


@final
@dataclass(frozen=True)
class JobRecord:
    """What the journal says of one job."""

    number: Annotated[int, msgspec.Meta(ge=0)]  # a job's directory is called by it
    fingerprint: str
    overrides: tuple[str, ...]
    token: str = ""
    seed: int = 0
    status: Literal["waiting"] | Status = "waiting"
    attempts: int = 0
    failures: tuple[Outcome, ...] = ()
    outcome: Outcome | None = None
    started: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.status in ("finished", "failed", "pruned")

    @property
    def fold(self) -> int | None:
        """Which fold it tests; None without folds."""
        typed = dict(override.lstrip("+").partition("=")[::2] for override in self.overrides)
        fold = typed.get("fold", "")
        if fold.isdecimal():
            return int(fold)
        return None


@final
@dataclass
class Journal:
    """The events of a sweep, on disk and as what they come to."""

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    objectives: list[tuple[str, str]] = field(default_factory=list)
    jobs: dict[int, JobRecord] = field(default_factory=dict)

    @classmethod
    def create(cls, directory: Path, **header: Any) -> Journal:
        """Begin the journal of a new sweep."""
        refuse_existing(directory)
        journal = cls(directory / JOURNAL)
        with explain_write_errors(
            f"the sweep's directory {directory}", "hydra.sweep.dir=SOMEWHERE/ELSE"
        ):
            check_links(directory)
            directory.mkdir(parents=True, exist_ok=True)
            journal._write([{"event": "sweep", "version": VERSION, **header}])
            sync_directory(directory)
        return journal

    @classmethod
    def open(cls, directory: Path, *, repair: bool = True) -> Journal:
        """Read a journal; half a line at its end is cut off."""
        path = directory / JOURNAL
        try:
            lines = read_lines(path, repair=repair)
        except OSError as error:
            raise AssayError(f"{directory} is not a sweep: it has no {JOURNAL}") from error
        journal = cls(path)
        for number, line in enumerate(lines, 1):
            try:
                journal._apply(json.loads(line))
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
                raise AssayError(
                    f"{path} is damaged in line {number}: {error}", hint="restore it from a copy"
                ) from error
        if not journal.header:
            raise AssayError(
                f"{path} is damaged: its first line is not whole", hint="start the sweep again"
            )
        return journal

    def note_command(self, overrides: Sequence[str], **more: Any) -> None:
        """Note that the sweep goes on."""
        self._write([{"event": "command", "overrides": list(overrides), **more}])

    def add(self, jobs: Sequence[JobRecord]) -> None:
        """Note new jobs."""
        if jobs:
            self._write(
                [
                    {"event": "job", **{name: getattr(job, name) for name in _OF_JOB}}
                    for job in jobs
                ]
            )

    def start(self, number: int, attempt: int) -> None:
        """Note that an attempt begins, or goes on."""
        self._write([{"event": "start", "number": number, "attempt": attempt, "at": _now()}])

    def end(self, number: int, outcome: Outcome, *, final: bool = True) -> None:
        """Note how an attempt ended."""
        plain = to_json_numbers(asdict(outcome))
        self._write([{"event": "end", "number": number, "final": final, "at": _now(), **plain}])

    def reopen(self, number: int) -> None:
        """Note that a job which has failed is to run again."""
        self._write([{"event": "reopen", "number": number}])

    def _write(self, events: list[Event]) -> None:
        append_events(self.path, events)
        for event in events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        kind = event["event"]
        if kind == "sweep":
            if event["version"] != VERSION:
                raise AssayError(
                    f"{self.path} has version {event['version']!r}; this assay reads {VERSION}",
                    hint="use the version of assay that started the sweep",
                )
            self.header = {"cwd": "", "config_dir": "", **event}
        if kind in ("sweep", "command"):
            self.commands.append(msgspec.convert(event["overrides"], list[str]))
            self.objectives = _objectives(event) or self.objectives
        elif kind == "job":
            self.jobs[event["number"]] = msgspec.convert(event, JobRecord)
        else:
            number = event["number"]
            if number not in self.jobs:
                raise ValueError(f"it names job {number}, which the sweep does not have")
            self.jobs[number] = _update_job(self.jobs[number], event)


def _objectives(event: Event) -> list[tuple[str, str]]:
    directions = [
        word for word in event.get("directions", ()) if word in ("minimize", "maximize")
    ]
    return list(zip(event.get("objectives", ()), directions, strict=False))


def _update_job(job_record: JobRecord, event: Event) -> JobRecord:
    if event["event"] == "start":
        started = job_record.started or event.get("at", "")
        return replace(job_record, status="running", attempts=event["attempt"], started=started)
    if event["event"] == "reopen":
        return replace(job_record, status="waiting", attempts=0, failures=(), outcome=None)
    numbers = {name: from_json_numbers(event[name]) for name in ("metrics", "best")}
    outcome = Outcome.from_plain({**event, **numbers})
    if outcome.status == "interrupted":
        return replace(job_record, status="waiting")
    if not event["final"]:
        return replace(job_record, status="waiting", failures=(*job_record.failures, outcome))
    return replace(job_record, status=outcome.status, outcome=outcome)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _redact_event(event: Event) -> Event:
    # Neither the search's name for a job is a secret, which may be what was typed for it, nor what equals it.
    clean: Event = redact_tree({key: value for key, value in event.items() if key != "token"})
    if "token" in event:
        clean["token"] = " ".join(redact_tree(event["token"].split(" ")))
    return clean


def append_events(path: Path, events: Iterable[Event]) -> None:
    """One write for all, synced: what happened is in memory only after it is on disk."""
    lines = [json.dumps(_redact_event(event), separators=(",", ":")) + "\n" for event in events]
    descriptor = open_append(path)
    try:
        size = os.fstat(descriptor).st_size
        try:
            Output(descriptor).write("".join(lines).encode())
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)  # half a line must not stand before the next one
            raise
    finally:
        os.close(descriptor)


def read_lines(path: Path, *, repair: bool) -> list[bytes]:
    """The whole lines of a journal; half a line at its end is cut off."""
    content = read_whole(path, 1 << 30)
    good = content.rfind(b"\n") + 1
    if repair and good < len(content):
        descriptor = open_append(path)
        os.ftruncate(descriptor, good)
        os.fsync(descriptor)
        os.close(descriptor)
    return content[:good].splitlines()


def refuse_existing(directory: Path) -> None:
    """Refuse a directory that holds a sweep, before any work is done for the new one."""
    if (directory / JOURNAL).exists():
        raise AssayError(
            f"{directory} already holds a sweep",
            hint=f"assay resume {shlex.quote(str(directory))}, or choose another hydra.sweep.dir",
        )
