"""Refuse parts, lengths and schedules of a run that do not go together once they are built."""

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

from assay.assemble.model import REAL_VALUED, equal_blocks, finetune_option
from assay.assemble.recipe import RunLength, apply_limit, ends_in_first_epoch, run_length
from assay.assemble.trainer_options import (
    is_rank,
    num_local_processes,
    requested_devices,
    world_size,
)
from assay.callbacks.whitening import Whitening
from assay.check.values import is_lbfgs
from assay.config.serialize import is_whole, value_of
from assay.config.tree import walk
from assay.config.unread_keys import OUR_DATA
from assay.errors import ConfigError
from assay.finetune.gradual import Gradual
from assay.quoting import pluralize
from assay.targets.resolve import resolve_class
from assay.task.task import LOGIT_KINDS
from assay.task.task_of import task_of
from assay_analysis.objective import unknown_score_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import lightning as L
    from torch import nn

    from assay.finetune.interface import FineTuning


def check_fine_tuning(config: DictConfig, finetune: FineTuning | None) -> None:
    """Refuse options that would silently undo a fine-tuning."""
    if finetune is not None and config.trainer.get("sync_batchnorm"):
        raise ConfigError(
            "replaces batch norms by others that do not keep their statistics while they are frozen",
            key="trainer.sync_batchnorm",
            hint="trainer.sync_batchnorm=false, or finetune=none",
        )
    if isinstance(finetune, Gradual) and world_size(config) > 1:
        raise ConfigError(
            "several processes only exchange gradients of parameters that are trained from the start",
            key="finetune",
            hint="finetune=full (deeper layers learn more slowly), or device=cpu or gpu",
        )


def warnings_of(config: DictConfig, finetune: FineTuning | None, model: nn.Module) -> list[str]:
    """Warn about probable mistakes in fine-tuning."""
    if finetune is None:
        return []
    is_frozen = any(not parameter.requires_grad for parameter in model.parameters())
    target = str(config.model.get("_target_"))  # a custom model may start from any weights
    is_random = target.startswith(("assay.model.", "torch.", "torchvision."))
    is_random = is_random and config.model.get("weights") is None
    if not is_random or not (is_frozen or isinstance(finetune, Gradual)):
        return []
    better = "model=timm, torchvision or resnet18 take weights"
    if "weights" in config.model:
        better = "model.weights=FILE or a run directory starts from trained weights"
    return [
        f"{finetune_option(config)} keeps weights that were never trained: the model starts from random "
        f"ones; {better}"
    ]


def check_model(config: DictConfig, model: nn.Module) -> None:
    """Refuse a model with which the data's task would learn nothing."""
    if problem := task_of(config.spec.task).model_problem(model):
        raise ConfigError(problem[0], key="model", hint=problem[1])
    if config.trainer.get("compile") == "blocks" and not equal_blocks(model):
        raise ConfigError(
            "this model repeats no block", key="trainer.compile", hint="trainer.compile=true"
        )


def check_outputs(config: DictConfig, loss: nn.Module, outputs: Sequence[int]) -> None:
    """Refuse a model whose outputs do not have the shape that the loss needs."""
    task = task_of(config.spec.task)
    kind = getattr(loss, "kind", None)
    if not (kind in LOGIT_KINDS or isinstance(loss, REAL_VALUED) or task.reconstructs):
        return  # an embedding, or a custom loss, takes any width
    spec = config.spec
    expected = task.output_shape(spec, int(spec.num_outputs))
    if tuple(outputs[1:]) == expected:
        return
    hint = "let the model's last layer have ${spec.num_outputs} outputs"
    if task.reconstructs:
        hint = "model=autoencoder returns as many values as it takes"
    raise ConfigError(
        f"returns {list(outputs[1:])} values per sample; {type(loss).__name__} needs {list(expected)} for "
        f"{task.in_words(spec)}",
        key="model",
        hint=hint,
    )


def check_length(config: DictConfig) -> list[str]:
    """Refuse a run with less than one batch of something, or without a length where one is asked for."""
    length = run_length(config)
    if length.total_steps is None:
        _check_unbounded(config, length)
    if config.data.get("_target_") != OUR_DATA:
        return []  # the batches of custom data are unknown
    size = int(config.data.get("eval_batch_size") or 1) * world_size(config)
    counts = {"val": config.spec.num_val, "test": config.spec.num_test}
    batches = {"train": length.batches}
    batches |= {name: -(-count // size) for name, count in counts.items() if count}
    for name, count in batches.items():
        key = f"trainer.limit_{name}_batches"
        limit = value_of(config, key)
        if isinstance(limit, float) and limit != 0 and not apply_limit(count, limit):
            raise ConfigError(
                f"{limit:g} of {_batches(count)} is less than one batch",
                key=key,
                hint=f"{key}=1 for one batch, or {key}=1.0",
            )
    interval = value_of(config, "trainer.val_check_interval")
    in_epoch = value_of(config, "trainer.check_val_every_n_epoch") is not None
    is_validated = config.spec.num_val and config.trainer.get("limit_val_batches") != 0
    if is_validated and in_epoch and is_whole(interval) and interval > length.used_batches:
        raise ConfigError(
            f"expected at most the {_batches(length.used_batches)} of an epoch, got {interval}",
            key="trainer.val_check_interval",
            hint="trainer.val_check_interval=1.0 for once per epoch; trainer.check_val_every_n_epoch=null "
            "counts the batches of several epochs",
        )
    return list(_warn_rarely_saved(config, length))


def why_no_validation(config: DictConfig) -> tuple[str, str]:
    """Why no validation will take place, and what to type; empty where there will be one."""
    if not config.spec.num_val:
        share = value_of(config, "data.split.val")
        why = "there is no validation subset"
        if share is not None:
            why = f"{why}, with data.split.val={share}"
        return why, "data.split.val=0.1"
    if config.trainer.get("limit_val_batches") == 0:
        return "trainer.limit_val_batches=0", "trainer.limit_val_batches=1.0"
    if value_of(config, "data._target_") != OUR_DATA:
        return "", ""  # the batches of custom data are unknown
    length = run_length(config)
    first = _first_validation(config, length)
    total = length.total_batches
    if first is None or total is None or first <= total:
        return "", ""
    epochs = config.trainer.get("check_val_every_n_epoch", 1)
    by = ""
    if epochs not in (None, 1):
        by = f", by trainer.check_val_every_n_epoch={epochs}"
    why = f"the run ends after {_batches(total)}, before the first validation, which is after {first:,}{by}"
    if length.used_batches <= total and epochs is not None:
        return why, "trainer.check_val_every_n_epoch=1"
    return why, f"trainer.val_check_interval={total}"


def check_plateau(config: DictConfig) -> None:
    """Refuse a scheduler that asks for a metric before there is one."""
    node = config.get("scheduler") or {}
    monitor = node.get("monitor")
    is_plateau = str(node.get("_target_")).endswith(".ReduceLROnPlateau")
    if not is_plateau or config.data.get("_target_") != OUR_DATA:
        return
    length = run_length(config)
    frequency = int(node.get("frequency") or 1)
    an_epoch = length.used_batches
    in_steps = node.get("interval", "epoch") == "step"
    due = frequency * an_epoch
    if in_steps:  # Lightning counts the batches of each epoch anew
        stepping = range(length.accumulated, an_epoch + 1, length.accumulated)
        due = next(
            (batch for batch in (*stepping, an_epoch) if batch % frequency == 0), an_epoch + 1
        )
    if str(monitor).startswith("val/"):
        first = _first_validation(config, length)
    else:
        first = an_epoch + in_steps
    if first is None or first <= due:
        return
    epochs = -(-first // an_epoch)
    hint = f"scheduler.frequency={epochs}"
    if in_steps:
        hint = "scheduler.interval=epoch"
    raise ConfigError(
        f"{monitor} is first known after {_batches(first)}, but the scheduler needs it after {due:,}",
        key=hint.partition("=")[0],
        hint=hint,
    )


def _check_unbounded(config: DictConfig, length: RunLength) -> None:
    why = "max_time or a callback ends the run"
    keys = ["spec.total_steps"]
    instead = "trainer.max_epochs=N or trainer.max_steps=N as well"
    if not length.is_known:
        why = (
            f"the loader of {config.data.get('_target_')} does not state how many batches it has"
        )
        instead = "trainer.max_steps=N trainer.max_epochs=-1"
        keys += ["spec.steps_per_epoch"]
    for entry in walk(config):
        if entry.is_interpolation and any(key in str(entry.raw) for key in keys):
            hint = f"{instead}, or {entry.key}=NUMBER"
            if entry.key.startswith("scheduler."):
                hint += ", or scheduler=none"
            raise ConfigError(
                f"it depends on the number of steps, which is not known: {why}",
                key=entry.key,
                hint=hint,
            )


def _first_validation(config: DictConfig, length: RunLength) -> int | None:
    """After how many training batches the first validation takes place; None where time decides."""
    within = value_of(config, "trainer.val_check_interval")
    epochs = config.trainer.get("check_val_every_n_epoch", 1)
    if isinstance(within, str | dict):
        return None
    if ends_in_first_epoch(config, length):
        return length.total_batches
    first = length.used_batches
    if is_whole(within):
        first = within
    elif within is not None:
        first = max(1, int(first * within))
    if epochs is None:
        return first
    return int(epochs - 1) * length.used_batches + first


def _warn_rarely_saved(config: DictConfig, length: RunLength) -> Iterator[str]:
    bounds = {"every_n_train_steps": length.total_steps, "every_n_epochs": length.epochs}
    for name in config.get("callbacks") or {}:
        for argument, bound in bounds.items():
            key = f"callbacks.{name}.{argument}"
            unit = argument.rpartition("_")[2]
            interval = value_of(config, key)
            if is_whole(interval) and bound is not None and interval > bound:
                yield f"{key}={interval}: nothing will be saved, because the run has {bound:,} {unit}"


def _batches(count: int) -> str:
    return pluralize(count, "batch", "batches")


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
                f"got {value}, but {type(module).__name__} steps its optimizers by hand, where "
                "Lightning leaves this to the module",
                key=f"trainer.{name}",
                hint=f"leave it out, and {instead}",
            )


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
        raise ConfigError(
            f"{averaging[0]} averages the weights already, and a checkpoint holds one average",
            key=averaging[1],
            hint=f"~{averaging[1]}, or ~{averaging[0]}",
        )
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
    if is_lbfgs(config):
        hint = f"~{key}, or optimizer=adamw"
        raise ConfigError("LBFGS cannot accumulate batches", key=key, hint=hint)
    if config.trainer.get("accumulate_grad_batches", 1) != 1:
        message = "trainer.accumulate_grad_batches says how many batches are accumulated"
        hint = f"~{key}, or trainer.accumulate_grad_batches=1"
        raise ConfigError(message, key=key, hint=hint)
    for entry in walk(config):
        text = str(entry.raw) * entry.is_interpolation
        if "${spec.total_steps}" in text or "${spec.steps_per_epoch}" in text:
            message = (
                f"it changes the number of optimizer steps, which {entry.key} is computed from"
            )
            hint = "scheduler=none or scheduler=plateau, or a fixed trainer.accumulate_grad_batches=…"
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
    found = [*names["train"]]
    if not why_no_validation(config)[0]:
        found += names["val"]
    if config.spec.num_test and config.trainer.get("limit_test_batches") != 0:
        found += [f"test/{name.removeprefix('val/')}" for name in names["val"]]
    return found


def check_monitors(config: DictConfig, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse to monitor a metric that will not be logged."""
    without, instead = why_no_validation(config)
    logged = [*names["train"]]
    if not without:
        logged += names["val"]
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
        raise unknown_score_error(key, monitor, sorted(logged))


def check_checkpoint_names(config: DictConfig, names: Sequence[str] | None) -> None:
    """Refuse a `filename` that no checkpoint can have, and for the best one that of the last."""
    for key, kind in classes_in(config):
        if issubclass(kind, ModelCheckpoint):
            node = OmegaConf.select(config, key)
            _check_filename(
                f"{key}.filename", node.get("filename"), names, is_best=bool(node.get("monitor"))
            )


def _check_filename(
    key: str,
    filename: Any,
    names: Sequence[str] | None,
    *,
    is_best: bool,
) -> None:
    callback = ModelCheckpoint(dirpath="checkpoints", filename=filename)
    try:
        for _, name, _, _ in Formatter().parse(filename or ""):
            if (
                name
                and names is not None
                and not (name in (*_COUNTS, *names) or name.startswith("lr-"))
            ):
                raise unknown_score_error(key, name, [*_COUNTS, *names])
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
        raise ConfigError(
            f"{filename!r} cannot name a checkpoint: {error}",
            key=key,
            hint=f"{key}='best-{{epoch:02d}}'",
        ) from error


def monitors(config: DictConfig) -> Iterator[tuple[str, str]]:
    """Key of each node that follows a metric, and the metric."""
    for key in [*(f"callbacks.{name}" for name in config.get("callbacks") or {}), "scheduler"]:
        node = OmegaConf.select(config, key)
        if isinstance(node, DictConfig) and isinstance(monitor := node.get("monitor"), str):
            yield key, monitor
