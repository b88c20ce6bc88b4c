"""A comparison as the fields of a JSON document; `docs/results.md` describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.record.runs.run import Run
    from assay.report.table.comparison import Comparison, Row


def to_document(comparison: Comparison) -> dict[str, Any]:
    """Everything that a comparison says.

    Args:
        comparison: Of runs.
    """
    ranking = comparison.ranking
    return {
        "metric": ranking.metric if ranking else None,
        "direction": ranking.direction or None if ranking else None,
        "columns": list(comparison.columns),
        "metrics": list(comparison.metrics),
        "shared": dict(comparison.shared),
        "rows": [_row(row, best=number == comparison.best) for number, row in enumerate(comparison.rows)],
        "broken": [{"run": str(run.path), "reason": run.reason} for run in comparison.broken],
        "test": {"name": "Welch's t-test", "p_value": comparison.p_value, "verdict": comparison.verdict},
        "notes": list(comparison.notes),
    }


def _row(row: Row, *, best: bool) -> dict[str, Any]:
    return {
        "config": dict(row.values),
        "best": best,
        "finished": len(row.counted) if row.finished else 0,
        "repetitions": row.repetitions,
        "scores": {
            name: {"mean": one.mean, "std": one.std, "low": one.low, "high": one.high, "n": one.n}
            for name, one in row.scores.items()
        },
        "runs": [_run(run) for run in row.runs],
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "run": str(run.path),
        "status": run.status,
        "cause": run.cause,
        "reason": run.reason,
        "seed": run.seed,
        "started": run.started,
        "seconds": run.seconds,
    }
