"""How long a run is and where it validates: as Lightning has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tests.callbacks.quiet_trainer import quiet_trainer
from torch import nn
from typing_extensions import override

from assay.build.assembly import add_spec
from assay.build.run_length import (
    check_length,
    check_plateau,
    run_length,
    why_no_validation,
)
from assay.check.checker import check_job
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.data.spec import Spec
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tests.conftest import Train

    from assay.check.report import Report

SAMPLES = {"num_train": 105, "num_val": 15, "num_test": 30}
IRIS = (
    *("data=iris", "model=linear", "data.batch_size=12", "data.drop_last=true", "device=cpu"),
    "trainer.max_epochs=3",
)
"""Eight batches an epoch."""


class Validations(Callback):
    """After how many batches there was one."""

    def __init__(self) -> None:
        self.after: list[int] = []

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.after.append(trainer.fit_loop.total_batch_idx + 1)


def job(*typed: str) -> DictConfig:
    config = job_config(compose([*IRIS, *typed]))
    spec = Spec(task="multiclass", input_shape=(4,), num_classes=3, class_counts=(35, 35, 35), **SAMPLES)  # type: ignore[arg-type]  # three numbers by their names
    add_spec(config, spec)
    return config


@pytest.mark.always(
    "trainer.check_val_every_n_epoch=2 trainer.val_check_interval=5",
    "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=6",
    "trainer.limit_train_batches=3 trainer.max_epochs=-1 trainer.max_steps=8",
)
@pytest.mark.parametrize(
    "typed",
    [
        "",
        "trainer.val_check_interval=0.5",
        "trainer.check_val_every_n_epoch=2",
        "trainer.check_val_every_n_epoch=2 trainer.val_check_interval=5",
        "trainer.check_val_every_n_epoch=null trainer.val_check_interval=25",
        "trainer.max_steps=7",
        "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=6",
        "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=7",
        "trainer.limit_train_batches=0.3",
        "trainer.limit_train_batches=1000 data.drop_last=false",
        "trainer.limit_train_batches=3 trainer.max_epochs=-1 trainer.max_steps=8",
    ],
)
def test_lightning_validates_where_it_is_expected(train: Train, typed: str) -> None:
    words = typed.split()
    config = job(*words)
    seen = Validations()
    run = train(*IRIS, *words, callbacks=[seen])
    why, instead = why_no_validation(config)
    assert bool(seen.after) is not bool(why), why
    if why:
        assert instead
        key, value = instead.split("=")
        assert not why_no_validation(job(*(w for w in words if not w.startswith(key)), f"{key}={value}"))[0]
    length = run_length(config, config.spec.num_train)
    assert run.trainer.global_step == length.total_steps == run.config.spec.total_steps
    assert len(run.watch.losses) == length.total_batches


@pytest.mark.parametrize("name", ["train", "val", "test"])
def test_less_than_a_batch(name: str) -> None:
    key = f"trainer.limit_{name}_batches"
    check_length(job(f"{key}=1"))
    with pytest.raises(ConfigError) as caught:
        check_length(job(f"{key}=0.1"))
    assert caught.value.key == key
    check_length(job(caught.value.hint.split()[0]))


@pytest.mark.always(
    "-True",
    "scheduler.interval=step scheduler.frequency=4-False",
    "trainer.check_val_every_n_epoch=2 scheduler.frequency=2-True",
)
@pytest.mark.parametrize(
    ("typed", "fine"),
    [
        ("", True),
        ("scheduler.interval=step", False),
        ("scheduler.interval=step scheduler.frequency=8", True),
        ("scheduler.interval=step scheduler.frequency=4", False),
        ("scheduler.interval=step scheduler.frequency=4 trainer.val_check_interval=4", True),
        ("trainer.check_val_every_n_epoch=2", False),
        ("trainer.check_val_every_n_epoch=2 scheduler.frequency=2", True),
        ("scheduler.monitor=train/loss", True),
        ("scheduler.monitor=train/loss scheduler.interval=step scheduler.frequency=8", False),
    ],
)
def test_a_plateau_that_asks_too_soon(train: Train, typed: str, fine: bool) -> None:
    words = ["scheduler=plateau", *typed.split()]
    config = job(*words)
    if fine:
        check_plateau(config)
        assert train(*IRIS, *words).result.status == "finished"
    else:
        with pytest.raises(ConfigError) as caught:
            check_plateau(config)
        assert caught.value.hint


def test_an_unknown_length() -> None:
    endless = ["trainer.max_epochs=-1", "trainer.max_time={minutes: 1}"]
    config = job(*endless, "scheduler=none")
    assert config.spec.total_steps is None
    assert check_length(config) == []
    with pytest.raises(ConfigError) as caught:
        check_length(job(*endless, "scheduler=cosine"))
    assert caught.value.key == "scheduler.T_max"


def test_checkpoints_that_the_run_is_too_short_for() -> None:
    def said(*typed: str) -> Any:
        return "; ".join(check_length(job(*typed)))

    assert not said()
    assert "the run has 24 steps" in said("callbacks.last_checkpoint.every_n_train_steps=25")
    assert "the run has 3 epochs" in said("callbacks.last_checkpoint.every_n_epochs=4")


# -- of a custom datamodule, whose loader is asked

OWN = (
    *("data._target_=check_data.Own", "trusted_packages=[check_data]", "model=linear", "device=cpu"),
    *("trainer.max_epochs=3", "callbacks.checkpoint=null"),
)


@pytest.fixture
def own_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "check" / "project"))


def check(kind: str, *typed: str, model: dict[str, Any] | None = None) -> Report:
    job = job_config(compose([*OWN, f"+data.kind={kind}", *typed]))
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


def by_lightning(kind: str) -> float:
    module = Steps()
    trainer = quiet_trainer(max_epochs=3, use_distributed_sampler=False)
    trainer.fit(module, datamodule=sys.modules["check_data"].Own(kind))
    return module.steps


KINDS = (
    *("plain", "drop_last", "weighted", "batch_sampler", "one_by_one", "counted", "two", "shortest"),
    "batches",
)


@pytest.mark.usefixtures("own_project")
@pytest.mark.always("batch_sampler")
@pytest.mark.filterwarnings("ignore")  # of Lightning's, on the trainer of the comparison
@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_that_lightning_counts(kind: str) -> None:
    assert check(kind).spec["total_steps"] == by_lightning(kind)


@pytest.mark.usefixtures("own_project")
@pytest.mark.parametrize("kind", ["stream", "needs_trainer"])
def test_an_unknown_number_of_batches_is_said_where_it_is_needed(kind: str) -> None:
    with pytest.raises(ConfigError, match="how many batches") as refused:
        check(kind)
    assert refused.value.key == "scheduler.lr_lambda.total_steps"
    assert "trainer.max_steps=" in refused.value.hint
    assert check(kind, "scheduler=none").spec["total_steps"] is None
    known = check(kind, "trainer.max_steps=40", "trainer.max_epochs=-1")
    assert known.spec["total_steps"] == 40


@pytest.mark.usefixtures("own_project")
def test_the_step_is_tried_with_a_batch_of_its_size() -> None:
    features = {"num_features": "${spec.num_features}", "num_outputs": "${spec.num_outputs}"}
    normed = {"_target_": "check_models.Normed", **features}
    report = check("plain", "trusted_packages=[check_data,check_models]", model=normed)
    assert report.step is not None
    assert report.batch_size == 16
