"""Callbacks and loggers that cannot be used, metrics they wait for, and processes assay does not start."""

from __future__ import annotations

import os
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

import lightning.pytorch.callbacks as lightning_callbacks
import torch
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from omegaconf import DictConfig, OmegaConf

from assay.assemble.node import monitors
from assay.assemble.trainer_options import is_rank, num_local_processes, requested_devices
from assay.callbacks.whitening import Whitening
from assay.check.values import is_lbfgs
from assay.config.did_you_mean import did_you_mean
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.targets.resolve import resolve_class
from assay_prove.fit import why_no_validation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import lightning as L
    from torch import nn


def check_processes(config: DictConfig, trainer: L.Trainer) -> None:
    """Refuse strategies for which Lightning would start processes itself."""
    strategy = trainer.strategy
    devices = trainer.num_devices
    name = config.trainer.get("strategy", "auto")
    shown = name
    if not isinstance(name, str):
        shown = type(strategy).__name__
    gpus = not isinstance(trainer.accelerator, CPUAccelerator)
    requested = requested_devices(config.trainer)
    started = num_local_processes(config)
    key = "trainer.strategy"
    message = ""
    hint = "trainer.strategy=auto"
    if strategy.launcher is not None and not isinstance(
        strategy.launcher, _SubprocessScriptLauncher
    ):
        message = (
            f"{shown} starts processes itself, which does not work from a config; "
            "assay starts those of ddp"
        )
        several = "device=ddp_cpu for several processes on the CPU"
        if gpus:
            several = "device=ddp for all GPUs"
        hint = f"trainer.strategy=auto for one device; {several}"
    elif (isinstance(requested, int) and requested != devices) or (
        not is_rank() and started != devices
    ):
        instead = "trainer.strategy=ddp"
        if not gpus:
            instead = f"device=ddp_cpu trainer.devices={devices}"
        key = "trainer.devices"
        hint = f"trainer.devices={started}, or {instead}"
        message = f"devices={requested}: {shown} computes on {devices}, and assay starts {started} of them"
    if message:
        raise ConfigError(message, key=key, hint=hint)


_OTHERWISE = {
    "LearningRateFinder": (
        "it changes the learning rate after the schedule was made from it",
        "assay train -m sweep=lr finds one, and with it the weight decay",
    ),
    "BatchSizeFinder": (
        "it changes the batch size after the length of the schedule was computed from it",
        "`assay check` shows how much memory a batch takes; data.batch_size=…",
    ),
    "BackboneFinetuning": (
        "it takes parameters out of the optimizer and puts them back, and needs a module with a `backbone`",
        "finetune=gradual unfreezes layer by layer",
    ),
    "StochasticWeightAveraging": (
        "it averages once training is over: no checkpoint holds the mean, so it is never tested",
        "callbacks=swa",
    ),
}
"""Callbacks of Lightning's that do not do here what they say, why, and what does."""


def check_callbacks(config: DictConfig) -> None:
    """Refuse callbacks that contradict each other, and loggers that write into one file."""
    chosen = dict(classes_in(config))
    for key, kind in chosen.items():
        for name, (why, instead) in _OTHERWISE.items():
            if issubclass(kind, getattr(lightning_callbacks, name)):
                raise ConfigError(f"{name} cannot be used: {why}", key=key, hint=instead)
    averaging = [key for key, kind in chosen.items() if issubclass(kind, WeightAveraging)]
    if len(averaging) > 1:
        message = (
            f"{averaging[0]} averages the weights already, and a checkpoint holds one average"
        )
        raise ConfigError(message, key=averaging[1], hint=f"~{averaging[1]}, or ~{averaging[0]}")
    for key, kind in chosen.items():
        if issubclass(kind, lightning_callbacks.GradientAccumulationScheduler):
            _check_accumulation(config, key)


def classes_in(config: DictConfig) -> Iterator[tuple[str, Any]]:
    """Key and class of each callback; those made by a function are left out."""
    for name, node in (config.get("callbacks") or {}).items():
        if isinstance(node, DictConfig):
            kind = resolve_class(f"callbacks.{name}", node)
            if isinstance(kind, type):
                yield f"callbacks.{name}", kind


def _check_accumulation(config: DictConfig, key: str) -> None:
    message = ""
    hint = f"~{key}, or trainer.accumulate_grad_batches=1"
    if is_lbfgs(config):
        message = "LBFGS cannot accumulate batches"
        hint = f"~{key}, or optimizer=adamw"
    elif config.trainer.get("accumulate_grad_batches", 1) != 1:
        message = "trainer.accumulate_grad_batches says how many batches are accumulated"
    else:
        for entry in walk(config):
            text = ""
            if entry.is_interpolation:
                text = str(entry.raw)
            if "${spec.total_steps}" in text or "${spec.steps_per_epoch}" in text:
                message = f"it changes the number of optimizer steps, which {entry.key} is computed from"
                hint = "scheduler=none or scheduler=plateau, or a fixed trainer.accumulate_grad_batches=…"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def check_whitening(trainer: Any, model: nn.Module, input_shape: Sequence[int]) -> None:
    """Refuse `callbacks.whitening` with a model that has no such convolution."""
    for callback in trainer.callbacks:
        if isinstance(callback, Whitening):
            callback.find_convolution(model, int(input_shape[0]))


_COUNTS = ("epoch", "step")
"""What Lightning logs, or has at hand, in every run."""


def score_names(config: DictConfig, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of the metrics that a job will log."""
    is_tested = config.spec.num_test and config.trainer.get("limit_test_batches") != 0
    tested = []
    if is_tested:
        tested = [f"test/{name.removeprefix('val/')}" for name in names["val"]]
    validated = names["val"]
    if why_no_validation(config)[0]:
        validated = ()
    return [*names["train"], *validated, *tested]


def check_monitors(config: DictConfig, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse to monitor a metric that will not be logged."""
    without, instead = why_no_validation(config)
    validated = names["val"]
    if without:
        validated = ()
    logged = [*names["train"], *validated]
    for node, monitor in monitors(config):
        key = f"{node}.monitor"
        if monitor in logged or monitor in _COUNTS or monitor.startswith("lr-"):
            continue
        if without and monitor in names["val"]:
            raise ConfigError(
                f"{monitor!r} will not be logged: {without}",
                key=key,
                hint=f"{instead}, or {key}=train/loss",
            )
        raise unknown_metric_error(key, monitor, sorted(logged))


def unknown_metric_error(key: str, metric: str, available: Sequence[str]) -> ConfigError:
    """The error for a metric that is not logged."""
    message = f"unknown metric {metric!r}{did_you_mean(metric, available, '; ')}"
    return ConfigError(message, key=key, hint=f"available: {', '.join(available)}")


def check_checkpoint_names(config: DictConfig, names: Sequence[str] | None) -> None:
    """Refuse a `filename` that no checkpoint can have, and for the best one that of the last."""
    for key, kind in classes_in(config):
        if issubclass(kind, ModelCheckpoint):
            node = OmegaConf.select(config, key)
            _check_filename(
                f"{key}.filename", node.get("filename"), names, is_best=bool(node.get("monitor"))
            )


def _check_filename(
    key: str, filename: Any, names: Sequence[str] | None, *, is_best: bool
) -> None:
    callback = ModelCheckpoint(dirpath="checkpoints", filename=filename)
    try:
        for _, name, _, _ in Formatter().parse(filename or ""):
            if (
                name
                and names is not None
                and not (name in (*_COUNTS, *names) or name.startswith("lr-"))
            ):
                raise unknown_metric_error(key, name, [*_COUNTS, *names])
        values = {
            name: torch.tensor(number)
            for number, name in enumerate((*_COUNTS, *(names or ())), 1)
        }
        path = os.path.normpath(callback.format_checkpoint_name(values))
        if not Path(path).is_relative_to(str(callback.dirpath)):
            raise ValueError("it is outside of the run's folder of checkpoints")
        if is_best and Path(path).name == "last.ckpt":
            raise ValueError("the last checkpoint already has the name last.ckpt")
    except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        hint = f"{key}='best-{{epoch:02d}}'"
        raise ConfigError(
            f"{filename!r} cannot name a checkpoint: {error}", key=key, hint=hint
        ) from error
