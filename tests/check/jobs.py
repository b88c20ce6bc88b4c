"""Jobs as the tests of the check compose and prove them, some with the code of `project/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import open_dict

from assay.check.checker import check_job
from assay.compose.compose import compose, job_config
from assay_prove.prove import Prover

if TYPE_CHECKING:
    from assay.check.report import Report

FEATURES = {"num_features": "${spec.num_features}", "num_outputs": "${spec.num_outputs}"}
IRIS = ("device=cpu", "data=iris", "trusted_packages=[check_models]")
PROVER = Prover()
"""Of all jobs, as in a sweep."""


def prove(*typed: str, curve: bool = False) -> Report:
    """Check one job."""
    config = job_config(compose(["device=cpu", *typed]))
    check_job(config)
    return PROVER.prove(config, typed, curve=curve).report


def prove_model(name: str, *typed: str, **arguments: Any) -> Report:
    """Check a job with a model of `check_models`."""
    config = job_config(compose([*IRIS, *typed]))
    with open_dict(config):
        config.model = {"_target_": f"check_models.{name}", **FEATURES, **arguments}
    check_job(config)
    return Prover().prove(config).report
