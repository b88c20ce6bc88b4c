"""Are the trainer's plain values such that a run trains, validates and ends?"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from assay.build.trainer_options import has_no_end, is_stopped
from assay.compose.recipe import is_chosen
from assay.config.serialize import check_choice, check_whole_number, is_number, is_whole, value_of
from assay.config.unread_keys import OUR_MODULE
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


KEY = "trainer.micro_batch"
OFF = f"{KEY}=null"


def check_micro_batch(config: DictConfig) -> None:
    """Refuse values that are not a size, and jobs whose steps are not assay's."""
    asked = value_of(config, KEY)
    if asked is None:
        return
    if asked != "auto":
        if isinstance(asked, str):
            raise ConfigError(
                f"{asked} was given; auto, a number of samples, or null for the whole batch was expected",
                key=KEY,
                hint=f"{KEY}=auto",
            )
        check_whole_number(KEY, asked, 1)
    if OmegaConf.select(config, "trainer._target_") != "lightning.Trainer":
        raise ConfigError("a trainer of your own takes its steps itself", key=KEY, hint=OFF)
    if OmegaConf.select(config, "module._target_") not in (None, OUR_MODULE):
        raise ConfigError("a LightningModule of your own does its steps as it likes", key=KEY, hint=OFF)
    if asked == "auto" and is_lbfgs(config):
        raise ConfigError(
            "LBFGS asks for the loss several times a step, which must all be of the same pieces",
            key=KEY,
            hint=f"{KEY}=32",
        )


def is_lbfgs(config: DictConfig) -> bool:
    """Whether the optimizer asks for the loss and its gradient several times in a step."""
    return str(value_of(config, "optimizer._target_")).endswith(".LBFGS")


def check_loggers(config: DictConfig) -> None:
    """Refuse settings that Weights & Biases would refuse once the run has begun."""
    for name, node in (config.get("logger") or {}).items():
        if not isinstance(node, DictConfig) or not str(node.get("_target_")).endswith(".WandbLogger"):
            continue
        settings = OmegaConf.to_container(node, resolve=True).get("settings")  # type: ignore[union-attr]  # of a mapping
        if isinstance(settings, dict):
            _check_wandb(f"logger.{name}.settings", settings)


def _check_wandb(key: str, settings: Mapping[str, Any]) -> None:
    import wandb
    from pydantic import ValidationError

    try:
        wandb.Settings(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join([key, *map(str, first["loc"])])
        value = first["input"]
        raise ConfigError(
            f"{value!r} was given: {first['msg']}", key=at, hint=f"~{at}, or see wandb.Settings"
        ) from error


_TRAINER = "lightning.Trainer"
_WHOLE = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "log_every_n_steps": 1,
    "min_epochs": 0,
    "min_steps": 0,
    "num_sanity_val_steps": -1,
}
"""Whole numbers, and the least that each may be."""
_OR_FOREVER = {"max_epochs": 10, "max_steps": 1000}
"""Whole numbers that may be -1 for no end, each with an example."""
_LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches")
_SWITCHES = ("compile", "channels_last")
_ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "hpu", "mps", "tpu", "xla")
_PROFILERS = ("simple", "advanced", "pytorch", "xla")
_NOT_HERE = {
    "barebones": "it leaves out checkpoints and metrics; trainer.profiler=simple shows where time goes",
    "fast_dev_run": "debug=one_batch tries one batch of everything, debug=small ten",
    "overfit_batches": "debug=overfit trains on one batch over and over",
    "model_registry": "leave it out: checkpoints are uploaded nowhere",
}
"""Arguments of Lightning's that end without a trained model, or do nothing, with what to type."""
_DURATION = re.compile(r"(\d+):(\d\d):(\d\d):(\d\d)")
_MOST_DEVICES = 10_000
_MANY_DEVICES = re.compile(r"\s*\d+\s*(,\s*\d+\s*)*,?\s*")


def check_trainer(config: DictConfig) -> None:
    """Refuse values with which Lightning's trainer fails late, hangs, or finishes without having trained."""
    node = config.get("trainer")
    if not isinstance(node, DictConfig):
        return
    values = {name: value_of(config, f"trainer.{name}") for name in map(str, node)}
    for name in _SWITCHES:
        _check_switch(name, values.get(name))
    _check_devices(values.get("devices"))
    _check_nodes(values.get("num_nodes"))
    check_micro_batch(config)
    if (accumulated := values.get("accumulate_grad_batches")) not in (None, 1) and is_lbfgs(config):
        raise ConfigError(
            f"expected 1 with LBFGS, got {accumulated}: LBFGS computes the loss several times per step, "
            "which would add the gradient of the last batch each time",
            key="trainer.accumulate_grad_batches",
            hint="a larger data.batch_size, and trainer.micro_batch=32 if memory is short",
        )
    if values.get("_target_") != _TRAINER:
        return
    for name, least in _WHOLE.items():
        if (value := values.get(name)) is not None:
            check_whole_number(f"trainer.{name}", value, least)
    for name in _LIMITS:
        _check_limit(name, values.get(name))
    _check_length(config, values)
    _check_validation(values)
    _check_clipping(values.get("gradient_clip_val"))
    _check_profiler(values.get("profiler"))
    for name, instead in _NOT_HERE.items():
        if values.get(name):
            raise ConfigError(
                "assay does not use this argument of Lightning's", key=f"trainer.{name}", hint=instead
            )
    accelerator = values.get("accelerator")
    # Somebody's own package may register another.
    if isinstance(accelerator, str) and not config.get("trusted_packages"):
        check_choice("trainer.accelerator", accelerator, _ACCELERATORS)


def seconds_of(value: Any) -> float | None:
    """A duration as Lightning takes it, in seconds; None where it is not one."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            return None
        days, hours, minutes, seconds = map(int, match.groups())
        value = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    if not isinstance(value, dict):
        return None
    try:
        return timedelta(**value).total_seconds()
    except (TypeError, OverflowError, ValueError):
        return None


def check_manual(config: DictConfig, module: Any) -> None:
    """Refuse what Lightning does not do for a module that steps its optimizers by hand."""
    if getattr(module, "automatic_optimization", True):
        return
    idle = {
        "accumulate_grad_batches": (1, "let training_step count batches"),
        "gradient_clip_val": (
            0,
            "let training_step call self.clip_gradients(optimizer, …)",
        ),
    }
    for name, (nothing, instead) in idle.items():
        if (value := value_of(config, f"trainer.{name}")) not in (None, nothing):
            raise ConfigError(
                f"{value} was given, and {type(module).__name__} steps its optimizers by hand, where "
                "Lightning leaves this to the module",
                key=f"trainer.{name}",
                hint=f"leave it out, and {instead}",
            )


def _check_switch(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        raise ConfigError(
            f"{value} was given; true or false was expected",
            key=f"trainer.{name}",
            hint=f"trainer.{name}=true, or trainer.{name}=false",
        )


def _check_devices(value: Any) -> None:
    if value is None or value in ("auto", -1, "-1"):
        return  # null is refused with the signature
    if is_whole(value):
        fine = 1 <= value <= _MOST_DEVICES
    elif isinstance(value, str):
        fine = bool(_MANY_DEVICES.fullmatch(value)) and value.strip() != "0"
    elif isinstance(value, list):
        fine = bool(value) and all(is_whole(one) and one >= 0 for one in value)
        fine = fine and len(set(value)) == len(value)
    else:
        return
    if not fine:
        raise ConfigError(
            f"{value} was given; a number of devices, a list of different GPUs counted from 0, auto, or -1 "
            "for all GPUs was expected",
            key="trainer.devices",
            hint="trainer.devices=1, or trainer.devices=[0]",
        )


def _check_nodes(value: Any) -> None:
    if value is None:
        return
    check_whole_number("trainer.num_nodes", value, 1)
    if value > 1:
        raise ConfigError(
            f"{value} machines were asked for; a run uses the devices of one machine",
            key="trainer.num_nodes",
            hint="trainer.num_nodes=1; a sweep's jobs can run on several machines: hydra/launcher=slurm",
        )


def _check_limit(name: str, value: Any) -> None:
    if not is_number(value):
        return
    key, share = f"trainer.{name}", "a share from 0.0 to 1.0 or a number of batches"
    if not (0 <= value <= 1 or (value > 1 and float(value).is_integer())):
        raise ConfigError(f"{value} was given; {share} was expected", key=key, hint=f"{key}=0.5, or {key}=10")
    if name == "limit_train_batches" and value == 0:
        raise ConfigError(
            "nothing would be trained; a share above 0.0 or a number of batches was expected",
            key=key,
            hint=f"{key}=0.5, or {key}=10",
        )


def _check_length(config: DictConfig, values: Mapping[str, Any]) -> None:
    for name, example in _OR_FOREVER.items():
        value = values.get(name)
        if is_whole(value) and (value < -1 or value == 0):
            raise ConfigError(
                f"{value} was given; a whole number of at least 1 was expected, or -1 for no end",
                key=f"trainer.{name}",
                hint=f"trainer.{name}={example}",
            )
    limit = values.get("max_time")
    if limit is not None:
        _check_duration("max_time", limit)
    elif has_no_end(values) and not is_stopped(config):
        raise ConfigError(
            "the run would never end: neither max_epochs, max_steps nor max_time is set",
            key="trainer.max_epochs",
            hint="trainer.max_epochs=30, trainer.max_time=00:01:00:00, or callbacks=[default,early_stopping]",
        )
    for least, most in (("min_epochs", "max_epochs"), ("min_steps", "max_steps")):
        low, high = values.get(least), values.get(most)
        if most == "max_epochs" and is_chosen(config, "trainer.max_epochs"):
            continue
        if is_whole(low) and is_whole(high) and -1 < high < low:
            raise ConfigError(
                f"{low} was given, but the run ends with {most}={high}",
                key=f"trainer.{least}",
                hint=f"trainer.{most}={low}, or trainer.{least}={high}",
            )


def _check_validation(values: Mapping[str, Any]) -> None:
    key, interval = "trainer.val_check_interval", values.get("val_check_interval")
    beyond = isinstance(interval, float) and interval > 1
    if isinstance(interval, bool) or (is_number(interval) and (beyond or not interval > 0)):
        raise ConfigError(
            f"{str(interval).lower()} was given; a share of an epoch above 0.0 and at most 1.0, or a whole "
            "number of batches, was expected",
            key=key,
            hint=f"{key}=0.5 is twice an epoch, {key}=100 every 100 batches",
        )
    if isinstance(interval, str | dict):
        _check_duration("val_check_interval", interval)
    elif values.get("check_val_every_n_epoch", 1) is None and not is_whole(interval):
        raise ConfigError(
            f"{interval} was given; with trainer.check_val_every_n_epoch=null a number of batches "
            "was expected",
            key=key,
            hint=f"{key}=100, or trainer.check_val_every_n_epoch=1",
        )


def _check_duration(name: str, value: Any) -> None:
    if not isinstance(value, str | dict):
        return  # refused with the signature
    seconds = seconds_of(value)
    if seconds is None or not 0 < seconds < math.inf:
        raise ConfigError(
            f"{value} was given; a time above zero was expected, as days:hours:minutes:seconds or a mapping",
            key=f"trainer.{name}",
            hint=f"'trainer.{name}=\"00:01:30:00\"', or 'trainer.{name}={{hours: 1, minutes: 30}}'",
        )


def _check_clipping(value: Any) -> None:
    if is_number(value) and not 0 <= value < math.inf:
        raise ConfigError(
            f"{value} was given; a number of at least 0 was expected",
            key="trainer.gradient_clip_val",
            hint="trainer.gradient_clip_val=1.0, or null for no clipping",
        )


def _check_profiler(value: Any) -> None:
    if isinstance(value, bool | int | float | list):
        raise ConfigError(
            f"{str(value).lower()} was given; the name of a profiler or a node with a _target_ was expected",
            key="trainer.profiler",
            hint="trainer.profiler=simple, or debug=profiler",
        )
    if isinstance(value, str):
        check_choice("trainer.profiler", value, _PROFILERS)
