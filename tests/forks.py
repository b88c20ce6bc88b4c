"""Runs the command in forks of one warm process, and kills them when it is told to; see `Forks`."""

from __future__ import annotations

import json
import os
import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Self, final

import psutil
from tests import warm_process

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        return self.code == -SIGKILL


@final
class Forks:
    """A fork of the warm process, which forks again for each command, one at a time.

    A run in such a fork costs no import. What needs an interpreter of its own (its hash seed, its end) is
    started with `tests.command.ASSAY`.

    Args:
        environment: Of every fork, besides this process's own.
    """

    def __init__(self, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            warm_process.connect(theirs)
        self._socket, self._lines = ours, ours.makefile("rw", encoding="utf-8")
        self._say({**os.environ, "OMP_NUM_THREADS": "1", **environment})
        self.pid = int(self._answer()["pid"])
        """Of the process whose descendants everything is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        server = psutil.Process(self.pid)
        for process in [server, *server.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        while self._lines.readline():  # until none is left that could write
            pass
        self._lines.close()
        self._socket.close()

    def command(self, *words: str, cwd: Path, **how: Any) -> Ended:
        """Run `assay WORDS` in a fork and wait for its end; see `start`.

        Args:
            words: The command line.
            cwd: Current directory.
            how: Options of `start`.
        """
        self.start(*words, cwd=cwd, **how)
        return self.wait()

    def start(
        self,
        *words: str,
        cwd: Path,
        module: str = "assay.cli.app",
        output: Path = Path("output.txt"),
        kill_after: float | None = None,
        tmpdir: Path | None = None,
        each_checkpoint: bool = False,
        forked_children: int = 0,
        largest_file: int | None = None,
    ) -> None:
        """Run `assay WORDS` in a fork; what it prints goes to a file.

        Args:
            words: The command line.
            cwd: Current directory.
            module: Whose `main` is run.
            output: For what it prints, at the end of what is there.
            kill_after: Seconds after which SIGKILL ends it, and it alone.
            tmpdir: For temporary files.
            each_checkpoint: Write each one, however soon it is replaced.
            forked_children: Processes of assay's own that it will start, which are forks too then.
            largest_file: Bytes beyond which the system lets no file grow.
        """
        request = {
            "words": words,
            "cwd": str(cwd),
            "module": module,
            "output": str(output),
            "kill_after": kill_after,
            "tmpdir": str(tmpdir or ""),
            "each_checkpoint": each_checkpoint,
            "forked_children": forked_children,
            "largest_file": largest_file,
        }
        self._say(request)

    def wait(self) -> Ended:
        """Wait for the end of what was started."""
        return Ended(**self._answer())

    def has_ended(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def ranks(self, cwd: Path) -> dict[int, psutil.Process]:
        """The forked ranks that were told to begin, by their number.

        Args:
            cwd: Of the command.
        """
        alive = {one.pid: one for one in psutil.Process(self.pid).children(recursive=True)}
        found = {}
        for path in cwd.glob("rank*.pid"):  # an earlier command may have left one there
            text = path.read_text()
            if text and int(text) in alive:
                found[int(path.stem.removeprefix("rank"))] = alive[int(text)]
        return found

    def _say(self, what: Mapping[str, Any]) -> None:
        self._lines.write(json.dumps(what) + "\n")
        self._lines.flush()

    def _answer(self) -> Any:
        answer = self._lines.readline()
        assert answer, "the warm process is gone"
        return json.loads(answer)
