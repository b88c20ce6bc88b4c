"""Names and files within a run directory; finding run directories, and removing one."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING

from assay.errors import AssayError, explain_write_errors
from assay.files.atomic import remove_unfinished
from assay.files.checksum import digest_of, is_yaml_intact, sha256
from assay.files.symlinks import RESULTS, TEXTS, check_links, open_append, read_whole
from assay.record.run_record import FILE
from assay.record.secrets import redact
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


JOURNAL = "journal.jsonl"
"""Of a sweep, in its directory."""
_FILES = (*TEXTS, "metrics.csv", *RESULTS)


def hash_files(run_dir: Path) -> dict[str, str]:
    """SHA-256 of each file that says what a run was and what came of it, by its name in the run directory."""
    sums = {}
    for name in [*_FILES, *sorted(path.name for path in run_dir.glob("code.*.patch"))]:
        if digest := digest_of_file(run_dir / name):
            sums[name] = digest
    for path in sorted((run_dir / "checkpoints").glob("*.ckpt")):
        if not path.is_symlink():
            sums[f"checkpoints/{path.name}"] = sha256(path)
    return sums


def digest_of_file(path: Path) -> str | None:
    """SHA-256 of a file; None where there is none."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return digest_of(file)


log = logging.getLogger(__name__)


def create_run_directory(path: Path) -> None:
    """Make a new run directory."""
    refuse_existing(path)
    check_links(path)
    config = path / "config.yaml"  # a run that was killed early has sealed its own
    if config.is_file() and not is_yaml_intact(read_whole(config)):
        message = f"{config} already exists and was not written by a run"
        raise AssayError(message, hint="choose another hydra.run.dir, or move the file away")
    with explain_write_errors(f"the run directory {path}", "hydra.run.dir=SOMEWHERE/ELSE"):
        path.mkdir(parents=True, exist_ok=True)


def remove_unfinished_files(run_dir: Path) -> None:
    """Remove the temporary files of processes that were killed; asked by the only one that writes."""
    for folder in (run_dir, run_dir / "checkpoints"):
        remove_unfinished(folder, older_than=0)


def refuse_existing(path: Path) -> None:
    """Refuse a directory that holds a run, before any work is done for the new one."""
    if (path / FILE).exists():
        raise AssayError(
            f"hydra.run.dir: {path} already holds a run",
            hint="choose another hydra.run.dir, or remove the old run",
        )


LOG = "log.txt"


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
                for shown_logger in map(logging.getLogger, ("py.warnings", "assay.notes")):
                    shown_logger.addHandler(terminal)
                    undo.callback(shown_logger.removeHandler, terminal)
        for logger in (root, *logging.Logger.manager.loggerDict.values()):
            # Lightning's hand nothing on to the root, if no logging was set up before its import.
            if isinstance(logger, logging.Logger) and (logger is root or not logger.propagate):
                logger.addHandler(handler)
                undo.callback(logger.removeHandler, handler)
        yield
