"""What happens after a job of a sweep has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.record.outcome import Outcome


@final
@dataclass(frozen=True)
class Policy:
    """What happens after a job has failed; keys of `hydra.launcher` beside those of the launcher itself.

    Args:
        on_failure: `continue` with the other jobs; `stop`: start no further one; `retry`: try it again where
            the failure may be one of the machine, then continue. An error in config, code or numbers comes
            again, and is never retried.
        max_retries: Further attempts at a job.
        on_out_of_memory: `fail`, or `halve_batch`: try again with half the samples per step and twice the
            steps per update.
        timeout_min: Minutes that an attempt may take.
        memory_gb: Gigabytes (2³⁰ bytes) that a job's process may take beside what it starts with.

    Raises:
        ValueError: A number is out of range.
    """

    on_failure: Literal["continue", "stop", "retry"] = "continue"
    max_retries: int = 2
    on_out_of_memory: Literal["fail", "halve_batch"] = "fail"
    timeout_min: float | None = None
    memory_gb: float | None = None

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise ValueError(f"max_retries={self.max_retries} is negative")
        for name in ("timeout_min", "memory_gb"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value} is not above 0")


@final
@dataclass(frozen=True)
class Retry:
    """A further attempt.

    Attributes:
        resume: It goes on from the last checkpoint; else it begins anew.
        changes: Overrides it gets in addition.
    """

    resume: bool
    changes: tuple[str, ...] = ()


def after_failure(
    policy: Policy, outcome: Outcome, retries: int, config: Mapping[str, Any], changes: tuple[str, ...] = ()
) -> Retry | None:
    """Whether and how a failed job is tried again.

    Args:
        policy: The user's.
        outcome: How the last attempt failed.
        retries: Further attempts it has had.
        config: The job's, as it was composed.
        changes: Overrides that the last attempt had in addition.

    Returns:
        The next attempt; None where there is none.

    >>> from assay.record.outcome import Outcome
    >>> oom = Outcome("failed", "out_of_memory")
    >>> job = {"data": {"batch_size": 64}, "trainer": {}}
    >>> after_failure(Policy(on_out_of_memory="halve_batch"), oom, 0, job).changes
    ('data.batch_size=32', 'trainer.accumulate_grad_batches=2')
    """
    if retries >= policy.max_retries:
        return None
    if outcome.cause == "out_of_memory" and policy.on_out_of_memory == "halve_batch":
        smaller = _half_batch(config, changes)
        if smaller:
            return Retry(resume=False, changes=smaller)
    if policy.on_failure == "retry" and outcome.transient:
        return Retry(resume=True, changes=changes)
    return None


def _half_batch(config: Mapping[str, Any], changes: tuple[str, ...]) -> tuple[str, ...]:
    """Overrides for half the batch and twice the accumulation; none where a batch cannot be halved."""
    before: dict[str, Any] = dict(change.split("=", 1) for change in changes)
    batch = before.get("data.batch_size", (config.get("data") or {}).get("batch_size"))
    steps = before.get(
        "trainer.accumulate_grad_batches", (config.get("trainer") or {}).get("accumulate_grad_batches")
    )
    try:
        batch, steps = int(str(batch)), int(str(steps or 1))
    except ValueError:  # an interpolation, or a datamodule of somebody's own
        return ()
    if batch < 2 or batch % 2:
        return ()
    return f"data.batch_size={batch // 2}", f"trainer.accumulate_grad_batches={2 * steps}"
