"""Are the trainer's plain values such that a run trains, validates and ends?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from omegaconf import DictConfig, OmegaConf

from assay.build.trainer_options import has_no_end, is_stopped
from assay.compose.recipe import is_chosen
from assay.config.serialize import check_choice, check_whole_number, is_number, is_whole, value_of
from assay.config.unread_keys import OUR_MODULE
from assay.errors import ConfigError

_TRAINER = "lightning.Trainer"
KEY = "trainer.micro_batch"
OFF = f"{KEY}=null"


def check_micro_batch(config: DictConfig) -> None:
    """Refuse values that are not a size, and jobs whose steps are not assay's."""
    asked = value_of(config, KEY)
    accumulated = value_of(config, "trainer.accumulate_grad_batches")
    if accumulated not in (None, 1) and is_lbfgs(config):
        raise ConfigError(
            f"expected 1 with LBFGS, got {accumulated}: LBFGS computes the loss several times per step, "
            "which would add the gradient of the last batch each time",
            key="trainer.accumulate_grad_batches",
            hint="a larger data.batch_size, and trainer.micro_batch=32 if memory is short",
        )
    if asked is None:
        return
    if isinstance(asked, str) and asked != "auto":
        wanted = "auto, a number of samples, or null for the whole batch was expected"
        raise ConfigError(f"{asked} was given; {wanted}", key=KEY, hint=f"{KEY}=auto")
    if asked != "auto":
        check_whole_number(KEY, asked, 1)
    why = ""
    if OmegaConf.select(config, "trainer._target_") != _TRAINER:
        why = "a trainer of your own takes its steps itself"
    elif OmegaConf.select(config, "module._target_") not in (None, OUR_MODULE):
        why = "a LightningModule of your own does its steps as it likes"
    if why:
        raise ConfigError(why, key=KEY, hint=OFF)
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
        if not isinstance(settings, dict):
            continue
        import wandb
        from pydantic import ValidationError

        try:
            wandb.Settings(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join([f"logger.{name}.settings", *map(str, first["loc"])])
            message = f"{first['input']!r} was given: {first['msg']}"
            raise ConfigError(message, key=at, hint=f"~{at}, or see wandb.Settings") from error


_WHOLE = {
    **dict.fromkeys(("accumulate_grad_batches", "check_val_every_n_epoch", "log_every_n_steps"), 1),
    **dict.fromkeys(("min_epochs", "min_steps"), 0),
    "num_sanity_val_steps": -1,
}
"""Whole numbers, and the least that each may be."""
_LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches")
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


def _are_devices(value: Any) -> bool:
    if is_whole(value):
        return value == -1 or 1 <= value <= _MOST_DEVICES
    if isinstance(value, str):
        return value in ("auto", "-1") or (bool(_MANY_DEVICES.fullmatch(value)) and value.strip() != "0")
    if isinstance(value, list):
        return (
            bool(value) and all(is_whole(one) and one >= 0 for one in value) and len({*value}) == len(value)
        )
    return True


def _is_limit(value: Any) -> bool:
    return not is_number(value) or 0 <= value <= 1 or (value > 1 and float(value).is_integer())


def _is_time(value: Any) -> bool:
    return not isinstance(value, str | dict) or 0 < (seconds_of(value) or 0) < math.inf


def _is_interval(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return not is_number(value) or (value > 0 and not (isinstance(value, float) and value > 1))


def _may_be_endless(value: Any) -> bool:
    return not is_whole(value) or value == -1 or value >= 1


_TIME = (
    _is_time,
    "a time above zero was expected, as days:hours:minutes:seconds or a mapping",
    "'{0}=\"00:01:30:00\"', or '{0}={{hours: 1, minutes: 30}}'",
)
_SWITCH = (lambda value: isinstance(value, bool), "true or false was expected", "{0}=true, or {0}=false")
_Rules = Mapping[str, tuple[Callable[[Any], bool], str, str]]
_OF_ANY: _Rules = {
    "compile": _SWITCH,
    "channels_last": _SWITCH,
    "devices": (
        _are_devices,
        "a number of devices, a list of different GPUs counted from 0, auto, or -1 for all GPUs was expected",
        "{0}=1, or {0}=[0]",
    ),
    "num_nodes": (
        lambda value: is_whole(value) and value == 1,
        "1 was expected: a run uses the devices of one machine",
        "{0}=1; a sweep's jobs can run on several machines: hydra/launcher=slurm",
    ),
}
_ENDLESS = "a whole number of at least 1 was expected, or -1 for no end"
_OF_LIGHTNINGS: _Rules = {
    **dict.fromkeys(
        _LIMITS,
        (_is_limit, "a share from 0.0 to 1.0 or a number of batches was expected", "{0}=0.5, or {0}=10"),
    ),
    "max_epochs": (_may_be_endless, _ENDLESS, "{0}=10"),
    "max_steps": (_may_be_endless, _ENDLESS, "{0}=1000"),
    "max_time": _TIME,
    "val_check_interval": (
        _is_interval,
        "a share of an epoch above 0.0 and at most 1.0, or a whole number of batches, was expected",
        "{0}=0.5 is twice an epoch, {0}=100 every 100 batches",
    ),
    "gradient_clip_val": (
        lambda value: not is_number(value) or 0 <= value < math.inf,
        "a number of at least 0 was expected",
        "{0}=1.0, or null for no clipping",
    ),
    "profiler": (
        lambda value: not isinstance(value, bool | int | float | list),
        "the name of a profiler or a node with a _target_ was expected",
        "{0}=simple, or debug=profiler",
    ),
}
"""Whether a value is fine, and what is said where it is not; null passes."""


def check_trainer(config: DictConfig) -> None:
    """Refuse values with which Lightning's trainer fails late, hangs, or finishes without having trained."""
    node = config.get("trainer")
    if not isinstance(node, DictConfig):
        return
    values = {name: value_of(config, f"trainer.{name}") for name in map(str, node)}
    _check_rules(values, _OF_ANY)
    check_micro_batch(config)
    if values.get("_target_") != _TRAINER:
        return
    for name, least in _WHOLE.items():
        if (value := values.get(name)) is not None:
            check_whole_number(f"trainer.{name}", value, least)
    _check_rules(values, _OF_LIGHTNINGS)
    if values.get("limit_train_batches") == 0:
        raise ConfigError(
            "nothing would be trained; a share above 0.0 or a number of batches was expected",
            key="trainer.limit_train_batches",
            hint="trainer.limit_train_batches=0.5, or trainer.limit_train_batches=10",
        )
    _check_length(config, values)
    interval = values.get("val_check_interval")
    if isinstance(interval, str | dict):
        _check_rules(values, {"val_check_interval": _TIME})
    elif values.get("check_val_every_n_epoch", 1) is None and not is_whole(interval):
        raise ConfigError(
            f"{interval} was given; with trainer.check_val_every_n_epoch=null a number of batches "
            "was expected",
            key="trainer.val_check_interval",
            hint="trainer.val_check_interval=100, or trainer.check_val_every_n_epoch=1",
        )
    if isinstance(values.get("profiler"), str):
        check_choice("trainer.profiler", values["profiler"], _PROFILERS)
    for name, instead in _NOT_HERE.items():
        if values.get(name):
            raise ConfigError(
                "assay does not use this argument of Lightning's", key=f"trainer.{name}", hint=instead
            )
    accelerator = values.get("accelerator")
    # A trusted package may register another.
    if isinstance(accelerator, str) and not config.get("trusted_packages"):
        check_choice("trainer.accelerator", accelerator, _ACCELERATORS)


def _check_rules(values: Mapping[str, Any], rules: _Rules) -> None:
    for name, (is_fine, wanted, hint) in rules.items():
        value = values.get(name)
        if value is not None and not is_fine(value):
            shown = str(value).lower() if isinstance(value, bool) else value
            key = f"trainer.{name}"
            raise ConfigError(f"{shown} was given; {wanted}", key=key, hint=hint.format(key))


def check_manual(config: DictConfig, module: Any) -> None:
    """Refuse what Lightning does not do for a module that steps its optimizers by hand."""
    if getattr(module, "automatic_optimization", True):
        return
    for name, nothing, instead in (
        ("accumulate_grad_batches", 1, "let training_step count batches"),
        ("gradient_clip_val", 0, "let training_step call self.clip_gradients(optimizer, …)"),
    ):
        if (value := value_of(config, f"trainer.{name}")) not in (None, nothing):
            raise ConfigError(
                f"{value} was given, and {type(module).__name__} steps its optimizers by hand, where "
                "Lightning leaves this to the module",
                key=f"trainer.{name}",
                hint=f"leave it out, and {instead}",
            )


def _check_length(config: DictConfig, values: Mapping[str, Any]) -> None:
    if values.get("max_time") is None and has_no_end(values) and not is_stopped(config):
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
