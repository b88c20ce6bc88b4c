"""Are the trainer's plain values such that a run trains, validates and ends?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from omegaconf import DictConfig, OmegaConf

from assay.build.trainer_options import has_no_end, is_stopped, requested_devices
from assay.config.serialize import check_whole_number, is_number, is_whole, value_of
from assay.config.unread_keys import OUR_MODULE
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = "trainer.micro_batch"
OFF: Final = f"{KEY}=null"
_LEAST: Final = {
    **dict.fromkeys(("accumulate_grad_batches", "check_val_every_n_epoch", "log_every_n_steps"), 1),
    **dict.fromkeys(("min_epochs", "min_steps", "gradient_clip_val"), 0),
    "num_sanity_val_steps": -1,
}
"""The least that Lightning takes silently for each of its numbers and does something sensible with."""
_NOT_ZERO: Final = {
    "max_epochs": "an int >= 1, or -1 for no end",
    "max_steps": "an int >= 1, or -1 for no end",
    "limit_train_batches": "a share above 0.0 or a number of batches",
    "val_check_interval": "a share of an epoch above 0.0, or a number of batches",
}
_NOT_HERE: Final = {
    "barebones": "it leaves out checkpoints and metrics; trainer.profiler=simple shows where time goes",
    "fast_dev_run": "debug=one_batch tries one batch of everything, debug=small ten",
    "overfit_batches": "debug=overfit trains on one batch over and over",
    "model_registry": "leave it out: checkpoints are uploaded nowhere",
}
"""Arguments of Lightning's that end without a trained model, or do nothing, with what to type."""


def check_trainer(config: DictConfig) -> None:
    """Refuse values with which Lightning's trainer fails late, hangs, or finishes without having trained."""
    node = config.get("trainer")
    if not isinstance(node, DictConfig):
        return
    values = {name: value_of(config, f"trainer.{name}") for name in map(str, node)}
    for name in ("compile", "channels_last"):
        _expect(name, values, isinstance(values.get(name), bool), "true or false", "true")
    _check_devices(values)
    check_micro_batch(config)
    if (accumulated := values.get("accumulate_grad_batches")) not in (None, 1) and is_lbfgs(config):
        raise ConfigError(
            f"expected 1 with LBFGS, got {accumulated}: LBFGS computes the loss several times per step",
            key="trainer.accumulate_grad_batches",
            hint="a larger data.batch_size, and trainer.micro_batch=32 if memory is short",
        )
    if values.get("_target_") != "lightning.Trainer":
        return
    for name, least in _LEAST.items():
        if is_number(value := values.get(name)):
            _expect(name, values, least <= value < math.inf, f"a number >= {least}", str(max(least, 1)))
    for name, wanted in _NOT_ZERO.items():
        value = values.get(name)
        fits = value != 0 and (not name.startswith("max_") or not is_whole(value) or value >= -1)
        _expect(name, values, fits, wanted, "10")
    for name, instead in _NOT_HERE.items():
        if values.get(name):
            raise ConfigError("not used by assay", key=f"trainer.{name}", hint=instead)
    if isinstance(values.get("profiler"), bool | int | float | list):
        _expect("profiler", values, False, "the name of a profiler or a node with a _target_", "simple")
    if values.get("max_time") is None and has_no_end(values) and not is_stopped(config):
        raise ConfigError(
            "the run would never end: neither max_epochs, max_steps nor max_time is set",
            key="trainer.max_epochs",
            hint="trainer.max_epochs=30, trainer.max_time=00:01:00:00, or callbacks=[default,early_stopping]",
        )


def _expect(name: str, values: Mapping[str, Any], fits: bool, wanted: str, example: str) -> None:
    if not fits and (value := values.get(name)) is not None:
        shown = str(value).lower() if isinstance(value, bool) else value
        key = f"trainer.{name}"
        raise ConfigError(f"expected {wanted}, got {shown}", key=key, hint=f"{key}={example}")


def _check_devices(values: Mapping[str, Any]) -> None:
    try:
        asked = requested_devices(values)
        fits = all(index >= 0 for index in asked) if isinstance(asked, list) else asked is None or asked > 0
    except (TypeError, ValueError):
        asked, fits = None, False
    if not fits or asked == []:
        _expect("devices", values, False, "a number of devices, a list of GPUs, auto, or -1 for all", "1")
    if is_number(nodes := values.get("num_nodes")) and nodes > 1:
        raise ConfigError(
            f"a run uses the devices of one machine, not of {nodes}",
            key="trainer.num_nodes",
            hint="trainer.num_nodes=1; a sweep's jobs can run on several machines: hydra/launcher=slurm",
        )


def check_micro_batch(config: DictConfig) -> None:
    """Refuse values that are not a size, and jobs whose steps are not assay's."""
    asked = value_of(config, KEY)
    if asked is None:
        return
    if asked != "auto" and not is_whole(asked):
        raise ConfigError(f"expected auto, an int >= 1 or null, got {asked}", key=KEY, hint=f"{KEY}=auto")
    if asked != "auto":
        check_whole_number(KEY, asked, 1)
    if OmegaConf.select(config, "trainer._target_") != "lightning.Trainer":
        raise ConfigError("a custom trainer takes its steps itself", key=KEY, hint=OFF)
    if OmegaConf.select(config, "module._target_") not in (None, OUR_MODULE):
        raise ConfigError("a custom LightningModule takes its steps itself", key=KEY, hint=OFF)
    if asked == "auto" and is_lbfgs(config):
        raise ConfigError(
            "LBFGS asks for the loss several times per step, always of the same pieces",
            key=KEY,
            hint=f"{KEY}=32",
        )


def is_lbfgs(config: DictConfig) -> bool:
    """Whether the optimizer asks for the loss and its gradient several times in a step."""
    return str(value_of(config, "optimizer._target_")).endswith(".LBFGS")


def check_manual(config: DictConfig, module: Any) -> None:
    """Refuse what Lightning does not do for a module that steps its optimizers by hand."""
    if getattr(module, "automatic_optimization", True):
        return
    for name, idle in (("accumulate_grad_batches", 1), ("gradient_clip_val", 0)):
        if (value := value_of(config, f"trainer.{name}")) not in (None, idle):
            raise ConfigError(
                f"{value} has no effect: {type(module).__name__} steps its optimizers by hand",
                key=f"trainer.{name}",
                hint="leave it out, and let training_step do it",
            )
