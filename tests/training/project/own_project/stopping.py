"""The end of a process, at a chosen step."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Checkpoint


class Stopping(Checkpoint):
    """Stops after a batch, once the checkpoints of that step are saved: by Ctrl-C, or by an exit.

    Args:
        count: Batches until then, of this process; None for never.
        exit_code: Of the exit; None for Ctrl-C.
    """

    def __init__(self, count: int | None = None, exit_code: int | None = None) -> None:
        self._left, self._exit_code = count, exit_code

    def on_train_batch_end(self, *_: Any) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt if self._exit_code is None else SystemExit(self._exit_code)
