from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import lightning as L
import pytest
from omegaconf import OmegaConf

from assay.build.trainer_options import may_end_early
from assay.check.checker import Checker
from assay.check.signature import supplied
from assay.check.trainer import check_trainer, seconds_of
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig


NAN, INF = float("nan"), float("inf")
RANGES: dict[str, tuple[list[object], list[object]]] = {
    "max_epochs": ([1, 30, None], [0, -1, -2]),
    "max_steps": ([-1, 1, 5], [0, -7]),
    "max_time": (
        [None, "00:00:00:01", "01:02:03:04", {"minutes": 3}],
        ["00:00:00:00", "1 h", "00:00:00", {"seconds": 0}, {"minutes": -1}, {"minute": 1}, {"days": 1e300}],
    ),
    "min_epochs": ([None, 0, 30, 31], [-1]),
    "min_steps": ([None, 0, 1000], [-1]),
    "limit_train_batches": ([None, 0.5, 1.0, 1, 10, 10.0], [0, 0.0, -1, 1.5, -0.5, NAN, INF]),
    "limit_val_batches": ([None, 0, 0.5, 3], [-1, 1.5, NAN]),
    "limit_test_batches": ([None, 0, 0.5, 3], [-1, 1.5, INF]),
    "limit_predict_batches": ([None, 0], [-1]),
    "val_check_interval": (
        [None, 1, 1.0, 0.25, 100, "00:00:10:00", {"minutes": 5}],
        [0, 0.0, -1, -0.5, NAN, True, False, "hourly", "00:00:00:00", {"seconds": 0}],
    ),
    "check_val_every_n_epoch": ([1, 5], [0, -1, 1.5, None]),
    "num_sanity_val_steps": ([-1, 0, 2, None], [-2, 0.5]),
    "log_every_n_steps": ([1, 10**9, None], [0, -1, 0.5]),
    "gradient_clip_val": ([None, 0, 0.5, 10], [-1, -0.1, NAN, INF]),
    "accumulate_grad_batches": ([1, 8], [0, -1, 1.5, "many"]),
    "devices": (
        [1, 4, -1, "auto", "-1", "2", "0,1", "0,", [0], [1, 3]],
        [0, -7, "abc", "", "0", "1.5", [], [-1], [0, 0], ["a"]],
    ),
    "num_nodes": ([1, None], [0, 2, -1, "x"]),
    "compile": ([True, False, None], ["text", "maybe", 1, 0, "", [True]]),
    "channels_last": ([True, False, None], ["maybe", 1]),
    "micro_batch": (["auto", 1, 64, None], ["half", 0, -1, 1.5, True, [2]]),
    "profiler": ([None, "simple", {"_target_": "x"}], [True, False, 1, "fast", []]),
    "accelerator": (["auto", "cpu", "mps"], ["cpus", "abacus"]),
    "fast_dev_run": ([False, 0, None], [True, 2]),
    "overfit_batches": ([0, 0.0], [1, 0.5]),
    "barebones": ([False], [True]),
    "model_registry": ([None], ["team/model"]),
}
LEFT_TO_THE_SIGNATURE = {
    *("benchmark", "deterministic", "detect_anomaly", "enable_autolog_hparams", "inference_mode"),
    *("reload_dataloaders_every_n_epochs", "sync_batchnorm"),
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
        fitting = ("trainer.val_check_interval",) if value is None else ()
        assert caught.value.key in (f"trainer.{name}", *fitting), value
        assert caught.value.hint


def test_every_argument_of_lightnings_trainer_is_looked_at(composed: DictConfig) -> None:
    """One that a newer Lightning adds has to be sorted in here."""
    arguments = set(inspect.signature(L.Trainer).parameters)
    ours = supplied(composed, "trainer")
    assert ours is not None
    known = {
        *RANGES,
        *LEFT_TO_THE_SIGNATURE,
        *IN_ASSAY_CHECK_VALUES,
        *ASKED_OF_THE_BUILT_TRAINER,
        *ours.names,
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


def test_somebodys_own_accelerator(job: DictConfig) -> None:
    job.trusted_packages, job.trainer.accelerator = ["my_project"], "abacus"
    check_trainer(job)


@pytest.mark.parametrize("value", ["00:00:00:90", "02:03:04:05", {"hours": 1, "seconds": 2}, {"weeks": 1}])
def test_durations_are_lightnings(value: object) -> None:
    timer = L.pytorch.callbacks.Timer(value)  # type: ignore[arg-type]  # of the kinds that YAML has
    assert seconds_of(value) == timer._duration


def test_lbfgs_accumulates_nothing() -> None:
    typed = ["data=wine", "model=mlp", "optimizer=lbfgs", "scheduler=none"]
    Checker(None).check(Checker(None).job(typed))
    with pytest.raises(ConfigError, match="expected 1 with LBFGS, got 2") as caught:
        Checker(None).job([*typed, "trainer.accumulate_grad_batches=2"])
    assert caught.value.key == "trainer.accumulate_grad_batches"
