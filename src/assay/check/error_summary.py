"""Checking several jobs: what is wrong with them is one error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from assay.errors import AssayError, ConfigError, ProcessError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_Job = TypeVar("_Job")
_Found = TypeVar("_Found")
_Failure = tuple[int, "Sequence[str]", AssayError]
_MOST: Final = 10
"""Different errors to show."""


def each(
    jobs: Mapping[int, _Job], check: Callable[[_Job], _Found], overrides: Callable[[_Job], Sequence[str]]
) -> dict[int, _Found]:
    """Check jobs one after another, whatever becomes of each.

    Args:
        jobs: By number.
        check: Checks one.
        overrides: What was typed for one.

    Returns:
        What it found, by number.

    Raises:
        AssayError: At least one of them cannot run; of several jobs each is named, with its error.
        ProcessError: Nothing can be checked.
    """
    found: dict[int, _Found] = {}
    failures: list[_Failure] = []
    for number, job in jobs.items():
        try:
            found[number] = check(job)
        except ProcessError:
            raise
        except AssayError as error:
            failures.append((number, overrides(job), error))
    if failures:
        raise failures[0][2] if len(jobs) == 1 else _together(failures, len(jobs)) from failures[0][2]
    return found


def _together(failures: Sequence[_Failure], total: int) -> AssayError:
    """One error for all; those with the same message are told once."""
    by_message: dict[str, list[_Failure]] = {}
    for failure in failures:
        by_message.setdefault(str(failure[2]), []).append(failure)
    lines = [f"{len(failures)} of {total} jobs cannot run; none was started"]
    for message, same in list(by_message.items())[:_MOST]:
        number, own, _ = same[0]
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        lines.append(f"job {number}{others} ({' '.join(own)})")
        lines.extend(f"  {line}" for line in message.splitlines())
    if len(by_message) > _MOST:
        lines.append(f"… and {len(by_message) - _MOST} other errors")
    error = ConfigError("\n".join(lines))
    error.exit_code = max(failure[2].exit_code for failure in failures)
    return error
