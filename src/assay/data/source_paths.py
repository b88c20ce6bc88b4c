"""Which files and folders each source reads: asked before torch is imported, and again when it reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError
from assay.targets.objects import take_from

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True)
class SourcePath:
    """What an argument of a source has to name."""

    argument: str
    expected: str
    may_be: str = "folder"
    name: re.Pattern[str] | None = None
    downloads: bool = False


_TABLE: Final = (
    "a .csv, .tsv, .jsonl, .parquet, .feather or .xlsx file",
    "file",
    re.compile(r"\.[ct]sv|\.(jsonl|ndjson|parquet|pq|feather|xlsx)$", re.IGNORECASE),
)
SOURCE_PATHS: Final[Mapping[str, tuple[SourcePath, ...]]] = {
    "assay.data.arrays.Arrays": (
        SourcePath("root", "a .npz archive or a folder of .npy files", "file or folder"),
    ),
    "assay.data.image_folder.ImageFolder": (
        SourcePath("root", "one folder per class was expected: root/<class>/*.jpg"),
    ),
    "assay.data.segmentation_folder.SegmentationFolder": (
        SourcePath("root", "two folders were expected: root/images/*.jpg and root/masks/*.png"),
    ),
    "assay.data.table.Table": (SourcePath("path", *_TABLE), SourcePath("test_path", *_TABLE)),
    "assay.data.text_files.TextFiles": (
        SourcePath("root", "a folder of text files, or one such file", "file or folder"),
    ),
    "assay.data.text_table.TextTable": (SourcePath("path", *_TABLE), SourcePath("test_path", *_TABLE)),
    "assay.data.torchvision_images.TorchvisionImages": (
        SourcePath("root", "the files of the data set", downloads=True),
    ),
}


def check_argument(target: str, argument: str, path: str | Path) -> None:
    """As `check_path`, for a source that is about to read what its argument names."""
    [source] = [one for one in SOURCE_PATHS[target] if one.argument == argument]
    check_path(Path(path), source, f"data.source.{argument}")


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
