"""Checkpoints on disk: complete or absent, checked before they are read, nothing but tensors and plain containers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from assay.errors import AssayError
from assay.record.atomic import replacing, sync_directory, write_text

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.Tensor, torch.dtype, torch.device, torch.Size)


@final
class CheckpointFile(CheckpointIO):
    """Reads and writes one checkpoint, with its SHA-256 beside it as `sha256sum` writes it.

    Lightning's own writer goes through the system's temporary directory, and its file can be torn where that is another filesystem.

    The two files cannot be replaced at one instant. So the sum of the new content is added to the old one first, then the checkpoint is replaced,
    then the old sum is dropped: whatever moment a process dies at, the sum of what lies there is listed.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a checkpoint; the previous one stays until this one is on disk.

        Args:
            checkpoint: Plain containers and tensors.
            path: The final name.
            storage_options: Not used.

        Raises:
            TypeError: The checkpoint holds something that could not be loaded without running code.
            OSError: The disk is full or cannot be written to; the previous checkpoint is untouched.
        """
        del storage_options
        target = Path(path)
        plain = _plain(checkpoint, "")
        with replacing(target) as file:
            hashing = _Hashing(file)
            torch.save(plain, hashing)
            digest = hashing.hexdigest()
            _write_sums(target, [digest, *_read_sums(target)])
        _write_sums(target, [digest])

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | torch.device | str | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint without running anything in it.

        Args:
            path: The file.
            map_location: As for `torch.load`; the CPU by default.
            weights_only: Always true, whatever is asked for.

        Raises:
            AssayError: The file is missing, damaged, or holds more than tensors and plain containers.
        """
        del weights_only
        source = Path(path)
        if not source.is_file():
            raise AssayError(f"there is no checkpoint {source}")
        sums = _read_sums(source)
        if sums:
            with source.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found not in sums:
                raise AssayError(f"{source} is damaged: its SHA-256 is not the one in {_sum_file(source).name}")
        try:
            loaded: dict[str, Any] = torch.load(source, map_location=map_location or "cpu", weights_only=True)
        except Exception as error:  # torch raises half a dozen kinds for what is no checkpoint
            raise AssayError(f"{source} cannot be read as tensors and plain containers: {str(error).splitlines()[0]}") from error
        return loaded

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint and its sum.

        Args:
            path: The file.
        """
        target = Path(path)
        target.unlink(missing_ok=True)
        _sum_file(target).unlink(missing_ok=True)
        if target.parent.is_dir():
            sync_directory(target.parent)


def sha256(path: Path) -> str:
    """The sum that is listed for a checkpoint; empty when there is none.

    Args:
        path: The checkpoint.
    """
    return next(iter(_read_sums(path)), "")


def _sum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _read_sums(path: Path) -> list[str]:
    try:
        lines = _sum_file(path).read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line.split()[0] for line in lines if line.strip()]


def _write_sums(path: Path, sums: list[str]) -> None:
    write_text(_sum_file(path), "".join(f"{one}  {path.name}\n" for one in sums))


def _plain(value: Any, key: str) -> Any:
    """Containers as dict, list and tuple; anything that is neither these nor a tensor or number is refused."""
    if isinstance(value, dict):
        return {_plain(name, key): _plain(one, f"{key}.{name}" if key else str(name)) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(one, f"{key}[{index}]") for index, one in enumerate(value))
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(one, f"{key}[{index}]") for index, one in enumerate(value)]
    if isinstance(value, torch.nn.Parameter):
        return value.detach()
    if isinstance(value, Path):
        return str(value)
    if type(value) in _PLAIN or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, bool | int | float | str):  # subclasses such as enums and NumPy's floats
        return next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar
        return value.item()
    raise TypeError(f"a checkpoint holds only tensors and plain containers, but {key} is a {type(value).__module__}.{type(value).__qualname__}")


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
