"""Names and files within a run directory; finding run directories, and removing one."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import socket
import sys
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from assay.errors import AssayError, explain_write_errors
from assay.files.atomic import is_temporary, remove_unfinished, temporary_name
from assay.files.checksum import digest_of, is_yaml_intact, sha256
from assay.files.symlinks import OWN_FILES, RESULTS, TEXTS, check_links, open_append, read_whole
from assay.record.run_lock import is_written, lock_error, lock_run
from assay.record.run_record import FILE, RunRecord
from assay.record.secrets import redact
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator


JOURNAL = "journal.jsonl"
"""Of a sweep, in its directory."""
_FILES = (*TEXTS, "metrics.csv", *RESULTS)


def hash_files(run_dir: Path) -> dict[str, str]:
    """SHA-256 of each file that says what a run was and what came of it, by its name in the run directory."""
    sums = {}
    for name in [*_FILES, *sorted(path.name for path in run_dir.glob("code.*.patch"))]:
        if digest := _digest_of_file(run_dir / name):
            sums[name] = digest
    for path in sorted((run_dir / "checkpoints").glob("*.ckpt")):
        if not path.is_symlink():
            sums[f"checkpoints/{path.name}"] = sha256(path)
    return sums


def find_changed_files(run_dir: Path, files: dict[str, str]) -> list[str]:
    """Files of a run that are no longer what the run wrote, or gone; checkpoints are read."""
    return [name for name, digest in files.items() if _digest_of_file(run_dir / name) != digest]


def _digest_of_file(path: Path) -> str | None:
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


def find_runs(
    root: Path, *, broken: bool = False, sweeps: list[Path] | None = None
) -> Iterator[Path]:
    """Every run directory below a folder, by name; a directory with a record is not searched further."""
    if not root.is_dir():
        if root.exists():
            message = f"{root} is a file"
        else:
            message = f"there is no folder {root}"
        raise AssayError(message, hint="name the folder that holds the runs, such as outputs/")
    pending = [str(root)]
    while pending:
        folder = pending.pop()
        # Asking for the one name is several times as fast as listing a run's files.
        if os.path.isfile(f"{folder}{os.sep}{FILE}") or (broken and _lacks_record(folder)):  # noqa: PTH113 - pathlib is slow here
            yield Path(folder)
        else:
            if sweeps is not None and os.path.isfile(f"{folder}{os.sep}{JOURNAL}"):  # noqa: PTH113 - as above
                sweeps.append(Path(folder))
            pending += sorted(_folders(folder), reverse=True)


def _lacks_record(folder: str) -> bool:
    """Whether a run has begun here, of whose record nothing is left."""
    config = Path(folder, "config.yaml")
    try:
        return os.path.isfile(config) and is_yaml_intact(read_whole(config, 8 << 20)) is True  # noqa: PTH113 - as above
    except OSError:
        return False


def _folders(folder: str) -> list[str]:
    """Folders in a folder, without half-removed runs. Links are not followed: there are no circles."""
    try:
        with os.scandir(folder) as entries:
            return [
                entry.path
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not is_temporary(entry.name)
            ]
    except OSError as error:  # gone in the meantime, or somebody else's
        log.warning("%s cannot be searched for runs: %s", folder, error.strerror)
        return []


_REMOVABLE = (
    *("checkpoints", "evaluations", "export", "figures", "tensorboard", "wandb"),
    *(*OWN_FILES, ".lock", "report.html", ".assay_figures"),
)
_OTHERS = re.compile(r"code\.\d+\.patch|.*profile.*")
"""These and temporary files are what a run, and the verbs that take one, write into its directory."""


def check_removable(path: Path) -> Path:
    """Make sure that a directory can be removed."""
    if path.is_symlink():
        raise AssayError(
            f"{path} is a link; links are not followed",
            hint=f"name its target: {os.path.realpath(path)}",
        )
    if not path.is_dir():
        raise AssayError(f"there is no run directory {path}", hint="assay ls lists them")
    if (path / "journal.jsonl").exists():
        raise AssayError(
            f"{path} is a sweep, and assay rm removes runs",
            hint=f"assay rm {shlex.quote(str(path))}/NUMBER",
        )
    record = RunRecord.load(path)
    others = (entry.name for entry in path.iterdir() if entry.name not in _REMOVABLE)
    if foreign := sorted(
        name for name in others if not (is_temporary(name) or _OTHERS.fullmatch(name))
    ):
        shown = ", ".join(foreign[:5]) + ", …" * (len(foreign) > 5)
        raise AssayError(
            f"{path} contains files that assay did not write: {shown}",
            hint=f"move it away, or remove the directory yourself: rm -r {shlex.quote(str(path))}",
        )
    if is_written(path):
        raise lock_error(path)
    host = record.machine.get("hostname")
    if record.status == "running" and host not in (None, socket.gethostname()):
        raise AssayError(
            f"{path} may still be running on {host}, which cannot be seen from here",
            hint=f"remove it on {host}",
        )
    return path.resolve()


def remove_run(path: Path) -> None:
    """Remove a run directory, and what a killed removal beside it has left."""
    remove_unfinished(path.parent)
    with lock_run(path):
        gone = temporary_name(path)
        try:
            path.rename(gone)
            shutil.rmtree(gone)  # removes links, and follows none
        except OSError as error:
            raise AssayError(
                f"{path} cannot be removed: {error.strerror}: {error.filename}"
            ) from error


LOG = "log.txt"


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
