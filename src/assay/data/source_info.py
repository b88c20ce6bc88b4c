"""What each source declares about itself; available without importing torch."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final
from zipfile import BadZipFile

import numpy as np

from assay.data.source_files import TABLE_FILE, NoArrayError, SourcePath, read_array, read_header
from assay.errors import AssayError
from assay.task.reconstruction import Reconstruction
from assay.task.task_of import TASKS, infer_task

if TYPE_CHECKING:
    from collections.abc import Callable


@final
@dataclass(frozen=True)
class SourceInfo:
    """What a source declares about itself, as its class attribute `info`.

    Attributes:
        paths: Arguments that name files and folders, checked before anything is read.
        find_task: Finds the task by a look at the data, given the config node; None: not known before it is
            read. Must not import torch.
        raw_input: What `predict` and exported models take beside tensors: `pictures` (the source has
            attribute `decoding`), `arrays` (`input_names`, `layout` and `in_layout()`), or rows
            of a `table` (`file_options` and `targets`).
        has_encoder: Whether a run keeps what was learned from the training subset to encode its inputs.
        divides_itself: Whether the source cuts its samples into subsets, and not `data.split`.
        learned: Arguments for training alone: an evaluation keeps what the run has learned.
    """

    paths: tuple[SourcePath, ...] = ()
    find_task: Callable[[dict[str, Any]], str] | None = None
    raw_input: Literal["", "arrays", "pictures", "table"] = ""
    has_encoder: bool = False
    divides_itself: bool = False
    learned: tuple[str, ...] = ()


def info_of(source: object) -> SourceInfo:
    """What a source declares, or the class that a `_target_` names."""
    if isinstance(source, str):
        module, _, name = source.rpartition(".")
        if source in _BUILT_IN:
            return _BUILT_IN[source]
        source = getattr(sys.modules.get(module), name, None)
    info = getattr(source, "info", None)
    return info if isinstance(info, SourceInfo) else SourceInfo()


def _find_table_task(source: dict[str, Any]) -> str:
    """By the target's columns; empty where they cannot be read, which reading the data reports."""
    if source.get("target") is None and source.get("text") is None:  # texts are not reconstructed
        return Reconstruction.name
    if not (names := _target_names(source)):
        return ""
    from assay.data.tabular.column_kind import task_of_columns
    from assay.data.tabular.table_file import FILE_OPTIONS, read_table  # pandas takes half a second to import

    if source.get("label_separator") is not None:
        return TASKS["multilabel"].name
    options = {key: source[key] for key in FILE_OPTIONS if source.get(key) is not None}
    try:
        return task_of_columns(read_table(str(source["path"]), columns=names, **options), names)[0]
    except (AssayError, LookupError, TypeError, ValueError):
        return ""


def _target_names(source: dict[str, Any]) -> list[str]:
    """Columns to predict; none where these or the file are not known."""
    target = source.get("target")
    if not isinstance(target, str | list) or "???" in (source.get("path"), target):
        return []
    return [target] if isinstance(target, str) else [str(name) for name in target]


def are_vectors(source: dict[str, Any]) -> bool:
    """Whether arrays hold numbers by sample and feature, or series by channel; bytes may be pictures."""
    is_arrays = info_of(str(source.get("_target_"))).raw_input == "arrays"
    header = _header_of(source, "inputs") if is_arrays else None
    if header is None or source.get("layout") is not None:
        return False
    shape, dtype = header
    return len(shape) == 2 or (len(shape) == 3 and dtype.kind == "f")


def _header_of(source: dict[str, Any], argument: str) -> tuple[tuple[int, ...], Any] | None:
    """Shape and type of an array; None where there is none, which reading the data reports."""
    root = source.get("root")
    name = source.get(argument)
    if "???" in (root, name) or not isinstance(root, str) or not isinstance(name, str):
        return None
    try:
        shape, dtype = read_header(Path(root), name)
    except (NoArrayError, OSError, ValueError, BadZipFile):
        return None
    return (shape, dtype) if shape and dtype.kind in "biuf" else None


def _find_arrays_task(source: dict[str, Any]) -> str:
    if source.get("targets") is None:
        return Reconstruction.name
    if (header := _header_of(source, "targets")) is None:
        return ""
    shape, dtype = header
    is_real = dtype.kind == "f"
    num_columns = math.prod(shape[1:])
    num_classes = 0
    if not is_real and num_columns == 1:
        try:
            num_classes = len(np.unique(read_array(Path(source["root"]), source["targets"])))
        except (NoArrayError, OSError, ValueError, BadZipFile):
            return ""
    return infer_task(is_real=is_real, num_columns=num_columns, num_classes=num_classes)


def _find_folder_task(source: dict[str, Any]) -> str:
    """Two class folders make a binary task."""
    root = Path(str(source.get("root")))
    if source.get("classes") is False or not root.is_dir():
        return ""
    names = _folders_in(root)
    if "train" in names and {*names} <= {"train", "val", "test"}:
        names = _folders_in(root / "train")
    return infer_task(is_real=False, num_columns=1, num_classes=len(names)) if len(names) == 2 else ""


def _folders_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]


def _find_shards_task(source: dict[str, Any]) -> str:
    """By the target's columns and, where it is a class, by how many there are."""
    if source.get("target") is None:
        return Reconstruction.name
    if not (names := _target_names(source)):
        return ""
    from assay.data.shard_files import USUAL_TARGETS, ShardReader, find_column
    from assay.data.tabular.column_kind import task_of_columns

    try:
        reader = ShardReader(str(source.get("path")))
        task = TASKS["multiclass"]
        if "image" in source:
            names = [find_column(reader, "target", names[0], USUAL_TARGETS)]
        else:
            task = TASKS[task_of_columns(reader.first_rows(names), names)[0]]
        num_classes = len(reader.count_classes(names[0])) if task.by_class else 0
        return infer_task(is_real=False, num_columns=1, num_classes=num_classes) if num_classes else task.name
    except (AssayError, LookupError, TypeError, ValueError):
        return ""


_OF_TABLES = (
    *("features", "exclude", "keep", "max_categories", "positive"),
    *("tokenizer", "vocab_size", "max_length", "lowercase"),
)
_BUILT_IN = {
    "assay.data.arrays.Arrays": SourceInfo(
        (SourcePath("root", "a .npz archive or a folder of .npy files", "file or folder"),),
        _find_arrays_task,
        "arrays",
    ),
    "assay.data.image_folder.ImageFolder": SourceInfo(
        (SourcePath("root", "one folder per class: root/<class>/*.jpg"),), _find_folder_task, "pictures"
    ),
    "assay.data.image_shards.ImageShards": SourceInfo(
        (SourcePath("path", "a folder of .tar or .parquet files", "file or folder", or_url=True),),
        _find_shards_task,
        "pictures",
    ),
    "assay.data.segmentation_folder.SegmentationFolder": SourceInfo(
        (SourcePath("root", "two folders: root/images/*.jpg and root/masks/*.png"),), raw_input="pictures"
    ),
    "assay.data.stdlib_docs.StdlibDocs": SourceInfo(has_encoder=True),
    "assay.data.table.Table": SourceInfo(
        (SourcePath("path", *TABLE_FILE), SourcePath("test_path", *TABLE_FILE)),
        _find_table_task,
        "table",
        has_encoder=True,
        learned=_OF_TABLES,
    ),
    "assay.data.table_shards.TableShards": SourceInfo(
        (SourcePath("path", "a folder of .parquet files", "file or folder", or_url=True),),
        _find_shards_task,
        "table",
        has_encoder=True,
        learned=_OF_TABLES,
    ),
    "assay.data.text_files.TextFiles": SourceInfo(
        (SourcePath("root", "a folder of text files, or one such file", "file or folder"),),
        has_encoder=True,
        divides_itself=True,  # windows of one text do not stand alone
    ),
    "assay.data.torchvision_images.TorchvisionImages": SourceInfo(
        (SourcePath("root", "the files of the data set", downloads=True),)
    ),
}
"""Known without importing their modules, which import torch; `info` of these classes is read from here."""
