"""Values that are refused without torch, before anything is built; tests/check/broken has more of them."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING

import lightning as L
import pytest
from omegaconf import OmegaConf

from assay.build.trainer_options import may_end_early
from assay.check.job import check_ranges, check_values
from assay.check.signature import supplied
from assay.check.trainer import check_trainer, seconds_of
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

NAN, INF = math.nan, math.inf
TRAINER: dict[str, tuple[list[object], list[object]]] = {
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
OTHERS: dict[str, tuple[list[object], list[object]]] = {
    "data.batch_size": ([1, 512, "${spec.num_train}"], [0, -3, 1.5, "x", True]),
    "data.eval_batch_size": ([1], [0]),
    "data.num_workers": ([0, 8], [-1, "many"]),
    "data.split.val": ([0, 0.1, 0.79], [1, -0.1, "x", True, 0.8]),
    "data.split.test": ([0, 0.1, 0.89], [1, -0.1, "x", [0.1]]),
    "data.split.seed": ([0, 3], [-1, 0.5]),
    "data.thin_classes": ([None, 1, 0.01], [0, -1, 1.5]),
    "trainer.precision": (["bf16-mixed", "32-true", "16", 32, "64-true"], ["fp32", "bf16-mixd", 8]),
    "trainer.gradient_clip_algorithm": (["norm", "value"], ["norms"]),
    "scheduler.interval": (["step", "epoch"], ["hour", 3]),
    "scheduler.frequency": ([1, 2], [0, -1, 0.5, True, "often"]),
    "seed": ([0, 1, 2**32 - 1], [None, True, -1, 2**32, 0.5, "x", [1], "${data.transform.normalize}"]),
}
SIGNATURE = {
    *("benchmark", "deterministic", "detect_anomaly", "enable_autolog_hparams", "inference_mode"),
    *("reload_dataloaders_every_n_epochs", "sync_batchnorm"),
}
ELSEWHERE = {"gradient_clip_algorithm", "precision", "strategy"}


@pytest.mark.parametrize("key", [*(f"trainer.{name}" for name in TRAINER), *OTHERS])
def test_ranges(job: DictConfig, key: str) -> None:
    check = check_trainer if key.removeprefix("trainer.") in TRAINER else check_values
    good, bad = OTHERS.get(key) or TRAINER[key.removeprefix("trainer.")]
    for value in good:
        OmegaConf.update(job, key, value, merge=False)
        check(job)
    for value in bad:
        OmegaConf.update(job, key, value, merge=False)
        with pytest.raises(ConfigError) as caught:
            check(job)
        fitting = ["trainer.val_check_interval"] if value is None else []
        assert {key, *fitting} & set(caught.value.key.split(", ")), value
        assert caught.value.hint


def test_every_argument_of_lightnings_trainer_is_checked(composed: DictConfig) -> None:
    """One that a newer Lightning adds has to be sorted in here."""
    injected = supplied(composed, "trainer")
    assert injected is not None
    known = {*TRAINER, *SIGNATURE, *ELSEWHERE, *injected.names}
    assert known == {*inspect.signature(L.Trainer).parameters, "compile", "channels_last", "micro_batch"}


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
    if not ends:
        with pytest.raises(ConfigError, match="would never end"):
            check_trainer(job)
        job.trainer.max_time = {"hours": 1}
    check_trainer(job)


def test_custom_trainers_and_accelerators_are_left_alone(job: DictConfig) -> None:
    job.trusted_packages, job.trainer.accelerator = ["my_project"], "abacus"
    check_trainer(job)
    job.trainer._target_, job.trainer.max_epochs = "my_project.Trainer", 0
    check_trainer(job)
    job.trainer.num_nodes = 2
    with pytest.raises(ConfigError, match="one machine"):
        check_trainer(job)
    job.data = {"_target_": "my_project.Data", "batch_size": "all"}
    check_values(job)


@pytest.mark.parametrize("value", ["00:00:00:90", "02:03:04:05", {"hours": 1, "seconds": 2}, {"weeks": 1}])
def test_durations_are_lightnings(value: object) -> None:
    timer = L.pytorch.callbacks.Timer(value)  # type: ignore[arg-type]  # of the kinds that YAML has
    assert seconds_of(value) == timer._duration


# -- of the libraries' classes


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        ("optimizer torch.optim.AdamW", "lr", 0),
        ("optimizer torch.optim.AdamW", "lr", 1e3),
        ("optimizer torch.optim.AdamW", "eps", 1e12),
        ("optimizer torch.optim.SGD", "momentum", 7),
        ("optimizer torch.optim.RMSprop", "alpha", 7),
        ("optimizer torch.optim.LBFGS", "max_iter", 0),
        ("scheduler torch.optim.lr_scheduler.StepLR", "step_size", 0),
        ("scheduler torch.optim.lr_scheduler.StepLR", "gamma", -1),
        ("scheduler torch.optim.lr_scheduler.CosineAnnealingLR", "T_max", -1),
        ("scheduler torch.optim.lr_scheduler.ReduceLROnPlateau", "patience", -1),
        ("scheduler torch.optim.lr_scheduler.ReduceLROnPlateau", "threshold", NAN),
        ("scheduler torch.optim.lr_scheduler.LambdaLR", "last_epoch", 3),
        ("callbacks lightning.pytorch.callbacks.ModelCheckpoint", "save_top_k", 0),
        ("callbacks lightning.pytorch.callbacks.EMAWeightAveraging", "decay", 1),
        ("loss torch.nn.HuberLoss", "delta", INF),
        ("augment torchvision.transforms.v2.MixUp", "alpha", INF),
    ],
)
def test_numbers_that_mean_nothing(target: str, name: str, value: float) -> None:
    group, target = target.split()
    config = OmegaConf.create({group: {"_target_": target, name: value}})
    with pytest.raises(ConfigError, match=rf"^{group}\.{name}: "):
        check_ranges(config)


@pytest.mark.parametrize(
    ("group", "target", "name", "value"),
    [
        ("optimizer", "my_project.Sign", "lr", 1e6),
        ("model", "torch.nn.Hardtanh", "max_val", INF),
        ("scheduler", "torch.optim.lr_scheduler.CosineAnnealingLR", "T_max", "${spec.total_steps}"),
        ("optimizer", "torch.optim.Adafactor", "eps", [None, 0.001]),
        ("model", "torchvision.models.VisionTransformer", "patch_size", "${oc.select:spec.x,0}"),
    ],
)
def test_numbers_that_are_left_alone(group: str, target: str, name: str, value: object) -> None:
    check_ranges(OmegaConf.create({group: {"_target_": target, name: value}}))


# -- of a whole job
