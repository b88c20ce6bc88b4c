"""Images in folders named as their classes."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Literal, final

import pandas as pd
import torch
from torchvision.datasets.folder import find_classes  # type: ignore[import-untyped]  # torchvision ships no types
from typing_extensions import override

from assay.data.core.source_files import SUBSETS, find_subset_folders
from assay.data.image.decode import ImageSize, MaxValue  # noqa: TC001 - of values that are checked
from assay.data.image.image_source import (
    IMAGE_SUFFIXES,
    NO_CLASS,
    ImageFile,
    ImageSource,
    list_images,
)
from assay.data.table.table_targets import note_on_spelling
from assay.quoting import format_override
from assay.task.classification import Multiclass
from assay.task.reconstruction import Reconstruction
from assay.task.task_of import infer_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from assay.data.core.types import Strings


@final
class ImageFolder(ImageSource):
    """`root/<class>/*.jpg`, or with subsets of its own `root/{train,val,test}/<class>/*.jpg`.

    The layout of `torchvision.datasets.ImageFolder`; subsets may be called Training, valid and the like.
    With `classes=False` the images are taken as they lie, in folders or not, for a task that learns from
    them alone. Images become uint8 tensors `[C, H, W]`. They are decoded once, by as many threads as there
    are cores: into the user's cache folder if these are 1,000 files or more, or large ones, else into
    memory if they take less than a quarter of what is free. Those of one size are one tensor if that takes
    less than half of the free memory; others are read sample by sample by the loader's worker processes,
    which decode only what is not kept. All files are looked at before training, and their SHA-256 is the
    data's.

    Args:
        root: The folder.
        image_size: Height and width every image is scaled to; None leaves them as they are; `auto`: those of
            the middle one where they differ, or are larger than 512 pixels, which `notes` says.
        mode: `RGB` or `GRAY`; other images are converted, transparency is left out.
        in_memory: `auto` as above; True or False to decide.
        on_bad: What to do about files that cannot be decoded: `error`, or `skip` to leave them out; `auto`
            leaves up to a twentieth of all files out.
        max_value: Of images of 16 bits, the value that becomes 255 of 8 bits; None: 65535; `auto`: the
            largest one of as many bits as the largest value of the folder takes, such as 4095.
        classes: Whether the folders are classes.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    def __init__(
        self,
        root: str,
        image_size: ImageSize = None,
        mode: Literal["RGB", "GRAY"] = "RGB",
        in_memory: bool | Literal["auto"] = "auto",
        on_bad: Literal["auto", "error", "skip"] = "error",
        *,
        classes: bool = True,
        max_value: MaxValue = None,
    ) -> None:
        super().__init__(root, image_size, mode, in_memory, on_bad, max_value=max_value)
        self._classes = classes
        self.task: str = Reconstruction.name
        if classes:
            self.task = Multiclass.name

    @override
    def _list(self) -> dict[str, list[ImageFile]]:
        return {
            subset: self._list_subset(subset, folder)
            for subset, folder in self._folders().items()
        }

    def _folders(self) -> dict[str, Path]:
        names = {
            entry.name
            for entry in self._root.iterdir()
            if entry.is_dir() and entry.name[0] != "."
        }
        subsets = find_subset_folders(self._root)
        other_names = names - {folder.name for folder in subsets.values()}
        if not self._classes and other_names:
            return {"all": self._root}
        if "train" not in subsets or (other_names and len(subsets) == 1):
            return {"all": self._root}  # `train` may be a class, beside `car` and `plane`
        if other_names:
            raise self._error(
                f"beside {subsets['train'].name} there is {min(other_names)}",
                "name the subsets train, val and test, and keep nothing else in this folder",
            )
        return {subset: subsets[subset] for subset in SUBSETS if subset in subsets}

    def _list_subset(self, subset: str, folder: Path) -> list[ImageFile]:
        if self._classes:
            files = self._list_classes(subset, folder)
        else:
            images, others = list_images(folder)
            self._note_others(others)
            files = [self._file(path) for path in images]
        if not files:
            message = f"{folder} contains no images"
            raise self._error(message, f"expected images ({', '.join(IMAGE_SUFFIXES)})")
        return files

    def _list_classes(self, subset: str, folder: Path) -> list[ImageFile]:
        try:
            names = [name for name in find_classes(str(folder))[0] if not name.startswith(".")]
        except FileNotFoundError as error:
            hint = _suggest(subset)
            if self.known_labels:  # of a trained model
                hint = "expected one folder per class; data.source.classes=false takes images of none"
            raise self._error(f"{folder} contains no folder of images", hint) from error
        if subset in ("all", "train"):
            self._check_classes(folder, names)
            self.class_names = tuple(names)
            self.task = infer_task(is_real=False, num_columns=1, num_classes=len(names))
        elif unknown := sorted(set(names) - set(self.class_names)):
            message = f"{subset} has a class that training lacks: {unknown[0]}"
            raise self._error(message, "give train a folder of the same name, or remove this one")
        found = {name: list_images(folder / name) for name in names}
        self._note_others([suffix for _, others in found.values() for suffix in others])
        return [
            self._file(path, self.class_names.index(name))
            for name in names
            for path in found[name][0]
        ]

    def _check_classes(self, folder: Path, names: Strings) -> None:
        """Refuse a folder around the data, and note classes that seem to be one."""
        if len(names) == 1 and any(entry.is_dir() for entry in (folder / names[0]).iterdir()):
            inside = format_override("data.source.root", (folder / names[0]).as_posix())
            raise self._error(
                f"{folder} contains a single folder, {names[0]}, not one for each class",
                f"{inside}, if the classes lie there",
            )
        if note := note_on_spelling(pd.Series(names), folder.name):
            self._note(note)

    def _file(self, path: str, label: int = NO_CLASS) -> ImageFile:
        prefix = f"{self._root}{os.sep}"  # what pathlib finds out as slowly as a small image is decoded
        if path.startswith(prefix):
            name = path.removeprefix(prefix)
        else:
            name = os.path.relpath(path, self._root)
        return ImageFile(name.replace(os.sep, "/"), path, label)

    def _note_others(self, suffixes: Strings) -> None:
        if suffixes:
            counts = ", ".join(
                f"{count} × {suffix}" for suffix, count in Counter(suffixes).most_common(5)
            )
            self._note(f"files without the suffix of an image are left out: {counts}")

    @override
    def _targets(self, subset: str, files: Sequence[ImageFile], images: Tensor | None) -> Tensor:
        labels = {file.label for file in files}
        empty = [name for label, name in enumerate(self.class_names) if label not in labels]
        if empty and subset in ("all", "train"):
            message = f"no image in the folder of class {', '.join(empty[:5])}"
            raise self._error(
                message, f"remove the folder, or add images ({', '.join(IMAGE_SUFFIXES)})"
            )
        return _labels(files)

    @override
    def _target_reader(self) -> Callable[[ImageFile], Tensor]:
        return _label


def _suggest(subset: str) -> str:
    if subset == "test":
        return "expected one folder per class; move pictures of no class elsewhere, assay predict reads them"
    return (
        "expected one folder per class: root/<class>/*.jpg; with a table of names and classes: "
        "data=image_table; to learn from images alone: data.source.classes=false task=reconstruction"
    )


def _labels(files: Sequence[ImageFile]) -> Tensor:
    """Class indices int64 `[N]`, or nothing `[N, 0]`."""
    if files and files[0].label == NO_CLASS:
        return torch.zeros(len(files), 0, dtype=torch.int64)
    return torch.tensor([file.label for file in files], dtype=torch.int64)


def _label(file: ImageFile) -> Tensor:
    return _labels([file])[0]
