"""Contents of a page without a sweep, for what depends on values alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.analysis.jobs import Job
from assay.analysis.objective import Objective
from assay.record.outcome import Outcome
from assay.report.read_sweep import Contents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOSS = Objective("val/loss", "minimize")
ACCURACY = Objective("val/accuracy", "maximize")


def job(name: str, values: Mapping[str, str], loss: float | None, **fields: Any) -> Job:
    """A job that has finished with a loss, or failed without one."""
    status: Any = fields.pop("status", "failed" if loss is None else "finished")
    metrics = {} if loss is None else {"val/loss": loss, "val/accuracy": 1 - loss}
    outcome = Outcome(status, fields.pop("cause", ""), fields.pop("reason", ""), metrics=metrics, seconds=2.0)
    return Job(name, values, fields.pop("seed", "0"), status, outcome, **fields)


def contents(jobs: Sequence[Job], *objectives: Objective, **fields: Any) -> Contents:
    """Of a sweep with these jobs."""
    return Contents("title", "source", tuple(jobs), objectives or (LOSS,), **fields)
