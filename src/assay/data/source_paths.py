"""Which files and folders each source reads: what can be asked of them before torch is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True)
class SourcePath:
    """What an argument of a source has to name.

    Attributes:
        argument: Its name.
        expected: What lies there, in words.
        may_be: `file`, `folder`, or `file or folder`.
        name: A pattern that the name has to match, where only some files can be read.
        may_be_folder: A pattern of names that a folder may have where a file is expected.
        downloads: The source fetches what is not there, unless it is told not to.
    """

    argument: str
    expected: str
    may_be: str = "folder"
    name: re.Pattern[str] | None = None
    may_be_folder: re.Pattern[str] | None = None
    downloads: bool = False


_PARQUET: Final = re.compile(r"\.(parquet|pq)$", re.IGNORECASE)
_TABLE: Final = (
    "a .csv or .parquet file",
    "file",
    re.compile(rf"\.csv|{_PARQUET.pattern}", re.IGNORECASE),
    _PARQUET,
)
SOURCE_PATHS: Final[Mapping[str, tuple[SourcePath, ...]]] = {
    "assay.data.arrays.Arrays": (
        SourcePath("root", "a .npz archive or a folder of .npy files", "file or folder"),
    ),
    "assay.data.image_folder.ImageFolder": (
        SourcePath("root", "one folder a class was expected: root/<class>/*.jpg"),
    ),
    "assay.data.table.Table": (SourcePath("path", *_TABLE), SourcePath("test_path", *_TABLE)),
    "assay.data.torchvision_images.TorchvisionImages": (
        SourcePath("root", "the files of the data set", downloads=True),
    ),
}
