"""Runs the command in forks of one warm process, and kills them when it is told to.

Started as a program of its own, it imports what a run imports, computes nothing (so that a fork finds no
thread and no lock), and forks for each request; a run then costs no import. See `Forks`.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final


@final
@dataclass(frozen=True)
class Ended:
    """How a fork ended.

    Attributes:
        code: Exit code; minus the signal's number where one killed it.
        seconds: It lived.
    """

    code: int
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


@final
class Forks:
    """The warm process, from the test's side.

    Args:
        environment: Of every fork, besides this process's own.
    """

    def __init__(self, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def command(
        self,
        *words: str,
        cwd: Path,
        kill_after: float | None = None,
        tmpdir: Path | None = None,
        each_checkpoint: bool = False,
    ) -> Ended:
        """Run `assay WORDS` in a fork; what it prints goes to `output.txt` in its directory.

        Args:
            words: The command line.
            cwd: Current directory.
            kill_after: Seconds after which SIGKILL ends it, and it alone.
            tmpdir: For temporary files.
            each_checkpoint: Write each one, however soon it is replaced.
        """
        self.start(*words, cwd=cwd, kill_after=kill_after, tmpdir=tmpdir, each_checkpoint=each_checkpoint)
        return self.wait()

    def start(
        self,
        *words: str,
        cwd: Path,
        kill_after: float | None = None,
        tmpdir: Path | None = None,
        each_checkpoint: bool = False,
    ) -> None:
        """As `command`, without waiting for its end.

        Args:
            words: As for `command`.
            cwd: As for `command`.
            kill_after: As for `command`.
            tmpdir: As for `command`.
            each_checkpoint: As for `command`.
        """
        request = {
            "words": words,
            "cwd": str(cwd),
            "kill_after": kill_after,
            "tmpdir": str(tmpdir or ""),
            "each_checkpoint": each_checkpoint,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def wait(self) -> Ended:
        """Wait for the end of what was started."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the warm process is gone"
        return Ended(**json.loads(answer))

    @property
    def pid(self) -> int:
        """Of the warm process, whose descendants everything is."""
        return self._process.pid


def _import_like_a_run() -> None:
    """Import what a run imports, as a first fork found out."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        with suppress(BaseException):
            os.chdir("/")
            _quiet(Path(os.devnull))
            _command(["check", "data=digits", "model=mlp", "device=cpu"])
        with suppress(BaseException):
            os.write(writer, json.dumps(sorted(sys.modules)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        names = json.loads(pipe.read())
    os.waitpid(process, 0)
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):
                importlib.import_module(name)


def _command(words: list[str]) -> None:
    from assay.cli.app import main

    sys.argv = ["assay", *words]
    main()


def _quiet(output: Path) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(descriptor, number)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)


def _fork(request: dict[str, Any]) -> Ended:
    from assay.checkpoint import checkpoint_file

    start = time.monotonic()
    process = os.fork()
    if not process:
        code: Any = 1
        try:
            os.chdir(request["cwd"])
            _quiet(Path("output.txt"))
            if request["tmpdir"]:
                os.environ["TMPDIR"] = request["tmpdir"]
            if request["each_checkpoint"]:
                checkpoint_file._SMALL = 0  # as large ones, none is left out
            _command(request["words"])
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            with suppress(Exception):
                sys.stdout.flush()
            os._exit(code if isinstance(code, int) else 1)
    if request["kill_after"] is not None:
        watched = os.pidfd_open(process)
        if not select.select([watched], [], [], request["kill_after"])[0]:
            os.kill(process, signal.SIGKILL)
        os.close(watched)
    _, status = os.waitpid(process, 0)
    return Ended(os.waitstatus_to_exitcode(status), time.monotonic() - start)


def main() -> None:
    """Answer each request, a line of JSON, with a line of JSON."""
    import lightning  # noqa: F401
    import torch

    torch.set_num_threads(1)
    _import_like_a_run()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        ended = _fork(json.loads(line))
        answers.write(json.dumps({"code": ended.code, "seconds": ended.seconds}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
