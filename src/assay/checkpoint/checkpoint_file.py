"""Checkpoints on disk: complete or absent, checked before they are read, tensors and containers only."""

from __future__ import annotations

import hashlib
import logging
import weakref
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from assay.checkpoint.background_writer import BackgroundWriter
from assay.checkpoint.container import plain, plain_part
from assay.checkpoint.snapshot import Snapshot
from assay.errors import AssayError, first_line
from assay.files.atomic import Output, remove_unfinished, replacing, sync_directory
from assay.files.checksum import damage, sum_file, sums_of_content, write_sums

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

log = logging.getLogger(__name__)
_PIECE = 1 << 16
_SMALL = 32 << 20
"""Bytes of a checkpoint of which a few copies may be in memory."""


@final
class CheckpointFile(CheckpointIO):
    """Reads and writes checkpoints, each with its SHA-256 beside it as `sha256sum` writes it.

    Lightning's own writer goes through the system's temporary directory, and its file can be torn where that
    is another filesystem.

    The two files cannot be replaced at one instant. So the sum of the new content is put before the old one
    first, then the checkpoint is replaced, then the old sum is dropped: whatever moment a process dies at,
    the sum of what lies there is listed.

    Args:
        background: Take a copy and write that while training goes on, one file at a time, in the order of
            the saves. A checkpoint below 32 MiB that replaces one is written a second after that at the
            earliest, and left out where a newer one comes before. A larger one waits for earlier ones unless
            it holds the same tensors. `teardown` waits for the last. Of several ranks the first always
            writes before it goes on: the others may read the file.
    """

    def __init__(self, *, background: bool = False) -> None:
        self._background = background
        self._writer = BackgroundWriter()
        self._latest: Callable[[], Snapshot | None] = lambda: None
        self._error: BaseException | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint; the previous one stays until this one is on disk.

        Args:
            checkpoint: Plain containers and tensors; of hyper-parameters the plain ones are kept.
            path: The final name, on a file system of this machine. One process at a time writes to it.
            storage_options: Must be None.

        Raises:
            TypeError: The checkpoint holds something that could not be loaded without running code, or
                storage options were given.
            AssayError: This one, or an earlier one in the background, could not be written: the disk is
                full, or fails. What lies there, old or new, can be read.
        """
        if storage_options is not None:
            raise TypeError(
                "storage_options are for remote file systems; a checkpoint is written to a local one"
            )
        self._raise()
        target = _local(path)
        # `hparams_type` is a class; whatever `assay.load` needs beyond these stands in the run's config.
        kept = {name: value for name, value in checkpoint.items() if name != "hparams_type"}
        for name in ("hyper_parameters", "datamodule_hyper_parameters"):
            if name in kept:
                kept[name], _ = plain_part(kept[name])
        content = plain(kept)
        earlier = self._latest()
        held = earlier is not None and earlier.nbytes > _SMALL
        snapshot = Snapshot(earlier, release=self._writer.wait if held else lambda: None)
        copied = snapshot.copy(content)
        self._latest = weakref.ref(snapshot)  # its memory is free once it is written
        moment = (checkpoint.get("epoch"), checkpoint.get("global_step"))
        write = partial(_write, copied, target, snapshot)
        self._do(write, target, moment, may_wait=snapshot.nbytes <= _SMALL)

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
        self._writer.wait()
        self._raise()
        # `last.ckpt` may be a link to the best one, whose sum lies beside that
        source = _local(path).resolve()
        if not source.is_file():
            raise AssayError(f"there is no checkpoint {source}")
        with source.open("rb") as file:
            if not sum_file(source).is_file():
                log.warning("%s has no SHA-256 beside it: whether it is whole is not known", source)
            elif reason := damage(source, file):
                raise AssayError(f"{source} {reason}", hint="use another checkpoint of the run")
            return read(file, source, map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint and its sum, after what was saved before is on disk.

        Args:
            path: The file; nothing happens when there is none.
        """
        target = _local(path)
        self._do(partial(_remove, target), target)

    def teardown(self) -> None:
        """Wait until all is on disk.

        Raises:
            AssayError: Something could not be written.
        """
        self._writer.wait()
        self._raise()

    def _do(
        self, step: Callable[[], None], target: Path, moment: object = None, *, may_wait: bool = False
    ) -> None:
        if self._background and not _several_ranks():
            self._writer.put(partial(self._try, step), target, moment, may_wait=may_wait)
            return
        self._writer.wait()
        self._raise()
        step()

    def _try(self, step: Callable[[], None]) -> None:
        # After a failure nothing is removed: the old checkpoint is the one that stays.
        if self._error is None:
            try:
                step()
            except BaseException as error:  # told where training can be stopped, not in this thread
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            self._writer.wait()
            error, self._error = self._error, None
            raise error


def read(
    file: BufferedReader | Path, source: Path, map_location: Any = None, *, mmap: bool = False
) -> dict[str, Any]:
    """Read tensors and plain containers, and run nothing.

    Args:
        file: Open for reading; a path where `mmap`.
        source: For messages.
        map_location: As for `torch.load`; the CPU by default.
        mmap: Read from the disk only what is looked at.

    Raises:
        AssayError: It holds something else, or is not a checkpoint.
    """
    if not zipfile.is_zipfile(file):
        raise AssayError(f"{source} is cut short, or is not a file that torch.save wrote")
    if not isinstance(file, Path):
        file.seek(0)
    try:
        loaded = torch.load(
            file, map_location="cpu" if map_location is None else map_location, weights_only=True, mmap=mmap
        )
    except OSError:
        raise
    except Exception as error:  # torch raises half a dozen kinds for what is not a checkpoint
        raise AssayError(
            f"{source} cannot be read as tensors and plain containers: {first_line(error)}"
        ) from error
    if not isinstance(loaded, dict):
        raise AssayError(f"{source} is not a checkpoint: it holds a {type(loaded).__name__}")
    return loaded


def _write(content: dict[str, Any], target: Path, snapshot: Snapshot) -> None:
    del snapshot  # the caller keeps it until this returns: saves of the same tensors look at it
    try:
        remove_unfinished(target.parent, target.name)
        with replacing(target) as file:
            hashing = _Hashing(file)
            try:
                torch.save(content, hashing)  # type: ignore[arg-type]  # it only writes and flushes
            except Exception:
                if hashing.error is not None:
                    raise hashing.error from None
                raise
            hashing.flush()
            digest = hashing.hexdigest()
            write_sums(target, [digest, *sums_of_content(target)])
        write_sums(target, [digest])
    except OSError as error:
        raise AssayError(
            f"the checkpoint {target} could not be written: {error.strerror or error}",
            hint="what was saved before can still be read; make room, then `assay resume` the run",
        ) from error


def _remove(target: Path) -> None:
    target.unlink(missing_ok=True)
    sum_file(target).unlink(missing_ok=True)
    if target.parent.is_dir():
        sync_directory(target.parent)


def _several_ranks() -> bool:
    return (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    )


def _local(path: str | Path) -> Path:
    if "://" in str(path):
        raise ValueError(f"a checkpoint lies on a file system of this machine, not at {path}")
    return Path(path)


@final
class _Hashing:
    """Takes the SHA-256 of what is written, so that nothing has to be read again.

    Small pieces, of which PyTorch writes some twenty a tensor, are put together. Not by a buffer of Python's
    own: a process forked in between would write what is in that once more when it ends.
    """

    def __init__(self, file: Output) -> None:
        self._file, self._digest, self._pieces = file, hashlib.sha256(), bytearray()
        self.error: OSError | None = None
        """Why a write failed, which PyTorch does not tell."""

    def write(self, data: bytes | memoryview) -> int:
        size = len(data)
        if len(self._pieces) + size > _PIECE:
            self.flush()
        if size > _PIECE:
            self._put(data)
        else:
            self._pieces += data
        return size

    def flush(self) -> None:
        if self._pieces:
            self._put(self._pieces)
            self._pieces = bytearray()

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._digest.update(data)
        try:
            self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
