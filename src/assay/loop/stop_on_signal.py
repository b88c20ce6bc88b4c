"""A run that is told to stop ends after its step, with a checkpoint to go on from."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from assay.loop.carried_state import resumes_at_epochs_only
from assay.process import handle_signals
from assay.terminal import leave_terminal
from assay.torch_internals import default_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import lightning as L
    from torch._C._distributed_c10d import Store  # public, but not so for type checkers

_HANGUP = getattr(signal, "SIGHUP", None)
_KEY = "assay/stop"


class StoppedBySignal(BaseException):
    """The run was told to stop, and did."""

    def __init__(self, name: str) -> None:
        super().__init__(f"stopped by {name}")
        self.name = name


@final
class StopOnSignal(Checkpoint):
    """Ends a run on SIGTERM, SIGINT, SIGUSR1 or SIGHUP: finishes the step, saves a checkpoint, raises.

    A `Checkpoint` because Lightning calls those last: averages and metrics have taken in the step by then.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.received = ""
        """Name of the signal; empty as long as there was none."""
        self._saved = False
        self._last_step = -1
        self._process = 0
        self._store: Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what only this process has, as a spawned worker of a datamodule takes it."""
        return {**vars(self), "_store": None}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take the signals in this block, and give them back after it; nothing off the main thread."""
        self.received = ""
        self._saved = False
        self._process = os.getpid()
        with handle_signals(self._receive):
            yield

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        # a process that loads data: its parent tells it when to end
        if os.getpid() != self._process:
            return
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.received:
            self.received = signal.Signals(number).name
            # Not print: a signal may come in the middle of one.
            with suppress(OSError):
                os.write(
                    2, f"\n{self.received}: stopping after this step (Ctrl-C: at once)\n".encode()
                )
            if number == _HANGUP:
                leave_terminal()

    # -- training ----------------------------------------------------------------------------------------

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._last_step = -1
        self._store = _store(trainer)
        self._leave_together(trainer)

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._saved:
            raise StoppedBySignal(self.received)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if not self.received and self._store is None:
            return
        step_done = (
            batch_idx + 1
        ) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch
        if step_done and (
            self.received if self._store is None else self._agreed(trainer.global_step)
        ):
            if not resumes_at_epochs_only(trainer):
                trainer.save_checkpoint(self.path)
            self._saved = True

    def _agreed(self, step: int) -> bool:
        assert self._store is not None  # noqa: S101 - the caller looked
        if self._last_step < 0 and self._store.check([_KEY]):
            last, self.received = self._store.get(_KEY).decode().split()
            self._last_step = int(last)
        elif self._last_step < 0 and self.received:
            said = (
                self._store.compare_set(_KEY, "", f"{step + 1} {self.received}").decode().split()
            )
            self._last_step = int(said[0])
            self.received = said[1]
        return 0 <= self._last_step <= step

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave before a validation that is due after the last step; the resumed run does it."""
        if self._saved:
            raise StoppedBySignal(self.received)

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._saved = False
        # a custom trainer has other loops
        is_cut = getattr(trainer.fit_loop.epoch_loop, "is_cut", False)
        if resumes_at_epochs_only(trainer) and not is_cut:
            trainer.save_checkpoint(self.path.with_name("epoch.ckpt"))

    # -- validation on its own, test, prediction ---------------------------------------------------------

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._leave_together(trainer)

    @override
    def on_test_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        self._leave(trainer)

    @override
    def on_validation_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        if self.received and (trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING):
            self._leave(trainer)

    def _leave_together(self, trainer: L.Trainer) -> None:
        """Leave where this process or another one was told to; all of them call this at the same moment."""
        store = _store(trainer)
        if store is not None:
            if self.received:
                store.compare_set(_KEY, "", f"0 {self.received}")
            trainer.strategy.barrier()
            if store.check([_KEY]):
                raise StoppedBySignal(store.get(_KEY).decode().split()[1])
        self._leave(trainer)

    def _leave(self, trainer: L.Trainer) -> None:
        # Of several processes none leaves alone: the others would wait for it.
        if self.received and trainer.world_size == 1:
            raise StoppedBySignal(self.received)


def _store(trainer: L.Trainer) -> Store | None:
    """What the processes of a job share; None where there is only one."""
    if trainer.world_size == 1 or not torch.distributed.is_initialized():
        return None
    return default_store()
