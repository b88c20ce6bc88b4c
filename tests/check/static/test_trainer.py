from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import lightning as L
import pytest
from omegaconf import OmegaConf

from assay.build.trainer_options import may_end_early
from assay.check.checker import Checker
from assay.check.signature import supplied
from assay.check.trainer import check_trainer
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig


NAN, INF = float("nan"), float("inf")
RANGES: dict[str, tuple[list[object], list[object]]] = {
    "max_epochs": ([1, 30, None], [0, -1]),
    "max_steps": ([-1, 1, 5], [0]),
    "min_epochs": ([None, 0, 30, 31], [-1]),
    "min_steps": ([None, 0, 1000], [-1]),
    "limit_train_batches": ([None, 0.5, 1.0, 1, 10, 10.0], [0, 0.0]),
    "val_check_interval": ([None, 1, 1.0, 0.25, 100, "00:00:10:00", {"minutes": 5}], [0, 0.0, False]),
    "check_val_every_n_epoch": ([1, 5], [0, -1]),
    "num_sanity_val_steps": ([-1, 0, 2, None], [-2]),
    "log_every_n_steps": ([1, 10**9, None], [0, -1, 0.5]),
    "gradient_clip_val": ([None, 0, 0.5, 10], [-1, -0.1, NAN, INF]),
    "accumulate_grad_batches": ([1, 8], [0, -1]),
    "devices": ([1, 4, -1, "auto", "-1", "2", "0,1", "0,", [0], [1, 3]], [0, -7, "abc", "", [], [-1], ["a"]]),
    "num_nodes": ([1, None], [2]),
    "compile": ([True, False, None], ["text", "maybe", 1, 0, "", [True]]),
    "channels_last": ([True, False, None], ["maybe", 1]),
    "micro_batch": (["auto", 1, 64, None], ["half", 0, -1, 1.5, True, [2]]),
    "profiler": ([None, "simple", {"_target_": "x"}], [True, False, 1, []]),
    "fast_dev_run": ([False, 0, None], [True, 2]),
    "overfit_batches": ([0, 0.0], [1, 0.5]),
    "barebones": ([False], [True]),
    "model_registry": ([None], ["team/model"]),
}
LEFT_TO_LIGHTNING = {
    *("benchmark", "deterministic", "detect_anomaly", "enable_autolog_hparams", "inference_mode"),
    *("reload_dataloaders_every_n_epochs", "sync_batchnorm"),
    *("max_time", "limit_val_batches", "limit_test_batches", "limit_predict_batches", "accelerator"),
}
IN_ASSAY_CHECK_VALUES = {"gradient_clip_algorithm", "precision"}
ASKED_OF_THE_BUILT_TRAINER = {"strategy"}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(job: DictConfig, name: str) -> None:
    good, bad = RANGES[name]
    for value in good:
        OmegaConf.update(job, f"trainer.{name}", value, merge=False)
        check_trainer(job)
    for value in bad:
        OmegaConf.update(job, f"trainer.{name}", value, merge=False)
        with pytest.raises(ConfigError) as caught:
            check_trainer(job)
        assert caught.value.key == f"trainer.{name}", value
        assert caught.value.hint


def test_every_argument_of_lightnings_trainer_is_looked_at(composed: DictConfig) -> None:
    """One that a newer Lightning adds has to be sorted in here."""
    arguments = set(inspect.signature(L.Trainer).parameters)
    ours = supplied(composed, "trainer")
    assert ours is not None
    known = {
        *RANGES,
        *LEFT_TO_LIGHTNING,
        *IN_ASSAY_CHECK_VALUES,
        *ASKED_OF_THE_BUILT_TRAINER,
        *ours.by_name,
    }
    assert known == arguments | {"compile", "channels_last", "micro_batch"}


@pytest.mark.parametrize(
    ("callback", "ends"),
    [
        ("lightning.pytorch.callbacks.EarlyStopping", True),
        ("lightning.pytorch.callbacks.Timer", True),
        ("my_project.StopWhenTold", True),
        ("assay.callbacks.swa.SWA", False),
    ],
)
def test_a_run_without_a_number_of_epochs_needs_another_end(
    job: DictConfig, callback: str, ends: bool
) -> None:
    job.trainer.max_epochs = -1
    job.callbacks.other = {"_target_": callback}
    assert may_end_early(job) is ends
    if ends:
        check_trainer(job)
    else:
        with pytest.raises(ConfigError, match="would never end"):
            check_trainer(job)
        job.trainer.max_steps = 10
        check_trainer(job)
        job.trainer.max_steps, job.trainer.max_time = -1, {"hours": 1}
        check_trainer(job)
        assert may_end_early(job)


def test_a_trainer_of_somebodys_own(job: DictConfig) -> None:
    job.trainer._target_, job.trainer.max_epochs = "my_project.Trainer", 0
    check_trainer(job)
    job.trainer.num_nodes = 2
    with pytest.raises(ConfigError, match="one machine"):
        check_trainer(job)


def test_lbfgs_accumulates_nothing() -> None:
    typed = ["data=wine", "model=mlp", "optimizer=lbfgs", "scheduler=none"]
    Checker(None).check(Checker(None).job(typed))
    with pytest.raises(ConfigError, match="expected 1 with LBFGS, got 2") as caught:
        Checker(None).job([*typed, "trainer.accumulate_grad_batches=2"])
    assert caught.value.key == "trainer.accumulate_grad_batches"
