"""Files that sources read, without torch: what a path may name, and numpy's arrays in files."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from zipfile import BadZipFile, ZipFile

import numpy as np
from platformdirs import user_cache_path

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError, DataError
from assay.quoting import join_first, pluralize
from assay.targets.objects import take_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.data.core.types import Strings


SUBSETS = ("train", "val", "test")
SUBSET_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
}


@final
@dataclass(frozen=True)
class SourcePath:
    """What an argument of a source has to name."""

    argument: str
    expected: str
    may_be: str = "folder"
    name: re.Pattern[str] | None = None
    downloads: bool = False
    or_url: bool = False


TABLE_FILE = (
    "a .csv, .tsv, .jsonl, .parquet, .feather or .xlsx file",
    "file",
    re.compile(r"\.[ct]sv|\.(jsonl|ndjson|parquet|pq|feather|xlsx)$", re.IGNORECASE),
)


def check_path(path: Path, source: SourcePath, key: str) -> None:
    """Refuse a path that does not exist or is not what the source reads."""
    if take_from(path) is not None:
        return
    if source.name is not None and not source.name.search(path.name):
        raise ConfigError(
            f"expected {source.expected}, got {path}", key=key, hint="convert it to one"
        )
    if not path.exists():
        raise missing_path_error(key, path, source.may_be, source.expected)
    if source.may_be == "file" and not path.is_file():  # reading a pipe or a device may never end
        reason = "is not a regular file"
        if path.is_dir():
            reason = "is a folder"
        raise ConfigError(
            f"{path.absolute()} {reason}", key=key, hint=f"expected {source.expected}"
        )
    if source.may_be == "folder" and not path.is_dir():
        raise ConfigError(f"{path.absolute()} is not a folder", key=key, hint=f"{key}=FOLDER")


def missing_path_error(key: str, path: Path, what: str, expected: str) -> ConfigError:
    """The error for a missing path: the first part that does not exist, and similar names beside it."""
    absolute = path.absolute()
    first = next(entry for entry in (*reversed(absolute.parents), absolute) if not entry.exists())
    try:
        names = sorted(entry.name for entry in first.parent.iterdir())
    except OSError:
        names = []
    where = ""
    if first != absolute:
        where = f"; {first.parent} has no {first.name!r}"
    return ConfigError(
        f"there is no such {what}: {absolute}{where}{did_you_mean(first.name, names, '; ')}",
        key=key,
        hint=expected,
    )


def find_subset_folders(folder: Path | None) -> dict[str, Path]:
    """The folders in a folder whose names mean a subset, such as train, Training or valid, by subset."""
    found: dict[str, Path] = {}
    if folder is None or not folder.is_dir():
        return found
    for entry in sorted(folder.iterdir()):
        subset = SUBSET_WORDS.get(entry.name.casefold())
        if subset is None or not entry.is_dir():
            continue
        if subset in found:
            raise DataError(
                f"{folder}: both {found[subset].name} and {entry.name} would be the {subset} subset",
                hint="rename or remove one of them",
            )
        found[subset] = entry
    return found


def note_bad(
    where: str, kind: str, bad: Sequence[tuple[str, str]], total: int, *, on_bad: str, mend: str
) -> str:
    """A note on files that are left out: their names, and why; more than `on_bad` allows are refused.

    `error` allows none, `auto` a twentieth, `skip` all but one.
    """
    names: dict[str, list[str]] = {}
    for name, why in bad:
        names.setdefault(why, []).append(name)
    listed = [f"{join_first(list(dict.fromkeys(alike)))} ({why})" for why, alike in names.items()]
    message = f"{where}: {len(bad)} of {pluralize(total, kind)} cannot be used: {join_first(listed, 10)}"
    most = {"error": 0, "auto": max(20, total) // 20, "skip": total}[on_bad]
    if len(bad) == total:
        raise DataError(message, hint=mend)
    if len(bad) > most:
        raise DataError(message, hint=f"{mend}, or leave them out: data.source.on_bad=skip")
    return f"{message}; left out because of data.source.on_bad={on_bad}"


_NAMES = ("inputs", "targets")


class NoArrayError(Exception):
    """No array has this name."""

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__(known)
        self.known = known


def read_array(root: Path, name: str) -> NDArray[Any]:
    """One array; of a folder mapped into memory, so that only what is used is read."""
    if (container := take_from(root)) is not None:
        return _array_of(container, name)
    if root.is_dir():
        # Copy-on-write, because torch shares writable memory only; the file itself stays as it is.
        mapped: NDArray[Any] = np.lib.format.open_memmap(_file(root, name), mode="c")
        return mapped
    # A ValueError of numpy's would name pickle, which would mislead.
    with root.open("rb") as file, ZipFile(file):
        file.seek(0)
        archive = np.load(file, allow_pickle=False)
        if name not in archive.files:
            raise NoArrayError(archive.files)
        array: NDArray[Any] = archive[name]
    return array


def read_inputs(path: Path, wanted: Strings) -> NDArray[Any]:
    """The array of a .npy file, mapped into memory, or of a .npz archive the only one or the one wanted."""
    try:
        if path.suffix.lower() == ".npy":
            mapped: NDArray[Any] = np.lib.format.open_memmap(path, mode="c")  # as in `read_array`
            return mapped
        with ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        name = next((name for name in wanted if name in names), "")
        if not name and len(names) != 1:
            raise DataError(
                f"{path} has {len(names)} arrays: {', '.join(names[:10])}",
                hint=f"name the array to predict {wanted[0]}",
            )
        return read_array(path, name or names[0])
    except (ValueError, OSError, EOFError, BadZipFile, NoArrayError) as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            hint="save plain numbers with numpy.save or numpy.savez",
        ) from error


def read_header(root: Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array, of which no more is read."""
    if take_from(root) is not None or root.is_dir():
        return (array := read_array(root, name)).shape, array.dtype
    with ZipFile(root) as archive:
        if f"{name}.npy" not in archive.namelist():
            raise NoArrayError([member.removesuffix(".npy") for member in archive.namelist()])
        with archive.open(f"{name}.npy") as file:
            of_1_0 = np.lib.format.read_array_header_1_0
            of_2_0 = np.lib.format.read_array_header_2_0
            shape, _, dtype = (of_1_0 if np.lib.format.read_magic(file) == (1, 0) else of_2_0)(
                file
            )
            return shape, dtype


def _array_of(container: Any, name: str) -> NDArray[Any]:
    """An array of a TensorDataset, or of a pair of arrays or tensors."""
    if name not in _NAMES:
        raise NoArrayError(_NAMES)
    values = getattr(container, "tensors", container)[_NAMES.index(name)]
    if hasattr(values, "detach"):
        array = values.detach().cpu().numpy()
    else:
        array = np.asarray(values)
    return np.require(array, requirements=["C", "W"])  # as torch can share it


def _file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.npy"
    if not path.exists():
        raise NoArrayError(sorted(entry.stem for entry in folder.glob("*.npy")))
    return path


def cache_folder() -> Path:
    """Where indices and decoded images are kept: `ASSAY_CACHE`, or in the user's folder for caches."""
    if named := os.environ.get("ASSAY_CACHE"):
        return Path(named).expanduser().absolute()
    return user_cache_path("assay")


def cache_limit() -> float:
    """Bytes that decoded images may take there: `ASSAY_CACHE_GB`, or 20 GB."""
    text = os.environ.get("ASSAY_CACHE_GB") or "20"
    with suppress(ValueError):
        if float(text) >= 0:
            return float(text) * 1e9
    raise ConfigError(f"ASSAY_CACHE_GB: expected a number of gigabytes, got {text!r}")
