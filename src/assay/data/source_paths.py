"""The files and folders that arguments of sources name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError
from assay.targets.objects import take_from

if TYPE_CHECKING:
    from pathlib import Path


@final
@dataclass(frozen=True)
class SourcePath:
    """What an argument of a source has to name."""

    argument: str
    expected: str
    may_be: str = "folder"
    name: re.Pattern[str] | None = None
    downloads: bool = False


TABLE_FILE: Final = (
    "a .csv, .tsv, .jsonl, .parquet, .feather or .xlsx file",
    "file",
    re.compile(r"\.[ct]sv|\.(jsonl|ndjson|parquet|pq|feather|xlsx)$", re.IGNORECASE),
)


def check_path(path: Path, source: SourcePath, key: str) -> None:
    """Refuse a path of nothing, or of something else than what is read from it."""
    if take_from(path) is not None:
        return
    if source.name is not None and not source.name.search(path.name):
        raise ConfigError(f"{path}: {source.expected} was expected", key=key, hint="convert it to one")
    if not path.exists():
        raise missing(key, path, source.may_be, source.expected)
    if source.may_be == "file" and not path.is_file():  # reading a pipe or a device may never end
        what = "is a folder" if path.is_dir() else "is not a regular file"
        raise ConfigError(f"{path.absolute()} {what}", key=key, hint=f"{source.expected} was expected")
    if source.may_be == "folder" and not path.is_dir():
        raise ConfigError(f"{path.absolute()} is not a folder", key=key, hint=f"{key}=FOLDER")


def missing(key: str, path: Path, what: str, expected: str) -> ConfigError:
    """There is nothing: which part of the path is the first that is not there, and what there is instead."""
    whole = path.absolute()
    first = next(one for one in (*reversed(whole.parents), whole) if not one.exists())
    try:
        names = sorted(one.name for one in first.parent.iterdir())
    except OSError:
        names = []
    there = "" if first == whole else f"; {first.parent} has no {first.name!r}"
    return ConfigError(
        f"there is no such {what}: {whole}{there}{did_you_mean(first.name, names, '; ')}",
        key=key,
        hint=expected,
    )
