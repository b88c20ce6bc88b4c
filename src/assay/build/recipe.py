"""The recipe that follows the data: batch size, length, learning rate, weight decay and patience."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import torch
from msgspec import Meta

from assay.build.run_length import batches_of, run_length
from assay.build.trainer_options import may_end_early, world_size
from assay.compose.recipe import RECIPE, is_chosen
from assay.config.serialize import is_whole, value_of
from assay.config.unread_keys import OUR_DATA
from assay.data.batch_order import choose_batch_size
from assay.errors import ConfigError
from assay.quoting import pluralize
from assay.targets.annotation import check_value
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from assay.data.spec import Spec

_DEFAULTS: Final = {"steps": 3000, "epochs": 15, "lr": 0.001, "weight_decay": 0.01}
_MOST_EPOCHS: Final = 200
_FEW_STEPS: Final = 300
_CHANNELS_LAST_FROM: Final = 16
"""Pixels of a side, from which convolutions on a CPU are faster where channels lie last in memory."""
_FEW_PICTURES: Final = 5000
_SMALL_PICTURE: Final = 64
"""Pixels of a side, below which what networks learnt of larger pictures helps little."""
_SCALES: Final = {"SGD": 30.0, "Adagrad": 10.0}
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
    notes, parts = [], []
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
    if source != "assay.data.image_folder.ImageFolder" or "spec" not in config:
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
