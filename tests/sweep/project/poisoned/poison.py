"""What a job may do to itself, to its launcher and to others."""

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, final

import torch
from lightning.pytorch.callbacks import Callback

CHUNK = 1 << 26
MOST = 4 << 30


@final
class Poison(Callback):
    """Does something bad at the start of a training batch.

    Args:
        kind: What; see `_do`.
        batch: Counted from 0 since this process began.
        times: Attempts in which it does; None for all of them.
        count: File in which these are counted; by default one beside the run directory.
    """

    def __init__(
        self, kind: str | float = "none", batch: int = 2, times: int | None = None, count: str | None = None
    ) -> None:
        self.kind = str(kind)  # `kind=nan` is a number to Hydra
        self.batch, self.times, self.count = batch, times, count
        self.seen = 0

    def on_train_batch_start(self, trainer: Any, _: Any, batch: Any, __: int) -> None:
        self.seen += 1
        if self.seen - 1 == self.batch and self._is_due(
            Path(self.count or f"{trainer.default_root_dir}.poisoned")
        ):
            self._do(batch, Path(trainer.default_root_dir))

    def _is_due(self, count: Path) -> bool:
        if self.times is None:
            return True
        done = len(count.read_text()) if count.is_file() else 0
        count.write_text("x" * (done + 1))
        return done < self.times

    def _do(self, batch: Any, run_dir: Path) -> None:  # noqa: PLR0912 - one case a kind
        match self.kind:
            case "none":
                pass
            case "exception":
                raise ValueError("this is poison")
            case "connection":
                raise ConnectionResetError("the other side is gone")
            case "segfault":
                ctypes.string_at(0)
            case "sigkill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "sigkill_once_saved":
                while not (run_dir / "checkpoints" / "last.ckpt").is_file():
                    time.sleep(0.01)  # another thread writes
                os.kill(os.getpid(), signal.SIGKILL)
            case "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            case "memory":
                held: list[Any] = []
                while sum(one.numel() for one in held) * 4 < MOST:
                    held.append(torch.ones(CHUNK // 4))
            case "hang":
                while True:
                    time.sleep(1)
            case "wait":
                _wait(run_dir)
            case "nan":
                batch[0].fill_(math.nan)
            case "exit":
                os._exit(3)
            case "close":
                os.closerange(0, 4096)
            case "children":
                _leave_children()
                os.kill(os.getpid(), signal.SIGKILL)
            case other:
                raise ValueError(f"there is no poison {other!r}")


def _wait(run_dir: Path) -> None:
    """Until there is a file beside the sweep, or the job is told to stop, which it is then."""
    told: list[int] = []
    before: Any = signal.getsignal(signal.SIGTERM)

    def handler(number: int, frame: Any) -> None:
        told.append(number)
        before(number, frame)

    signal.signal(signal.SIGTERM, handler)
    while not told and not Path(f"{run_dir.parent}.go").exists():
        time.sleep(0.01)
    signal.signal(signal.SIGTERM, before)


def _leave_children() -> None:
    """A program in a session of its own, and a forked process whose parent is gone; both sleep for long."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(f"pids-{os.getpid()}").write_text(str(program.pid))
    if os.fork() == 0:
        forked = os.fork()
        if forked:
            with Path(f"pids-{os.getppid()}").open("a") as file:
                file.write(f" {forked}")
            os._exit(0)
        time.sleep(600)
        os._exit(0)
    os.wait()
