"""Where Lightning validates is where the check expects it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from assay.build.datamodule import describe
from assay.build.run_length import (
    check_length,
    check_plateau,
    num_validations,
    run_length,
    why_no_validation,
)
from assay.compose.compose import compose, job_config
from assay.data.spec import Spec
from assay.errors import ConfigError

if TYPE_CHECKING:
    import lightning as L
    from omegaconf import DictConfig
    from tests.conftest import Train

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
    describe(config, spec)
    return config


@pytest.mark.always(
    "",
    "trainer.val_check_interval=0.5",
    "trainer.check_val_every_n_epoch=2 trainer.val_check_interval=5",
    "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=6",
)
@pytest.mark.parametrize(
    "typed",
    [
        "",
        "trainer.val_check_interval=3",
        "trainer.val_check_interval=0.5",
        "trainer.check_val_every_n_epoch=2",
        "trainer.check_val_every_n_epoch=4",
        "trainer.check_val_every_n_epoch=2 trainer.val_check_interval=5",
        "trainer.check_val_every_n_epoch=null trainer.val_check_interval=24",
        "trainer.check_val_every_n_epoch=null trainer.val_check_interval=25",
        "trainer.max_steps=7",
        "trainer.max_steps=8",
        "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=6",
        "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=7",
        "trainer.limit_train_batches=5.0",
        "trainer.limit_train_batches=0.3",
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
    assert run.trainer.global_step == length.total_steps
    assert len(run.watch.losses) == length.total_batches
    assert len(seen.after) == num_validations(config, length)


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


def test_a_length_that_nobody_knows() -> None:
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
