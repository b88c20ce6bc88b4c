"""Checking several jobs: what is wrong with them is one error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

Failure = tuple[int, "Sequence[str]", AssayError]
"""Number of a job, its overrides, and why it cannot run."""
_MOST: Final = 10
"""Different errors to show."""


def summary_of(failures: Sequence[Failure], total: int) -> AssayError:
    """One error for all; those with the same message are told once.

    Args:
        failures: At least one.
        total: Jobs that were checked.
    """
    by_message: dict[str, list[Failure]] = {}
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
