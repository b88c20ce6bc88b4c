"""Refuse parts, lengths and schedules of a run that do not go together once they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.assemble.model import REAL_VALUED, equal_blocks, finetune_option
from assay.assemble.recipe import RunLength, apply_limit, ends_in_first_epoch, run_length
from assay.assemble.trainer_options import world_size
from assay.config.serialize import is_whole, value_of
from assay.config.tree import walk
from assay.config.unread_keys import OUR_DATA
from assay.errors import ConfigError
from assay.finetune.gradual import Gradual
from assay.quoting import pluralize
from assay.task.task import LOGIT_KINDS
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omegaconf import DictConfig
    from torch import nn

    from assay.finetune.interface import FineTuning


def check_fine_tuning(config: DictConfig, finetune: FineTuning | None) -> None:
    """Refuse options that would silently undo a fine-tuning."""
    message = ""
    if finetune is not None and config.trainer.get("sync_batchnorm"):
        message = "replaces batch norms by others that do not keep their statistics while they are frozen"
        key = "trainer.sync_batchnorm"
        hint = "trainer.sync_batchnorm=false, or finetune=none"
    elif isinstance(finetune, Gradual) and world_size(config) > 1:
        message = "several processes only exchange gradients of parameters that are trained from the start"
        key = "finetune"
        hint = "finetune=full (deeper layers learn more slowly), or device=cpu or gpu"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def warnings_of(config: DictConfig, finetune: FineTuning | None, model: nn.Module) -> list[str]:
    """Warn about probable mistakes in fine-tuning."""
    messages: list[str] = []
    if finetune is None:
        return messages
    option = finetune_option(config)
    parameters = list(model.parameters())
    trained = [p for p in parameters if p.requires_grad]
    target = str(config.model.get("_target_"))  # a custom model may start from any weights
    is_random = target.startswith(("assay.model.", "torch.", "torchvision."))
    is_random = is_random and config.model.get("weights") is None
    if is_random and (len(trained) < len(parameters) or isinstance(finetune, Gradual)):
        better = "model=timm, torchvision or resnet18 take weights"
        if "weights" in config.model:
            better = "model.weights=FILE or a run directory starts from trained weights"
        messages.append(
            f"{option} keeps weights that were never trained: the model starts from random ones; {better}"
        )
    return messages


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
    suggestion = hint
    if task.reconstructs:
        suggestion = "model=autoencoder returns as many values as it takes"
    raise ConfigError(
        f"returns {list(outputs[1:])} values per sample; {type(loss).__name__} needs {list(expected)} for "
        f"{task.in_words(spec)}",
        key="model",
        hint=suggestion,
    )


_OF_TOTAL = "spec.total_steps"
_OF_EPOCH = "spec.steps_per_epoch"


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
            message = f"{limit:g} of {_batches(count)} is less than one batch"
            raise ConfigError(message, key=key, hint=f"{key}=1 for one batch, or {key}=1.0")
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
        return (
            why if share is None else f"{why}, with data.split.val={share}",
            "data.split.val=0.1",
        )
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
    key = "scheduler.frequency"
    if in_steps:
        key = "scheduler.interval"
    if in_steps:
        suggestion = "scheduler.interval=epoch"
    else:
        suggestion = f"scheduler.frequency={epochs}"
    raise ConfigError(
        f"{monitor} is first known after {_batches(first)}, but the scheduler needs it after {due:,}",
        key=key,
        hint=suggestion,
    )


def _check_unbounded(config: DictConfig, length: RunLength) -> None:
    why = "max_time or a callback ends the run"
    keys = [_OF_TOTAL]
    instead = "trainer.max_epochs=N or trainer.max_steps=N as well"
    if not length.is_known:
        why = (
            f"the loader of {config.data.get('_target_')} does not state how many batches it has"
        )
        instead = "trainer.max_steps=N trainer.max_epochs=-1"
        keys = [_OF_TOTAL, _OF_EPOCH]
    for entry in walk(config):
        if entry.is_interpolation and any(key in str(entry.raw) for key in keys):
            hint = f"{instead}, or {entry.key}=NUMBER"
            if entry.key.startswith("scheduler."):
                hint += ", or scheduler=none"
            message = f"it depends on the number of steps, which is not known: {why}"
            raise ConfigError(message, key=entry.key, hint=hint)


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
