"""What the core's verbs do with several jobs: train, resume, check and print them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from assay.quoting import command, pluralize
from assay.record.run_record import Outcome
from assay_sweep.session import check_sweep, plan_sweep, resume_sweep, start_sweep
from assay_sweep.summary import next_commands

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.cli.verb import Document
    from assay_sweep.summary import SweepResult

__all__ = ["check", "plan_sweep", "resume", "train"]


def train(document: Document, overrides: Sequence[str], config_dir: Path | None) -> None:
    """Train each job of a sweep."""
    _end_sweep(document, start_sweep(overrides, config_dir))


def resume(
    document: Document,
    directory: Path,
    changes: Sequence[str],
    config_dir: Path | None,
    *,
    failed: bool,
) -> None:
    """Run what is missing in a sweep."""
    _end_sweep(document, resume_sweep(directory, changes, config_dir, again=failed))


def check(document: Document, overrides: Sequence[str], config_dir: Path | None) -> None:
    """Check each job of a sweep."""
    from assay_prove.show import show_sweep

    reports = check_sweep(overrides, config_dir)
    document.say("check_sweep", {"jobs": reports})
    show_sweep(document.console, reports)


def _end_sweep(document: Document, result: SweepResult) -> None:
    document.say("sweep", _sweep_document(result))
    document.next = next_commands(result)
    if result.exit_code:
        ended = sum(job.status in ("finished", "pruned") for job in result.jobs)
        failed = sum(job.status == "failed" for job in result.jobs)
        again = command("resume", result.directory, *(["--failed"] if failed else []))
        counts = f"{ended} of {pluralize(result.total, 'job')} finished, {failed} failed"
        document.fail(counts, hint=again, code=result.exit_code)
        raise typer.Exit(result.exit_code)


def _sweep_document(result: SweepResult) -> dict[str, Any]:
    jobs = []
    for job in result.jobs:
        outcome = job.outcome or Outcome("interrupted")
        fields = {
            name: getattr(job, name) for name in ("status", "overrides", "seed", "attempts")
        }
        ended = ("metrics", "best", "seconds", "cause", "reason", "warnings", "reused_from")
        of_outcome = {name: getattr(outcome, name) for name in ended}
        jobs.append(
            {"number": job.number, "run_dir": result.run_dir(job), **fields, **of_outcome}
        )
    best = result.best
    return {
        "directory": result.directory,
        "total": result.total,
        "objectives": {objective.name: objective.direction for objective in result.objectives},
        "best": best.number if best else None,
        "jobs": jobs,
    }
