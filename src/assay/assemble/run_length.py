"""How long a run will be, as Lightning will count it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from assay.assemble.trainer_options import is_unbounded, world_size
from assay.config.omegaconf_internals import kept
from assay.config.serialize import is_whole, value_of
from assay.config.tree import walk
from assay.config.unread_keys import OUR_DATA
from assay.data.core.batch_order import should_drop_last
from assay.errors import ConfigError
from assay.quoting import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omegaconf import DictConfig


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
        used = _apply_limit(batches, trainer.get("limit_train_batches"))
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
        return int(stated or (limit if is_whole(limit) else 0))
    processes = world_size(config)
    drops = should_drop_last(
        config.data.get("drop_last", "auto"), num_train, batch_size, processes
    )
    size = batch_size * processes
    if drops:
        return num_train // size
    return -(-num_train // size)


def _apply_limit(batches: int, limit: Any) -> int:
    """Apply Lightning's limit to a number of batches: a fraction up to 1.0, or a count."""
    if limit is None:
        return batches
    share = isinstance(limit, float) and limit <= 1
    if share:
        return int(batches * limit)
    return min(batches, int(limit))


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
    if _ends_in_first_epoch(config, length):
        return length.total_batches
    first = length.used_batches
    if is_whole(within):
        first = within
    elif within is not None:
        first = max(1, int(first * within))
    if epochs is None:
        return first
    return int(epochs - 1) * length.used_batches + first


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
    length = run_length(config)
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
