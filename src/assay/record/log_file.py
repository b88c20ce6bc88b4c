"""Everything said in a run, in its `log.txt`."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Final

from assay.files.symlinks import appending
from assay.record.secrets import redact
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE: Final = "log.txt"


def logs_of(own: Path | None, printed: Path | None, *, died: bool) -> list[Path]:
    """Where the last words of a job may stand, the likelier place first."""
    return [path for path in ((printed, own) if died else (own, printed)) if path is not None]


class _Formatter(logging.Formatter):
    """UTC; no secrets, no control characters: here, and in no filter, because only here is the traceback."""

    converter = time.gmtime  # type: ignore[assignment]  # the stub's own type is narrower

    def format(self, record: logging.LogRecord) -> str:
        return printable(redact(super().format(record)))


class _Handler(logging.StreamHandler[IO[str]]):
    """Says once that nothing can be written, and lets the run itself go on or end."""

    def __init__(self, path: Path, stream: IO[str]) -> None:
        super().__init__(stream)
        self._path, self._refused = path, False

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
    stream = os.fdopen(appending(path), "a", encoding="utf-8", errors="backslashreplace")
    handler = _Handler(path, stream)
    handler.setFormatter(
        _Formatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    root = logging.getLogger()
    try:
        with _level_for(root, logging.INFO), _captured_warnings(root):
            ends = [root, *_not_propagating()]
            for logger in ends:
                logger.addHandler(handler)
            try:
                yield
            finally:
                for logger in ends:
                    logger.removeHandler(handler)
    finally:
        handler.close()


def _not_propagating() -> list[logging.Logger]:
    """Loggers that hand nothing on to the root: Lightning's, if no logging was set up before its import."""
    loggers = logging.Logger.manager.loggerDict.values()
    return [logger for logger in loggers if isinstance(logger, logging.Logger) and not logger.propagate]


@contextmanager
def _level_for(root: logging.Logger, level: int) -> Iterator[None]:
    """Lower the root's level, while the handlers that it has go on showing what they showed."""
    before = root.level
    if before <= level:
        yield
        return
    quiet = {handler: handler.level for handler in root.handlers if handler.level < before}
    root.setLevel(level)
    for handler in quiet:
        handler.setLevel(before)
    try:
        yield
    finally:
        root.setLevel(before)
        for handler, own in quiet.items():
            handler.setLevel(own)


@contextmanager
def _captured_warnings(root: logging.Logger) -> Iterator[None]:
    """Hand warnings to the log; they still appear on stderr where no other handler would show them."""
    show = warnings.showwarning
    logging.captureWarnings(capture=True)
    ours = warnings.showwarning is not show
    logger = logging.getLogger("py.warnings")
    terminal = logging.lastResort if ours and not root.handlers else None
    if terminal is not None:
        logger.addHandler(terminal)
    try:
        yield
    finally:
        if terminal is not None:
            logger.removeHandler(terminal)
        if ours:
            logging.captureWarnings(capture=False)
