"""Checkpoints on disk: complete or absent, checked before they are read, tensors and containers only."""

from __future__ import annotations

import glob
import hashlib
import logging
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from assay.errors import AssayError
from assay.record.atomic import replacing, sync_directory, write_text
from assay.record.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


@final
class CheckpointFile(CheckpointIO):
    """Reads and writes one checkpoint, with its SHA-256 beside it as `sha256sum` writes it.

    Lightning's own writer goes through the system's temporary directory, and its file can be torn where that
    is another filesystem.

    The two files cannot be replaced at one instant. So the sum of the new content is put before the old one
    first, then the checkpoint is replaced, then the old sum is dropped: whatever moment a process dies at,
    the sum of what lies there is listed.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint; the previous one stays until this one is on disk.

        Args:
            checkpoint: Plain containers and tensors.
            path: The final name, on a file system of this machine. One process at a time writes to it.
            storage_options: Must be None.

        Raises:
            TypeError: The checkpoint holds something that could not be loaded without running code, or
                storage options were given.
            OSError: The disk is full or cannot be written to. What lies there, old or new, can be read.
        """
        if storage_options is not None:
            raise TypeError(
                "storage_options are for remote file systems; a checkpoint is written to a local one"
            )
        target = _local(path)
        content = plain(checkpoint)
        _remove_leftovers(target)
        with replacing(target) as file:
            hashing = _Hashing(file)
            torch.save(content, hashing)  # type: ignore[arg-type]  # it only writes and flushes
            digest = hashing.hexdigest()
            _write_sums(target, [digest, *_sums_of_content(target)])
        _write_sums(target, [digest])

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | torch.device | str | dict[str, str] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint without running anything in it.

        Args:
            path: The file. One without a sum beside it, from elsewhere, is read all the same, and the log
                says so.
            map_location: As for `torch.load`; the CPU by default.
            weights_only: Always true, whatever is asked for.

        Raises:
            AssayError: The file is missing, damaged, or holds more than tensors and plain containers.
        """
        del weights_only
        source = _local(
            path
        ).resolve()  # `last.ckpt` may be a link to the best one, whose sum lies beside that
        if not source.is_file():
            raise AssayError(f"there is no checkpoint {source}")
        sums = _read_sums(source)
        with source.open("rb") as file:
            if _sum_file(source).is_file():
                found = hashlib.file_digest(file, "sha256").hexdigest()
                # A writer may have been between its steps at the first look.
                if found not in sums and found not in _read_sums(source):
                    raise AssayError(
                        f"{source} is damaged: its SHA-256 is not the one in {_sum_file(source).name}",
                        hint="use another checkpoint of the run",
                    )
                file.seek(0)
            else:
                log.warning("%s has no SHA-256 beside it: whether it is whole is not known", source)
            return _read(file, source, map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint and its sum.

        Args:
            path: The file; nothing happens when there is none.
        """
        target = _local(path)
        target.unlink(missing_ok=True)
        _sum_file(target).unlink(missing_ok=True)
        if target.parent.is_dir():
            sync_directory(target.parent)


def sha256(path: Path) -> str:
    """The sum that is listed for a checkpoint; empty when there is none.

    Args:
        path: The checkpoint.
    """
    return next(iter(_read_sums(path.resolve())), "")


def _read(file: IO[bytes], source: Path, map_location: Any) -> dict[str, Any]:
    try:
        loaded = torch.load(
            file, map_location="cpu" if map_location is None else map_location, weights_only=True
        )
    except (MemoryError, OSError):
        raise
    except Exception as error:  # torch raises half a dozen kinds for what is no checkpoint
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise AssayError(f"{source} cannot be read as tensors and plain containers: {reason}") from error
    if not isinstance(loaded, dict):
        raise AssayError(f"{source} is no checkpoint: it holds a {type(loaded).__name__}")
    return loaded


def _local(path: str | Path) -> Path:
    if "://" in str(path):
        raise ValueError(f"a checkpoint lies on a file system of this machine, not at {path}")
    return Path(path)


def _remove_leftovers(target: Path) -> None:
    """What a process that was killed while it wrote this checkpoint left behind; it may be gigabytes."""
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _sum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _sums_of_content(path: Path) -> list[str]:
    """Sums of which one is that of the file; read from the file itself when it came without."""
    if not path.is_file() or path.is_symlink():
        return []
    listed = _read_sums(path)
    if listed:
        return listed
    with path.open("rb") as file:
        return [hashlib.file_digest(file, "sha256").hexdigest()]


def _read_sums(path: Path) -> list[str]:
    try:
        lines = _sum_file(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line.split()[0] for line in lines if line.strip()]


def _write_sums(path: Path, sums: list[str]) -> None:
    write_text(_sum_file(path), "".join(f"{one}  {path.name}\n" for one in sums))


class _Hashing:
    """Takes the SHA-256 of what is written, so that nothing has to be read again."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest = file, hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
