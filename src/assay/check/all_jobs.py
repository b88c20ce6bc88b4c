"""Every job of a sweep is checked before the first one starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.check.error_summary import each
from assay.check.prove import Prover
from assay.check.static.monitor import check_asked_for
from assay.compose.compose import job_config
from assay.compose.origin import located, overrides_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from omegaconf import DictConfig

    from assay.check.report import Report


def check_all(
    jobs: Sequence[DictConfig],
    config_dir: Path | None = None,
    *,
    curve: bool = False,
    scores: Mapping[str, str] | None = None,
) -> list[Report]:
    """Check composed jobs; what several have in common is done once.

    Args:
        jobs: From `assay.sweep.session.plan` or `compose`.
        config_dir: The user's folder of config groups, to say where a wrong value stands.
        curve: Follow the learning rate of each through the whole run.
        scores: That each job must have, and the keys that ask for them.

    Returns:
        One report a job, in order.

    Raises:
        AssayError: At least one of them cannot run; of several jobs each is named, with its error.
    """
    prover = Prover()

    def check(job: DictConfig) -> Report:
        own = overrides_of(job)
        with located(own, config_dir):
            report = prover.prove(job_config(job), own, curve=curve)
            check_asked_for(report.scores, scores or {})
            return report

    return list(each(dict(enumerate(jobs)), check, overrides_of).values())
