"""What each source declares about itself; available without importing torch."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final
from zipfile import BadZipFile

import numpy as np

from assay.data.core.source_files import (
    TABLE_FILE,
    NoArrayError,
    SourcePath,
    find_subset_folders,
    read_array,
    read_header,
)
from assay.errors import AssayError
from assay.task.reconstruction import Reconstruction
from assay.task.task_of import infer_task

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
        raw_input: What `predict` and exported models take beside tensors: `images` (the source has
            attribute `decoding`), `arrays` (`input_names`, `layout` and `in_layout()`), or rows
            of a `table` (`file_options` and `targets`).
        has_encoder: Whether a run keeps what was learned from the training subset to encode its inputs.
        divides_itself: Whether the source cuts its samples into subsets, and not `data.split`.
        learned: Arguments for training alone: an evaluation keeps what the run has learned.
    """

    paths: tuple[SourcePath, ...] = ()
    find_task: Callable[[dict[str, Any]], str] | None = None
    raw_input: Literal["", "arrays", "images", "table"] = ""
    has_encoder: bool = False
    divides_itself: bool = False
    learned: tuple[str, ...] = ()


def info_of(source: object) -> SourceInfo:
    """What a source declares, or the class that a `_target_` names."""
    if isinstance(source, str):
        module, _, name = source.rpartition(".")
        if source in BUILT_IN:
            return BUILT_IN[source]
        source = getattr(sys.modules.get(module), name, None)
    info = getattr(source, "info", None)
    if isinstance(info, SourceInfo):
        return info
    return SourceInfo()


def are_vectors(source: dict[str, Any]) -> bool:
    """Whether arrays hold numbers by sample and feature, or series by channel; bytes may be images."""
    is_arrays = info_of(str(source.get("_target_"))).raw_input == "arrays"
    if not is_arrays or source.get("layout") is not None:
        return False
    if (header := _header_of(source, "inputs")) is None:
        return False
    shape, dtype = header
    return len(shape) == 2 or (len(shape) == 3 and dtype.kind == "f")


def _header_of(source: dict[str, Any], argument: str) -> tuple[tuple[int, ...], Any] | None:
    """Shape and type of an array; None where there is none, which reading the data reports."""
    root = source.get("root")
    name = source.get(argument, argument)
    if "???" in (root, name) or not isinstance(root, str) or not isinstance(name, str):
        return None
    try:
        shape, dtype = read_header(Path(root), name)
    except (NoArrayError, OSError, ValueError, BadZipFile):
        return None
    if shape and dtype.kind in "biuf":
        return (shape, dtype)
    return None


def _find_arrays_task(source: dict[str, Any]) -> str:
    if source.get("targets", "targets") is None:
        return Reconstruction.name
    if (header := _header_of(source, "targets")) is None:
        return ""
    shape, dtype = header
    is_real = dtype.kind == "f"
    num_columns = math.prod(shape[1:])
    num_classes = 0
    if not is_real and num_columns == 1:
        try:
            num_classes = len(
                np.unique(read_array(Path(source["root"]), source.get("targets", "targets")))
            )
        except (NoArrayError, OSError, ValueError, BadZipFile):
            return ""
    return infer_task(is_real=is_real, num_columns=num_columns, num_classes=num_classes)


def _find_folder_task(source: dict[str, Any]) -> str:
    """Two class folders make a binary task."""
    root = Path(str(source.get("root")))
    if source.get("classes") is False or not root.is_dir():
        return ""
    names = _folders_in(root)
    subsets = find_subset_folders(root)
    if "train" in subsets and len(names) == len(subsets):
        names = _folders_in(subsets["train"])
    if len(names) == 2:
        return infer_task(is_real=False, num_columns=1, num_classes=len(names))
    return ""


def _folders_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]


def _by_columns(load: Callable[[], Any]) -> Callable[[dict[str, Any]], str]:
    """Find a task by the columns to predict; empty where these or the file are not known."""

    def find(source: dict[str, Any]) -> str:
        target = source.get("target", "auto")
        if target is None and source.get("text") is None:  # texts are not reconstructed
            return Reconstruction.name
        if not isinstance(target, str | list) or "???" in (source.get("path"), target):
            return ""
        if isinstance(target, str):
            names = [target]
        else:
            names = [str(name) for name in target]
        try:
            return str(load().find_task(source, names))
        except (AssayError, LookupError, TypeError, ValueError):
            return ""  # which reading the data reports

    return find


# These modules import pandas, which takes half a second, and lie above this one.
_find_table_task = _by_columns(lambda: import_module("assay.data.table.table_file"))
_find_shards_task = _by_columns(lambda: import_module("assay.data.shards.shard_files"))
_FILES_OF_TABLES = (SourcePath("path", *TABLE_FILE), SourcePath("test_path", *TABLE_FILE))
_OF_TABLES = ("features", "exclude", "keep", "max_categories", "positive")
BUILT_IN = {
    "assay.data.core.arrays.Arrays": SourceInfo(
        (SourcePath("root", "a .npz archive or a folder of .npy files", "file or folder"),),
        _find_arrays_task,
        "arrays",
    ),
    "assay.data.image.image_folder.ImageFolder": SourceInfo(
        (SourcePath("root", "one folder per class: root/<class>/*.jpg"),),
        _find_folder_task,
        "images",
    ),
    "assay.data.image.image_table.ImageTable": SourceInfo(
        (SourcePath("root", "the folder of the images"), *_FILES_OF_TABLES),
        _find_table_task,
        "images",
        learned=("positive",),
    ),
    "assay.data.shards.image_shards.ImageShards": SourceInfo(
        (
            SourcePath(
                "path", "a folder of .tar or .parquet files", "file or folder", or_url=True
            ),
        ),
        _find_shards_task,
        "images",
    ),
    "assay.data.image.segmentation_folder.SegmentationFolder": SourceInfo(
        (SourcePath("root", "two folders: root/images/*.jpg and root/masks/*.png"),),
        raw_input="images",
    ),
    "assay.data.text.stdlib_docs.StdlibDocs": SourceInfo(has_encoder=True),
    "assay.data.table.table.Table": SourceInfo(
        _FILES_OF_TABLES,
        _find_table_task,
        "table",
        has_encoder=True,
        learned=_OF_TABLES,
    ),
    "assay.data.shards.table_shards.TableShards": SourceInfo(
        (SourcePath("path", "a folder of .parquet files", "file or folder", or_url=True),),
        _find_shards_task,
        "table",
        has_encoder=True,
        learned=_OF_TABLES,
    ),
    "assay.data.text.text_table.TextTable": SourceInfo(
        _FILES_OF_TABLES,
        _find_table_task,
        "table",
        has_encoder=True,
        learned=("tokenizer", "vocab_size", "max_length", "lowercase", "positive"),
    ),
    "assay.data.text.text_files.TextFiles": SourceInfo(
        (SourcePath("root", "a folder of text files, or one such file", "file or folder"),),
        has_encoder=True,
        divides_itself=True,  # windows of one text do not stand alone
    ),
    "assay.data.image.torchvision_images.TorchvisionImages": SourceInfo(
        (SourcePath("root", "the files of the data set", downloads=True),)
    ),
}
"""Known without importing their modules, which import torch; these classes get their `info` from here."""
