"""Removing a run directory: only what is one, and only while nobody writes it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
from typing import TYPE_CHECKING

from assay.errors import AssayError
from assay.files.atomic import is_temporary, remove_unfinished, temporary_name
from assay.files.checksum import yaml_is_whole
from assay.files.symlinks import OWN_FILES, read_whole
from assay.record.run_lock import is_written, refusal, writing
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from pathlib import Path

_FOLDERS = ("checkpoints", "evaluations", "export", "figures", "tensorboard", "wandb")
_FILES = (*OWN_FILES, ".lock", "report.html", ".assay_figures")
_OTHERS = re.compile(r"code\.\d+\.patch|.*profile.*")
"""These and temporary files are what a run, and the verbs that take one, write into its directory."""


def removable(path: Path) -> Path:
    """Make sure that a directory can be removed.

    Returns:
        Its absolute path.

    Raises:
        AssayError: It is a link, is not a run directory, holds what no run has written, or is running.
    """
    if path.is_symlink():
        raise AssayError(
            f"{path} is a link, and no link is followed",
            hint=f"name what it leads to: {os.path.realpath(path)}",
        )
    if not path.is_dir():
        raise AssayError(f"there is no run directory {path}", hint="assay ls lists them")
    if (path / "journal.jsonl").exists():
        raise AssayError(
            f"{path} is a sweep, and assay rm removes runs", hint=f"assay rm {shlex.quote(str(path))}/NUMBER"
        )
    record = _record(path)
    if foreign := sorted(one.name for one in path.iterdir() if not _is_own(one.name)):
        raise AssayError(
            f"{path} holds what no run has written: {', '.join(foreign[:5])}{', …' * (len(foreign) > 5)}",
            hint=f"move it away, or remove the directory yourself: rm -r {shlex.quote(str(path))}",
        )
    if is_written(path):
        raise refusal(path)
    here = socket.gethostname()
    host = record.machine.get("hostname", here) if record is not None else here
    if record is not None and record.status == "running" and host != here:
        raise AssayError(
            f"{path} may still be running on {host}, which cannot be seen from here",
            hint=f"remove it on {host}",
        )
    return path.resolve()


def remove(path: Path) -> None:
    """Remove a run directory, and what a killed removal beside it has left.

    Args:
        path: From `removable`.

    Raises:
        AssayError: It has begun to run, or cannot be removed.
    """
    remove_unfinished(path.parent)
    with writing(path):
        gone = temporary_name(path)
        try:
            path.rename(gone)
            shutil.rmtree(gone)  # removes links, and follows none
        except OSError as error:
            raise AssayError(f"{path} cannot be removed: {error.strerror}: {error.filename}") from error


def _is_own(name: str) -> bool:
    return name in _FOLDERS or name in _FILES or is_temporary(name) or _OTHERS.fullmatch(name) is not None


def _record(path: Path) -> RunRecord | None:
    """The record of a run; None where it is damaged, and the config says that there was a run."""
    try:
        return RunRecord.load(path)
    except AssayError as error:
        try:
            if yaml_is_whole(read_whole(path / "config.yaml")):
                return None
        except OSError:
            pass
        said = f"{path} is not a run directory: "
        why = error.message.removeprefix(said)
        raise AssayError(f"{said}{why}", hint="assay ls lists runs") from error
