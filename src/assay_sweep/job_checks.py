"""All jobs of a sweep are checked before the first one starts, and their errors are told together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import AssayError, ConfigError, ProcessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.check.checker import Checker
    from assay.check.report import Report
    from assay.compose.compose import Job

Failure = tuple[int, "Sequence[str]", AssayError]
"""Number of a job, its overrides, and why it cannot run."""
_MOST = 10
"""Different errors to show."""


def check_all(checker: Checker, jobs: Mapping[int, Job]) -> dict[int, Report]:
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
    for message, same in list(by_message.items())[:_MOST]:
        number, overrides, _ = same[0]
        more = ""
        if len(same) > 1:
            more = f" and {len(same) - 1} more"
        lines.append(f"job {number}{more} ({' '.join(overrides)})")
        lines.extend(f"  {line}" for line in message.splitlines())
    if len(by_message) > _MOST:
        lines.append(f"… and {len(by_message) - _MOST} other errors")
    error = ConfigError("\n".join(lines))
    error.exit_code = max(failure[2].exit_code for failure in failures)
    return error
