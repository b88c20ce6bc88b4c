"""What fails in evaluation or with another batch is found before training, however hard it is to follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from omegaconf import open_dict

from assay.check.job import check_job
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError

if TYPE_CHECKING:
    from assay.check.report import Report

FEATURES = {"num_features": "${spec.num_features}", "num_outputs": "${spec.num_outputs}"}
IRIS = ("device=cpu", "data=iris", "data.batch_size=21", "data.eval_batch_size=30")
"""Five whole batches of 21; 15 samples to validate, 30 to test."""


@pytest.fixture(autouse=True)
def own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "project")


def with_model(name: str, *typed: str, **arguments: Any) -> Report:
    config = job_config(compose([*IRIS, "trusted_packages=[check_models]", *typed]))
    with open_dict(config):
        config.model = {"_target_": f"check_models.{name}", **FEATURES, **arguments}
    check_job(config)
    return Prover().prove(config).report


def with_module(*typed: str, **arguments: Any) -> Report:
    words = ("trusted_packages=[check_modules]", "callbacks.checkpoint=null")
    config = job_config(compose([*IRIS, *words, *typed, "module._target_=check_modules.Own"]))
    with open_dict(config):
        config.module.update(arguments)
    check_job(config)
    return Prover().prove(config).report


@pytest.mark.parametrize("by", ["", "data", "numpy", "lazy"])
def test_a_model_that_fails_in_evaluation(by: str) -> None:
    with pytest.raises(ConfigError, match=r"^model: .*in evaluation.*no such branch") as refused:
        with_model("FailsInEvaluation", by=by)
    assert "check_models.py" in str(refused.value)


@pytest.mark.parametrize("by", ["", "data", "numpy"])
def test_a_model_for_one_size_of_batch(by: str) -> None:
    with pytest.raises(ConfigError, match=r"^model: .*with a batch of (15|30) in evaluation"):
        with_model("ForOneBatch", size=21, by=by)
    report = with_model("ForOneBatch", "data.batch_size=15", "data.eval_batch_size=15", size=15, by=by)
    assert bool(report.unproven) is bool(by)


def test_made_up_values_are_no_reason_to_refuse() -> None:
    report = with_model("NeedsPositiveValues")
    assert "depends on the data" in report.unproven


def test_a_module_of_ones_own_that_fails_in_evaluation() -> None:
    with pytest.raises(
        ConfigError, match=r"^module: validation_step fails in evaluation mode.*no such branch"
    ):
        with_module(fails="eval")


def test_a_module_of_ones_own_for_one_size_of_batch() -> None:
    with pytest.raises(
        ConfigError, match=r"^module: validation_step fails with a batch of 15.*check_modules\.py"
    ):
        with_module(size=21)


@pytest.mark.parametrize("fails", ["", "logger", "trainer"])
def test_a_module_that_works_or_needs_its_run_is_not_refused(fails: str) -> None:
    assert "of your own" in with_module(fails=fails).unproven


@pytest.mark.parametrize(
    ("source", "says"), [("custom", "from the data set"), ("arrays", "data.source.dtype=float32")]
)
def test_integers_are_told_what_to_do_with(source: str, says: str, tmp_path: Path) -> None:
    words = ["device=cpu", "model=linear", f"data={source}", "data.num_workers=0"]
    if source == "custom":
        words += ["trusted_packages=[check_data]", "data.source.dataset._target_=check_data.Counts"]
    else:
        np.savez(
            tmp_path / "a.npz",
            inputs=np.arange(240, dtype=np.uint16).reshape(60, 4),
            targets=np.arange(60) % 3,
        )
        words += [f"data.source.root='{tmp_path}/a.npz'"]
    config = job_config(compose(words))
    check_job(config)
    with pytest.raises(ConfigError) as refused:
        Prover().prove(config)
    assert says in refused.value.hint
