"""Jobs with models of `project/check_models.py`, which are hard to prove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import open_dict

from assay.check.job import check_job
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from assay.check.report import Report

FEATURES = {"num_features": "${spec.num_features}", "num_outputs": "${spec.num_outputs}"}


@pytest.fixture(autouse=True)
def own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent / "project")


def prove(*typed: str, model: str = "", **arguments: Any) -> Report:
    """Check one job, with a model of `check_models` where one is named."""
    config = job_config(compose(["device=cpu", "data=iris", "trusted_packages=[check_models]", *typed]))
    if model:
        with open_dict(config):
            config.model = {"_target_": f"check_models.{model}", **(arguments or FEATURES)}
    check_job(config)
    return Prover().prove(config).report
