"""How many batches somebody's own datamodule gives is asked of its loader."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from torch import nn

from assay.check.job import check_job
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError

if TYPE_CHECKING:
    from assay.check.report import Report

PROJECT = Path(__file__).parents[2] / "check" / "project"
JOB = (
    *("data._target_=check_data.Own", "trusted_packages=[check_data]", "model=linear", "device=cpu"),
    *("trainer.max_epochs=3", "callbacks.checkpoint=null"),
)


@pytest.fixture(autouse=True)
def own_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))


def check(kind: str, *typed: str, model: dict[str, Any] | None = None) -> Report:
    job = job_config(compose([*JOB, f"+data.kind={kind}", *typed]))
    if model is not None:
        job.model = model
    check_job(job)
    return Prover().prove(job).report


class Steps(L.LightningModule):
    """Stock Lightning: what it says of the steps to come."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.steps = nn.Linear(4, 3), 0.0

    def on_fit_start(self) -> None:
        self.steps = self.trainer.estimated_stepping_batches

    def training_step(self, *_: Any) -> Any:
        return self.layer(torch.randn(2, 4)).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def by_lightning(kind: str, **options: Any) -> float:
    module = Steps()
    trainer = L.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, **{"max_epochs": 3, **options},
    )  # fmt: skip
    trainer.fit(module, datamodule=sys.modules["check_data"].Own(kind))
    return module.steps


KINDS = (
    *("plain", "drop_last", "weighted", "batch_sampler", "one_by_one", "counted", "two", "shortest"),
    "batches",
)


@pytest.mark.always("drop_last", "batch_sampler", "shortest")
@pytest.mark.filterwarnings("ignore")  # of Lightning's, on the trainer of the comparison
@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_that_lightning_counts(kind: str) -> None:
    assert check(kind).spec["total_steps"] == by_lightning(kind)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        {"accumulate_grad_batches": 4},
        {"limit_train_batches": 0.5},
        {"limit_train_batches": 3},
        {"max_steps": 11},
        {"accumulate_grad_batches": 3, "limit_train_batches": 5, "max_epochs": 2},
    ],
    ids=str,
)
def test_limits_and_accumulation_count(options: dict[str, Any]) -> None:
    typed = [f"trainer.{name}={value}" for name, value in options.items()]
    assert check("plain", *typed).spec["total_steps"] == by_lightning("plain", **options)


@pytest.mark.parametrize("kind", ["stream", "needs_trainer"])
def test_what_nobody_knows_is_said_where_it_is_asked_for(kind: str) -> None:
    with pytest.raises(ConfigError, match="how many batches") as refused:
        check(kind)
    assert refused.value.key == "scheduler.lr_lambda.total_steps"
    assert "trainer.max_steps=" in refused.value.hint
    assert check(kind, "scheduler=none").spec["total_steps"] is None
    known = check(kind, "trainer.max_steps=40", "trainer.max_epochs=-1")
    assert known.spec["total_steps"] == 40


def test_the_step_is_tried_with_a_batch_of_its_size() -> None:
    """A single sample would be an error of batch normalization."""
    features = {"num_features": "${spec.num_features}", "num_outputs": "${spec.num_outputs}"}
    normed = {"_target_": "check_models.Normed", **features}
    report = check("plain", "trusted_packages=[check_data,check_models]", model=normed)
    assert report.step is not None
    assert report.batch_size == 16
