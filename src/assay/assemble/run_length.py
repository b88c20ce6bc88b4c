"""How long a run will be, as Lightning will count it, and the recipe that follows the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import torch
from msgspec import Meta
from omegaconf import OmegaConf

from assay.assemble.trainer_options import is_unbounded, may_end_early, world_size
from assay.compose.recipe import RECIPE, is_chosen
from assay.config.serialize import is_whole, value_of
from assay.config.tree import walk
from assay.config.unread_keys import OUR_DATA
from assay.data.core.batch_order import choose_batch_size, should_drop_last
from assay.errors import ConfigError
from assay.quoting import pluralize
from assay.targets.annotation import check_value
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omegaconf import DictConfig

    from assay.data.core.spec import Spec


_LIGHTNING_MAX_EPOCHS = 1000
_OF_TOTAL = "spec.total_steps"
_OF_EPOCH = "spec.steps_per_epoch"


@final
@dataclass(frozen=True)
class RunLength:
    """Batches, epochs and steps of a run."""

    batches: int
    used_batches: int
    accumulated: int
    epochs: int | None
    total_steps: int | None

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch; the last one may have fewer batches."""
        return max(1, -(-self.used_batches // self.accumulated))

    @property
    def is_known(self) -> bool:
        """Whether the number of batches is known."""
        return self.used_batches > 0

    @property
    def total_batches(self) -> int | None:
        """Training batches of the run; None for no bound."""
        if self.total_steps is None:
            return None
        epochs, steps = divmod(self.total_steps, self.steps_per_epoch)
        return epochs * self.used_batches + steps * self.accumulated

    def batch_of(self, step: int) -> int:
        """How many batches of its epoch are done after an optimizer step."""
        return min(((step - 1) % self.steps_per_epoch + 1) * self.accumulated, self.used_batches)


def run_length(config: DictConfig, num_train: int) -> RunLength:
    """Count a job's batches and steps."""
    trainer = config.trainer
    batches = batches_of(config, num_train)
    used = _apply_limit(batches, trainer.get("limit_train_batches"))
    accumulated = int(trainer.get("accumulate_grad_batches") or 1)
    epochs = trainer.get("max_epochs")
    most = trainer.get("max_steps", -1)
    if is_unbounded(trainer) or epochs == -1 or (epochs is None and most is not None and most >= 0):
        epochs = None
    elif epochs is None:
        epochs = _LIGHTNING_MAX_EPOCHS
    in_epochs = [] if epochs is None else [max(1, -(-used // accumulated)) * epochs]
    in_steps = [most] if most is not None and most >= 0 else []
    total = max(1, min(in_epochs + in_steps)) if in_epochs or in_steps else None
    if epochs is not None and not used and config.data.get("_target_") != OUR_DATA:
        total = None
    return RunLength(batches, used, accumulated, epochs, total)


def batches_of(config: DictConfig, num_train: int) -> int:
    """Training batches of an epoch and process; 0 where the data does not tell."""
    data = config.data
    if data.get("_target_") != OUR_DATA:
        stated = OmegaConf.select(config, "spec.train_batches")
        limit = config.trainer.get("limit_train_batches")
        return int(stated or (limit if is_whole(limit) else 0))  # Lightning takes a limit for the number, too
    batch_size = int(data.get("batch_size", 1))
    processes = world_size(config)
    drops = should_drop_last(data.get("drop_last", "auto"), num_train, batch_size, processes)
    size = batch_size * processes
    return num_train // size if drops else -(-num_train // size)


def _apply_limit(batches: int, limit: Any) -> int:
    """Apply Lightning's limit to a number of batches: a fraction up to 1.0, or a count."""
    if limit is None:
        return batches
    share = isinstance(limit, float) and limit <= 1
    return int(batches * limit) if share else min(batches, int(limit))


def check_length(config: DictConfig) -> list[str]:
    """Refuse a run with less than one batch of something, or without a length where one is asked for."""
    length = run_length(config, config.spec.num_train)
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
        if isinstance(limit, float) and limit != 0 and not _apply_limit(count, limit):
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
        return why if share is None else f"{why}, with data.split.val={share}", "data.split.val=0.1"
    if config.trainer.get("limit_val_batches") == 0:
        return "trainer.limit_val_batches=0", "trainer.limit_val_batches=1.0"
    if value_of(config, "data._target_") != OUR_DATA:
        return "", ""  # the batches of custom data are unknown
    length = run_length(config, config.spec.num_train)
    first = _first_validation(config, length)
    total = length.total_batches
    if first is None or total is None or first <= total:
        return "", ""
    epochs = config.trainer.get("check_val_every_n_epoch", 1)
    by = "" if epochs in (None, 1) else f", by trainer.check_val_every_n_epoch={epochs}"
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
    length = run_length(config, config.spec.num_train)
    frequency = int(node.get("frequency") or 1)
    an_epoch = length.used_batches
    in_steps = node.get("interval", "epoch") == "step"
    due = frequency * an_epoch
    if in_steps:  # Lightning counts the batches of each epoch anew
        stepping = range(length.accumulated, an_epoch + 1, length.accumulated)
        due = next((batch for batch in (*stepping, an_epoch) if batch % frequency == 0), an_epoch + 1)
    first = _first_validation(config, length) if str(monitor).startswith("val/") else an_epoch + in_steps
    if first is None or first <= due:
        return
    epochs = -(-first // an_epoch)
    raise ConfigError(
        f"{monitor} is first known after {_batches(first)}, but the scheduler needs it after {due:,}",
        key="scheduler.interval" if in_steps else "scheduler.frequency",
        hint="scheduler.interval=epoch" if in_steps else f"scheduler.frequency={epochs}",
    )


def _check_unbounded(config: DictConfig, length: RunLength) -> None:
    why = "max_time or a callback ends the run"
    keys = [_OF_TOTAL]
    instead = "trainer.max_epochs=N or trainer.max_steps=N as well"
    if not length.is_known:
        why = f"the loader of {config.data.get('_target_')} does not state how many batches it has"
        instead = "trainer.max_steps=N trainer.max_epochs=-1"
        keys = [_OF_TOTAL, _OF_EPOCH]
    for entry in walk(config):
        if entry.is_interpolation and any(key in str(entry.raw) for key in keys):
            hint = f"{instead}, or {entry.key}=NUMBER"
            hint += ", or scheduler=none" if entry.key.startswith("scheduler.") else ""
            message = f"it depends on the number of steps, which is not known: {why}"
            raise ConfigError(message, key=entry.key, hint=hint)


def _first_validation(config: DictConfig, length: RunLength) -> int | None:
    """After how many training batches the first validation takes place; None where time decides."""
    within = value_of(config, "trainer.val_check_interval")
    epochs = config.trainer.get("check_val_every_n_epoch", 1)
    if isinstance(within, str | dict):
        return None
    if _ends_in_first_epoch(config, length):
        return length.total_batches
    if not is_whole(within):
        within = length.used_batches if within is None else max(1, int(length.used_batches * within))
    return within if epochs is None else (epochs - 1) * length.used_batches + within


def _ends_in_first_epoch(config: DictConfig, length: RunLength) -> bool:
    """Whether the run is over before the end of the epoch after which it would be validated first."""
    total = length.total_batches
    interval = value_of(config, "trainer.val_check_interval")
    at_end = interval is None or (isinstance(interval, float) and interval == 1.0)
    every_epoch = config.trainer.get("check_val_every_n_epoch", 1) == 1
    return at_end and every_epoch and total is not None and total < length.used_batches


def early_validation(config: DictConfig) -> dict[str, int]:
    """The trainer's argument with which a run shorter than an epoch is validated at its end."""
    spec = config.get("spec") or {}
    if not (spec.get("num_train") or spec.get("train_batches")):
        return {}
    length = run_length(config, spec.get("num_train") or 0)
    if not _ends_in_first_epoch(config, length) or length.total_batches is None:
        return {}
    return {"val_check_interval": length.total_batches}


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


_DEFAULTS = {"steps": 3000, "epochs": 15, "lr": 0.001, "weight_decay": 0.01}
_MOST_EPOCHS = 200
_CHANNELS_LAST_FROM = 16
"""Pixels of a side, from which convolutions on a CPU are faster where channels lie last in memory."""
_FEW_PICTURES = 5000
_FEW_STEPS = 300
_SMALL_PICTURE = 64
"""Pixels of a side, below which what networks learnt of larger pictures helps little."""
_SCALES = {"SGD": 30.0, "Adagrad": 10.0}
"""Optimizers whose learning rates are not those of Adam."""


def add_recipe(config: DictConfig, spec: Spec) -> None:
    """Write the values that `auto` stands for into node `spec`."""
    _balance_loss(config)
    steps, least = (_number(config, name, Annotated[int, Meta(ge=1)]) for name in ("steps", "epochs"))
    lr = _number(config, "lr", Annotated[float, Meta(gt=0, le=100)])
    weight_decay = _number(config, "weight_decay", Annotated[float, Meta(ge=0, le=100)])
    suited = choose_batch_size(spec.num_train, task_of(spec.task))
    config.spec.batch_size = _share_of_rank(config) or suited
    batches = batches_of(config, spec.num_train)
    accumulated = int(config.trainer.get("accumulate_grad_batches") or 1)
    an_epoch = max(1, -(-batches // accumulated))
    epochs = max(least, min(_MOST_EPOCHS, -(-steps // an_epoch)))
    if not batches or (most := config.trainer.get("max_steps", -1)) is None:
        epochs = int(RECIPE["trainer.max_epochs"][1])
    elif most >= 0:
        epochs = -1  # the steps that are typed end the run
    if epochs > 0 and is_whole(floor := config.trainer.get("min_epochs")):
        epochs = max(epochs, floor)
    config.spec.max_epochs = epochs
    on_cpu = value_of(config, "trainer.accelerator") == "cpu" or not torch.accelerator.is_available()
    large = len(spec.input_shape) == 3 and min(spec.input_shape[1:]) >= _CHANNELS_LAST_FROM
    config.spec.channels_last = bool(value_of(config, "recipe.channels_last")) and large and on_cpu
    size = value_of(config, "data.batch_size") if config.data.get("_target_") == OUR_DATA else None
    together = (size if is_whole(size) else config.spec.batch_size) * world_size(config) * accumulated
    by_batch = min(4.0, max(0.25, math.sqrt(together / suited)))
    by_class = _SCALES.get(str(value_of(config, "optimizer._target_")).rpartition(".")[2], 1.0)
    trains_all = str(value_of(config, "finetune._target_") or "Gradual").endswith("Gradual")
    by_weights = 0.1 if value_of(config, "model.weights") and trains_all else 1.0
    config.spec.lr = float(f"{lr * by_batch * by_class * by_weights:.2g}")
    config.spec.weight_decay = float(weight_decay)
    trained = run_length(config, spec.num_train).epochs
    config.spec.patience = max(10, -(-(trained or 0) // 4))


def _share_of_rank(config: DictConfig) -> int:
    """Samples of a process in a batch that all have in common; 0 where there is none."""
    total = value_of(config, "data.global_batch_size")
    if config.data.get("_target_") != OUR_DATA or not is_whole(total):
        return 0
    if total % (processes := world_size(config)):
        raise ConfigError(
            f"expected a multiple of the {processes} processes, got {total}",
            key="data.global_batch_size",
            hint=f"data.global_batch_size={-(-total // processes) * processes}",
        )
    return int(total) // processes


def _balance_loss(config: DictConfig) -> None:
    """Have rare classes count more in the loss, where `data.balance=weights` asks for it."""
    if config.data.get("_target_") != OUR_DATA or config.data.get("balance") != "weights":
        return
    loss = config.get("loss") or {}
    name = next((name for name in ("class_weight", "pos_weight") if name in loss), None)
    if name is None:
        message = f"{str(loss.get('_target_')).rpartition('.')[2]} does not take class weights"
        raise ConfigError(message, key="data.balance", hint="data.balance=sampler, or loss=cross_entropy")
    if loss[name] is None:
        loss[name] = "balanced"


def _number(config: DictConfig, name: str, kind: Any) -> float:
    value = value_of(config, f"recipe.{name}")
    if value is None:  # a model of the user's own
        return _DEFAULTS[name]
    check_value(f"model.recipe.{name}", value, kind)
    number: float = value
    return number


def notes_on_length(config: DictConfig) -> list[str]:
    """Notes on what the recipe has chosen, and on runs that are too short, one sentence each."""
    if "spec" not in config or config.spec.get("batch_size") is None:
        return []
    length = run_length(config, config.spec.num_train)
    total = length.total_steps
    chosen = [key for key in RECIPE if is_chosen(config, key)]
    notes = []
    parts = []
    if "trainer.max_epochs" in chosen and total is not None and length.is_known and length.epochs:
        at_most = "at most " if may_end_early(config) else ""
        parts.append(
            f"{at_most}{total:,} steps: {pluralize(length.epochs, 'epoch')} of {length.steps_per_epoch:,}"
        )
    named = [key for key in chosen if key in ("data.batch_size", "optimizer.lr", "optimizer.weight_decay")]
    parts += [f"{key} {value_of(config, key):g}" for key in named]
    if parts:
        notes.append(f"{', '.join(parts)}, chosen for {config.spec.num_train:,} training samples")
    is_limited = value_of(config, "trainer.limit_train_batches") not in (None, 1.0)  # as of `debug=small`
    if total is not None and total < _FEW_STEPS and length.is_known and not is_limited:
        notes.append(
            f"only {pluralize(total, 'optimizer step')} in all, too few for most models; "
            "trainer.max_epochs=auto takes as many as suit"
        )
    return notes


def notes_on_pictures(config: DictConfig) -> list[str]:
    """How pictures are changed in training, and that a pretrained network would help; a sentence each."""
    source = value_of(config, "data.source._target_")
    if source != "assay.data.image.image_folder.ImageFolder" or "spec" not in config:
        return []
    notes = []
    if str(value_of(config, "augment._target_")).endswith(".FlipCrop") and value_of(config, "augment.flip"):
        notes.append(
            "in training, pictures are shifted and half of them are mirrored; augment.flip=0 where left and "
            "right tell classes apart, augment=none for neither"
        )
    few = task_of(config.spec.task).by_class and config.spec.num_train < _FEW_PICTURES
    large = max(config.spec.input_shape[1:]) >= _SMALL_PICTURE
    if few and large and value_of(config, "model.weights") is None:
        downloaded = list((Path(torch.hub.get_dir()) / "checkpoints").glob("resnet18-*.pth"))
        where = "its weights are on this disk" if downloaded else "45 MB are downloaded once"
        notes.append(
            f"a pretrained network often does better on {config.spec.num_train:,} pictures ({where}): "
            "model=torchvision model.name=resnet18 model.weights=DEFAULT finetune=full"
        )
    return notes
