"""Jobs of a sweep that failed before they had a run directory: the journal alone knows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.record.journal import Journal
from assay.record.runs.run import Run, is_config, typed_values
from assay.record.runs.varying import fold_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def lost_jobs(sweep: Path, runs: Sequence[Run]) -> list[Run]:
    """Failed jobs that have no directory, as if each had one; also one whose directory was removed.

    Args:
        sweep: Its directory. Where its journal is damaged, there are none.
        runs: Those that were found in it.
    """
    try:
        jobs = Journal.open(sweep, repair=False).jobs
    except AssayError:
        return []
    known = {run.fingerprint for run in runs}
    choices = dict(runs[0].choices) if runs else {}
    twins: dict[frozenset[tuple[str, str]], Run] = {}
    for run in runs:
        twins.setdefault(_config(run.typed), run)
    found = []
    for number, job in sorted(jobs.items()):
        path = sweep / str(number)
        if job.status != "failed" or job.outcome is None or job.fingerprint in known or path.exists():
            continue
        typed = typed_values(job.overrides)
        config = _config(typed)
        twin = twins.get(config)
        found.append(
            Run(
                path,
                "failed",
                job.outcome.cause,
                job.outcome.reason,
                name=typed.get("name", runs[0].name if runs else ""),
                started=job.history[0].started if job.history else "",
                seconds=job.outcome.seconds,
                seed=job.seed,
                fingerprint=job.fingerprint,
                config_fingerprint=twin.config_fingerprint if twin else repr(sorted(config)),
                typed=typed,
                choices={key: typed.get(key, option) for key, option in choices.items()},
                fold=fold_of(job.overrides),
            )
        )
    return found


def _config(typed: Any) -> frozenset[tuple[str, str]]:
    return frozenset((key, text) for key, text in typed.items() if is_config(key))
