"""Jobs that did not come to their end: why, and the last that each kind of failure has said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from assay.files.symlinks import read_end
from assay.record.log_file import FILE as LOG
from assay.record.log_file import logs_of
from assay.record.secrets import redact
from assay.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

    from assay.record.outcome import Cause
    from assay.report.sweep.contents import Contents, Job

_LINES: Final = 25
_BYTES: Final = 16 << 10
_LONGEST: Final = 400
"""Letters of a line."""
_TAILS: Final = 40
"""Kinds of failures whose log is shown: the page is to stay small."""
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Sequences that a terminal obeys: colours, the cursor, titles."""
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


@final
@dataclass(frozen=True)
class Failure:
    """Jobs that failed for the same reason.

    Attributes:
        status: How they ended.
        cause: Kind of the failure.
        reason: Of the first one.
        jobs: Which.
        log: The file that `tail` is from; None without one.
        tail: The last lines of the first job's log, as text without control characters.
    """

    status: str
    cause: str
    reason: str
    jobs: tuple[Job, ...]
    log: Path | None
    tail: str


def failures(contents: Contents) -> list[Failure]:
    """What did not come to its end, most jobs first; reasons that differ in numbers alone are one."""
    together: dict[tuple[str, Cause, str], list[Job]] = {}
    for job in contents.jobs:
        if job.status in ("failed", "broken", "interrupted"):
            cause: Cause = job.outcome.cause if job.outcome is not None else ""
            together.setdefault((job.status, cause, _NUMBER.sub("0", _reason(job))), []).append(job)
    found: list[Failure] = []
    for (status, cause, _), jobs in sorted(together.items(), key=lambda item: -len(item[1])):
        shown = len(found) < _TAILS
        log, tail = _last_words(jobs[0], died=cause == "killed") if shown else (None, "")
        found.append(Failure(status, cause, printable(_reason(jobs[0])), tuple(jobs), log, tail))
    return found


def _reason(job: Job) -> str:
    return job.outcome.reason if job.outcome is not None else ""


def _last_words(job: Job, *, died: bool) -> tuple[Path | None, str]:
    """The end of the run's own log; of what its process printed, where it died or has no log."""
    own = job.run_dir / LOG if job.run_dir is not None else None
    for place in logs_of(own, job.output, died=died):
        if text := log_tail(place):
            return place, text
    return None, ""


def log_tail(path: Path) -> str:
    """The last lines of a log, without what a terminal would obey, and without secrets.

    Args:
        path: Of a run or sweep directory; a link is not followed.

    Returns:
        Empty where there is nothing to be read.
    """
    try:
        content = read_end(path, _BYTES)
    except OSError:
        return ""
    text = _ESCAPES.sub("", content.decode(errors="replace")).replace("\r\n", "\n")
    # A progress bar overwrites its line; the last state of it counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    whole = lines[1:] if len(content) == _BYTES else lines
    kept = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in whole]
    while kept and not kept[-1].strip():
        kept.pop()
    return printable(redact("\n".join(kept[-_LINES:])))
