"""Everything said in a run, in its `log.txt`."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING

from assay.files.symlinks import open_append
from assay.record.secrets import redact
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "log.txt"


def log_candidates(run_log: Path | None, printed: Path | None, *, died: bool) -> list[Path]:
    """Where the last words of a job may stand, the likelier place first."""
    return [
        path for path in ((printed, run_log) if died else (run_log, printed)) if path is not None
    ]


class _Formatter(logging.Formatter):
    """UTC; no secrets, no control characters: here, and in no filter, because only here is the traceback."""

    converter = time.gmtime  # type: ignore[assignment]  # the stub's own type is narrower

    def format(self, record: logging.LogRecord) -> str:
        return printable(redact(super().format(record)))


class _Handler(logging.StreamHandler[IO[str]]):
    """Says once that nothing can be written, and lets the run itself go on or end."""

    def __init__(self, path: Path, stream: IO[str]) -> None:
        super().__init__(stream)
        self._path = path
        self._refused = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base class's own name
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._refused:
            self._refused = True
            sys.stderr.write(f"warning: {self._path} cannot be written: {error.strerror}\n")

    def close(self) -> None:
        with suppress(OSError):  # what is left in the buffer, on a full disk
            self.stream.close()
        super().close()


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what is logged, and Python's warnings, to a file; what the terminal shows stays as it was."""
    stream = os.fdopen(open_append(path), "a", encoding="utf-8", errors="backslashreplace")
    handler = _Handler(path, stream)
    root = logging.getLogger()
    handler.setFormatter(
        _Formatter(
            "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
    )
    with ExitStack() as undo:
        undo.callback(handler.close)
        if root.level > logging.INFO:
            for shown in [one for one in root.handlers if one.level < root.level]:
                undo.callback(shown.setLevel, shown.level)
                shown.setLevel(root.level)
            undo.callback(root.setLevel, root.level)
            root.setLevel(logging.INFO)
        show = warnings.showwarning
        terminal = logging.lastResort
        logging.captureWarnings(capture=True)
        if warnings.showwarning is not show:
            undo.callback(logging.captureWarnings, capture=False)
            # where no other handler would show warnings
            if terminal is not None and not root.handlers:
                logging.getLogger("py.warnings").addHandler(terminal)
                undo.callback(logging.getLogger("py.warnings").removeHandler, terminal)
        for logger in (root, *logging.Logger.manager.loggerDict.values()):
            # Lightning's hand nothing on to the root, if no logging was set up before its import.
            if isinstance(logger, logging.Logger) and (logger is root or not logger.propagate):
                logger.addHandler(handler)
                undo.callback(logger.removeHandler, handler)
        yield
