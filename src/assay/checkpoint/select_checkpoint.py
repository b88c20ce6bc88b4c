"""The checkpoint that a run goes on from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.checkpoint.checkpoint_file import read
from assay.errors import AssayError
from assay.files.checksum import SUFFIX, damage
from assay.record.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
@dataclass(frozen=True)
class Newest:
    """What was found."""

    path: Path | None
    step: int = 0
    refused: list[tuple[Path, str]] = field(default_factory=list)
    midway: list[Path] = field(default_factory=list)


def newest_valid(run_dir: Path, expected: Iterable[str] = ()) -> Newest:
    """Find the checkpoint with the most steps done, after verifying the SHA-256 of every one."""
    folder, wanted = RunDirectory(run_dir).checkpoints, set(expected)
    valid: list[tuple[tuple[int, ...], Path]] = []
    refused: list[tuple[Path, str]] = []
    midway: list[Path] = []
    lost = False
    for path in _candidates(folder, wanted):
        try:
            progress, epoch_lost = _progress(path)
            if epoch_lost:
                midway.append(path)
            else:
                valid.append((progress, path))
        except AssayError as error:
            refused.append((path, error.message.removeprefix(f"{path} ")))
            # The first save may have been cut short between the sum and the checkpoint.
            lost = lost or path.is_file() or path.is_symlink() or path.name in wanted
    if valid:
        progress, path = max(valid, key=lambda one: (one[0], one[1].name == "last.ckpt"))
        return Newest(path, progress[1], refused, midway)
    if lost:
        told = "; ".join(f"{path.name} {reason}" for path, reason in refused)
        raise AssayError(
            f"{run_dir} has no checkpoint that can be used: {told}",
            hint="restore one from a copy; to begin anew, train with the same overrides in another directory",
        )
    return Newest(None, 0, refused, midway)


def _candidates(folder: Path, wanted: set[str]) -> list[Path]:
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    named = {name.removesuffix(SUFFIX) for name in there if not name.startswith(".")}
    named |= {name for name in wanted if Path(name).name == name}  # a record may be anybody's
    return [folder / name for name in sorted(named) if name.endswith(".ckpt")]


def _progress(path: Path) -> tuple[tuple[int, ...], bool]:
    """Batches and optimizer steps done in a checkpoint that is whole; whether its epoch cannot go on."""
    if not path.is_file():
        raise AssayError(f"{path} is not there")
    source = path.resolve()
    try:
        with source.open("rb") as file:
            if reason := damage(source, file):
                raise AssayError(f"{path} {reason}")
            loaded = read(source, path, mmap=True)
    except OSError as error:
        raise AssayError(f"{path} cannot be read: {error.strerror or error}") from error
    batches = _number(loaded, "loops", "fit_loop", "epoch_loop.batch_progress", "total", "completed")
    epoch_lost = _at(loaded, "loops", "fit_loop", "state_dict", "epoch_lost") is True
    return (batches, _number(loaded, "global_step")), epoch_lost


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = dict.get(value, key) if isinstance(value, dict) else None
    return value


def _number(value: Any, *keys: str) -> int:
    found = _at(value, *keys)
    return found if type(found) is int else 0
