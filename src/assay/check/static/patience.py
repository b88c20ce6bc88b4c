"""Does a run look often enough at a metric for what waits for it to stand still?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch.callbacks import EarlyStopping
from omegaconf import DictConfig, OmegaConf

from assay.build.trainer.run_length import num_validations, run_length
from assay.check.static.callbacks import kinds
from assay.config.value import is_whole, value_of
from assay.quoting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.build.trainer.run_length import RunLength

_OF_LIGHTNING, _OF_TORCH = 3, 10
"""What `patience` is where a config does not say it."""


def out_of_reach(config: DictConfig) -> Iterator[str]:
    """What waits longer for a metric to improve than the run looks at it, in words."""
    length = run_length(config, config.spec.num_train)
    if not length.is_known or length.total_batches is None:
        return
    for key, kind in kinds(config, "callbacks"):
        if issubclass(kind, EarlyStopping):
            looks = _early_stopping_looks(config, key, length)
            yield from _said(config, key, looks, _OF_LIGHTNING, "it cannot stop the run", least=1)
    if str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau"):
        looks = _plateau_looks(config, length)
        yield from _said(
            config, "scheduler", looks, _OF_TORCH, "the learning rate cannot be lowered", least=2
        )


def _said(
    config: DictConfig, key: str, looks: int | None, patience: int, so: str, *, least: int
) -> Iterator[str]:
    """The first look sets what is best; so many more have to be no better."""
    given = value_of(config, f"{key}.patience")
    patience = given if is_whole(given) else patience
    if looks is not None and looks < max(1, patience) + least:
        monitor = value_of(config, f"{key}.monitor")
        yield f"{key}.patience={patience}: {so}, which looks at {monitor} {counted(looks, 'time')} in all"


def _early_stopping_looks(config: DictConfig, key: str, length: RunLength) -> int | None:
    """At the end of an epoch where each is validated once, else after each validation."""
    at_epochs = value_of(config, f"{key}.check_on_train_epoch_end")
    if at_epochs is None:
        once = value_of(config, "trainer.val_check_interval") in (None, 1.0)
        at_epochs = once and OmegaConf.select(config, "trainer.check_val_every_n_epoch", default=1) == 1
    if not at_epochs:
        return num_validations(config, length)
    return -(-(length.total_batches or 0) // length.used_batches)


def _plateau_looks(config: DictConfig, length: RunLength) -> int:
    """Each time that Lightning steps it."""
    total = length.total_batches or 0
    every = int(value_of(config, "scheduler.frequency") or 1)
    if value_of(config, "scheduler.interval") != "step":
        return -(-total // length.used_batches) // every
    steps = range(1, (length.total_steps or 0) + 1)
    return sum(length.batch_of(step) % every == 0 for step in steps)
