"""Images in folders named as their classes."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, final

import torch
from torchvision.datasets.folder import (  # type: ignore[import-untyped]  # torchvision ships no types
    IMG_EXTENSIONS,
    find_classes,
)

from assay.data.images import (
    MODES,
    ImageSize,
    Look,
    check_reading,
    choose_size,
    decode,
    look_at,
    read_image,
    size_of,
    survey,
    too_many,
    verify,
)
from assay.data.placement import free_memory
from assay.data.samples import Samples, Stream
from assay.data.source_info import info_of
from assay.data.source_paths import check_path
from assay.errors import DataError
from assay.task.reconstruction import Reconstruction
from assay.task.single_label import Multiclass
from assay.task.task_of import infer_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from assay.task.task_name import TaskName

_SUBSETS = {"train", "val", "test"}
_PEEK = 32
_NAMED = 10
_NO_CLASS = -1
_JUNK = {"thumbs.db", "desktop.ini"}


@final
class ImageFolder:
    """`root/<class>/*.jpg`, or with subsets of its own `root/{train,val,test}/<class>/*.jpg`.

    The layout of `torchvision.datasets.ImageFolder`. With `classes=False` the images are taken as they lie,
    in folders or not, for a task that learns from them alone. Images become uint8 tensors `[C, H, W]`. If
    they have one size (or `image_size` gives them one) and take less than a quarter of the free memory, they
    are decoded once, by as many threads as there are cores; otherwise they are decoded by the loader's worker
    processes, sample by sample. Either way all files are looked at before training, and their SHA-256 is the
    data's; what was found of 1,000 files or more is kept in the user's cache folder.

    Args:
        root: The folder.
        image_size: Height and width every image is scaled to; None leaves them as they are; `auto`: those of
            the middle one where they differ, or are larger than 512 pixels, which `notes` says.
        mode: `RGB` or `GRAY`; other images are converted, transparency is left out.
        in_memory: `auto` as above; True or False to decide.
        on_bad: What to do about files that cannot be decoded: `error`, or `skip` to leave them out; `auto`
            leaves up to a twentieth of all files out.
        classes: Whether the folders are classes.

    Attributes:
        mode: As given.
        image_size: As given; what `auto` came to after `read()`.
        auto_size: Whether that was asked for.
        notes: What was left out, a sentence each; there after `read()`.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    info = info_of("assay.data.image_folder.ImageFolder")

    def __init__(
        self,
        root: str,
        image_size: ImageSize = None,
        mode: str = "RGB",
        in_memory: bool | str = "auto",
        on_bad: str = "error",
        *,
        classes: bool = True,
    ) -> None:
        self.auto_size = image_size == "auto"
        self.image_size = check_reading(image_size, mode, in_memory, on_bad)
        self._root, self.mode, self._in_memory = Path(root), mode, in_memory
        self._on_bad, self._classes = on_bad, classes
        self.task: TaskName = Multiclass.name if classes else Reconstruction.name
        self.class_names: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def read(self) -> Mapping[str, Samples | Stream]:
        """The subsets the folder has: `all`, or `train` and any of `val` and `test`."""
        self.notes = ()
        listed = {subset: self._list(subset, folder) for subset, folder in self._subset_folders().items()}
        files = [file for some in listed.values() for file in some]
        paths = [path for path, _ in files]
        if self.auto_size:
            self.image_size, told = choose_size(paths)
            self.notes = (*self.notes, told) if told else self.notes
        size = self.image_size or _common_size(paths)
        images: Tensor | None = None
        if size is not None and self._wanted_in_memory(size, len(files)):
            images, looks = self._decode(paths, size)
        else:
            looks = survey(self._root, paths)
        good = self._judge(files, looks)
        if self._in_memory is True and images is None:
            raise DataError(
                f"data.source.in_memory=true: the images in {self._root} have several sizes",
                hint="data.source.image_size=[224,224], or data.source.in_memory=auto",
            )
        subsets: dict[str, Samples | Stream] = {}
        start = 0
        for subset, some in listed.items():
            rows = [row for row in range(start, start + len(some)) if good[row]]
            start += len(some)
            kept = [files[row] for row in rows]
            self._refuse_empty(subset, kept)
            names = [Path(os.path.relpath(files[row][0], self._root)).as_posix() for row in rows]
            identity = "\n".join(f"{name} {looks[row].sha256}" for name, row in zip(names, rows, strict=True))
            hashes = [looks[row].sha256 for row in rows]
            if images is None:
                sizes = {looks[row].size: at for at, row in enumerate(rows)} if not self.image_size else {}
                unlike = tuple(sizes.values())[:_PEEK] if len(sizes) > 1 else ()
                files_of = _Files(kept, self.mode, self.image_size)
                subsets[subset] = Stream(files_of, _labels(kept), identity, unlike, names, hashes=hashes)
            else:
                whole = len(rows) == len(some)
                own = images[start - len(some) : start] if whole else images[torch.tensor(rows).long()]
                subsets[subset] = Samples(own, _labels(kept), identity, names, hashes=hashes)
        return subsets

    def _judge(self, files: list[tuple[str, int]], looks: list[Look]) -> list[bool]:
        """Which files can be used; the others are refused, or said to be left out."""
        bad = [
            f"{os.path.relpath(path, self._root)} ({look.bad})"
            for (path, _), look in zip(files, looks, strict=True)
            if look.bad
        ]
        several = sum(look.several for look in looks)
        if several:
            self._note(f"{several} image(s) have several frames or pages; the first one is used")
        if bad:
            more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
            told = f"{len(bad)} of {len(files)} images cannot be read: {'; '.join(bad[:_NAMED])}{more}"
            if too_many(len(bad), len(files), self._on_bad):
                raise DataError(
                    f"data.source.root={self._root}: {told}",
                    hint="repair or remove them, or leave them out: data.source.on_bad=skip",
                )
            self._note(f"{told}; left out, as data.source.on_bad={self._on_bad} says")
        return [not look.bad for look in looks]

    def _note(self, note: str) -> None:
        self.notes = (*self.notes, f"data.source.root={self._root}: {note}")

    def _subset_folders(self) -> dict[str, Path]:
        check_path(self._root, self.info.paths[0], "data.source.root")
        names = {entry.name for entry in self._root.iterdir() if entry.is_dir() and entry.name[0] != "."}
        if not self._classes and names & _SUBSETS != names:
            return {"all": self._root}
        if "train" not in names or (names - _SUBSETS and not names & (_SUBSETS - {"train"})):
            return {"all": self._root}  # `train` may be a class, beside `car` and `plane`
        if names - _SUBSETS:
            raise DataError(
                f"data.source.root={self._root}: beside train there is {sorted(names - _SUBSETS)[0]}",
                hint="name the subsets train, val and test, and keep nothing else in this folder",
            )
        return {subset: self._root / subset for subset in ("train", "val", "test") if subset in names}

    def _list(self, subset: str, folder: Path) -> list[tuple[str, int]]:
        if not self._classes:
            images, left = images_below(folder)
            self._note_others(Counter(left))
            if not images:
                raise DataError(
                    f"data.source.root={self._root}: {folder} has no image in it",
                    hint=f"images ({', '.join(IMG_EXTENSIONS)}) were expected",
                )
            return [(path, _NO_CLASS) for path in images]
        try:
            names = [name for name in find_classes(str(folder))[0] if not name.startswith(".")]
        except FileNotFoundError as error:
            raise DataError(
                f"data.source.root={self._root}: {folder} has no folder of images in it",
                hint="one folder per class was expected: root/<class>/*.jpg; to learn from images alone: "
                "data.source.classes=false task=reconstruction",
            ) from error
        if subset in ("all", "train"):
            self.class_names = tuple(names)
            self.task = infer_task(is_real=False, num_columns=1, num_classes=len(names))
        elif unknown := sorted(set(names) - set(self.class_names)):
            raise DataError(
                f"data.source.root={self._root}: {subset} has a class that training lacks: {unknown[0]}",
                hint="give train a folder of the same name, or remove this one",
            )
        found = {name: images_below(folder / name) for name in names}
        self._note_others(Counter(suffix for _, left in found.values() for suffix in left))
        indices = {name: index for index, name in enumerate(self.class_names)}
        return [(path, indices[name]) for name in names for path in found[name][0]]

    def _note_others(self, others: Counter[str]) -> None:
        if others:
            told = ", ".join(f"{count} × {suffix}" for suffix, count in others.most_common(5))
            self._note(f"files that are not images by their name are left out: {told}")

    def _refuse_empty(self, subset: str, files: list[tuple[str, int]]) -> None:
        if subset not in ("all", "train"):
            return
        found = {label for _, label in files}
        empty = [name for label, name in enumerate(self.class_names) if label not in found]
        if empty:
            raise DataError(
                f"data.source.root={self._root}: no image in the folder of class {', '.join(empty[:5])}",
                hint=f"remove the folder, or add images ({', '.join(IMG_EXTENSIONS)})",
            )

    def _wanted_in_memory(self, size: tuple[int, int] | None, count: int) -> bool:
        if self._in_memory != "auto":
            return bool(self._in_memory)
        return size is not None and count * MODES[self.mode][1] * size[0] * size[1] < free_memory() // 4

    def _decode(self, paths: list[str], size: tuple[int, int]) -> tuple[Tensor | None, list[Look]]:
        """All images as one tensor, None if one is of another size and may not be scaled."""
        images = torch.empty((len(paths), MODES[self.mode][1], *size), dtype=torch.uint8)
        other_size = False

        def take(index: int, content: bytes) -> tuple[int, int]:
            nonlocal other_size
            if other_size:
                return verify(content)
            image = decode(content, self.mode, self.image_size)
            if image.shape[1:] == images.shape[2:]:
                images[index] = image
            else:
                other_size = True
            return image.shape[1], image.shape[2]

        looks = look_at(paths, take)
        return None if other_size else images, looks


@final
class _Files:
    """Image files as `(uint8 [C, H, W], class index int64 [], or nothing [0])`."""

    def __init__(self, files: list[tuple[str, int]], mode: str, size: tuple[int, int] | None) -> None:
        self._files, self._mode, self._size = files, mode, size

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        path, _ = self._files[index]
        return read_image(path, self._mode, self._size), _labels(self._files[index : index + 1])[0]


def _common_size(paths: list[str]) -> tuple[int, int] | None:
    """Height and width, if a few images spread over all have the same; only their headers are read."""
    sizes = {size_of(path) for path in paths[:: max(1, len(paths) // _PEEK)]} - {None}
    return sizes.pop() if len(sizes) == 1 else None


def images_below(folder: Path) -> tuple[list[str], list[str]]:
    """Paths of the images below a folder, in order, and what else is there that is not hidden, by suffix."""
    images, others = [], []
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        here = os.path.realpath(parent)
        folders[:] = [name for name in folders if not name.startswith(".") and here not in seen]
        if here in seen:  # a link that leads back
            continue
        seen.add(here)
        others += ["folder named as an image" for name in folders if _is_image(name)]
        for name in names:
            if name.startswith(".") or name.lower() in _JUNK:
                continue
            if _is_image(name):
                images.append((parent, name))
            else:
                others.append(Path(name).suffix.lower() or "no suffix")
    return [str(Path(parent) / name) for parent, name in sorted(images)], others


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMG_EXTENSIONS)


def _labels(files: list[tuple[str, int]]) -> Tensor:
    if files and files[0][1] == _NO_CLASS:
        return torch.zeros(len(files), 0, dtype=torch.int64)
    return torch.tensor([label for _, label in files], dtype=torch.int64)
