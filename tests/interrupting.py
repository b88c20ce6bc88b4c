"""Runs that are broken off at a chosen point, and what two runs must have in common to be the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lightning as L

Hook = Literal["batch", "validation", "epoch"]
STATE = ("state_dict", "optimizer_states", "lr_schedulers", "current_model_state", "averaging_state")


class _AfterHooks(Checkpoint, ABC):
    """Is called right after the checkpoints of a point were saved."""

    @abstractmethod
    def _seen(self, trainer: L.Trainer, hook: Hook) -> None: ...

    @override
    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self._seen(trainer, "batch")

    @override
    def on_validation_end(self, trainer: L.Trainer, *_: Any) -> None:
        self._seen(trainer, "validation")

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self._seen(trainer, "epoch")


@final
class Interrupt(_AfterHooks):
    """Ends the process's training right after the checkpoints of a point were saved.

    Args:
        hook: What is counted.
        count: The one at which to end, from 1.
    """

    def __init__(self, hook: Hook, count: int) -> None:
        self._hook, self._left = hook, count

    @override
    def _seen(self, trainer: L.Trainer, hook: Hook) -> None:
        self._left -= hook == self._hook
        if self._left == 0 and hook == self._hook:
            raise SystemExit(9)


@final
class Snapshots(_AfterHooks):
    """Keeps a run's directory as it is at some points, as if the process had died right after them.

    Args:
        folder: For the copies; see `at`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: Counter[Hook] = Counter()

    def at(self, hook: Hook, count: int) -> Path:
        """The directory after the so manyth call of a hook, from 1."""
        return self._folder / f"{hook} {count}" / "run"

    @override
    def _seen(self, trainer: L.Trainer, hook: Hook) -> None:
        if trainer.sanity_checking:
            return
        self._counts[hook] += 1
        trainer.strategy.checkpoint_io.teardown()  # what is written in the background is there then
        shutil.copytree(trainer.default_root_dir, self.at(hook, self._counts[hook]))


@final
class Told(Callback):
    """Tells its own process to stop, at the beginning of a step.

    Args:
        step: Optimizer steps before it.
    """

    def __init__(self, step: int) -> None:
        self._step = step

    @override
    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self._step:
            os.kill(os.getpid(), signal.SIGTERM)


def outcome(run_dir: Path) -> dict[str, str]:
    """SHA-256 of each thing a run ends with: weights, optimizer, scheduler, rows, scores."""
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=True)
    record = json.loads((run_dir / "record.json").read_bytes())
    best = {key: value for key, value in record["best"].items() if key != "sha256"}  # its own path is in it
    found = {name: digest(checkpoint[name]) for name in STATE if name in checkpoint}
    found["metrics.csv"] = hashlib.sha256((run_dir / "metrics.csv").read_bytes()).hexdigest()
    told = {name: record[name] for name in ("status", "metrics", "matrices", "checkpoints")}
    return {**found, "record": digest(json.dumps([told, best], sort_keys=True))}


def digest(value: Any) -> str:
    """SHA-256 of all tensors and values in nested containers."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield repr((value.dtype, tuple(value.shape))).encode()
        yield np.ascontiguousarray(value.contiguous().numpy()).tobytes()
    elif isinstance(value, dict):
        for key, one in value.items():
            yield repr(key).encode()
            yield from _parts(one)
    elif isinstance(value, list | tuple):
        yield str(len(value)).encode()
        for one in value:
            yield from _parts(one)
    else:
        yield repr(value).encode()
