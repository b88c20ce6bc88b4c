"""Notes what training changes in custom modules and callbacks but no checkpoint holds."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, final

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torchmetrics import Metric
from typing_extensions import override

from assay.errors import is_users_class

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("assay.notes")


@final
class UnsavedState(Callback):
    """Compares numbers, lengths of lists and generators at three batches: two, and one of the next epoch."""

    def __init__(self) -> None:
        self._before: dict[str, str] | None = None
        self._epoch = 0
        self._is_compared = False
        self._is_done = False

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._is_done or (self._is_compared and trainer.current_epoch == self._epoch):
            return
        now = {
            f"{type(owner).__name__}.{name}": text
            for owner in _owners(trainer)
            for name, value in vars(owner).items()
            if name not in _INTERNAL and (text := _describe(value))
        }
        if self._before is None:
            self._before = now
            self._epoch = trainer.current_epoch
            return
        self._is_compared = True
        changed = [name for name, text in self._before.items() if now.get(name, text) != text]
        self._is_done = bool(changed) or trainer.current_epoch != self._epoch
        if changed:
            log.warning(
                "note: training changes %s, which no checkpoint holds: a resumed run may differ from an "
                "uninterrupted one (kept are buffers, get_extra_state and, of a callback, state_dict)",
                ", ".join(changed),
            )


_INTERNAL = frozenset(vars(L.LightningModule()))


def _owners(trainer: L.Trainer) -> Iterator[Any]:
    """Custom modules and callbacks that save no state of their own."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    saves = ("get_extra_state", "on_save_checkpoint", "state_dict")
    for owner in (*trainer.lightning_module.modules(), *callbacks):
        kind = type(owner)
        plain = next(
            one for one in (L.LightningModule, nn.Module, Callback) if isinstance(owner, one)
        )
        if isinstance(owner, Metric) or not is_users_class(kind):
            continue
        if all(getattr(kind, name, None) is getattr(plain, name, None) for name in saves):
            yield owner


def _describe(value: Any) -> str:
    """A number, the length of a container or the state of a generator; empty for anything else."""
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | dict | set):
        return f"length {len(value)}"
    if isinstance(value, torch.Generator):
        return repr(value.get_state().tolist())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, random.Random):
        return repr(value.getstate())
    return ""
