"""What sources of picture files have in common: which files there are, and how they are read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.images import (
    MODES,
    ImageSize,
    Look,
    check_size,
    choose_size,
    decode,
    look_at,
    size_of,
    survey,
    too_many,
)
from assay.data.placement import free_memory
from assay.data.source_paths import check_path
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from assay.data.samples import Samples, Stream
    from assay.data.source_info import SourceInfo

SUBSETS = ("train", "val", "test")
NO_CLASS = -1
NAMED = 10
"""Files that are named in a message; there may be thousands."""
PEEK = 32
_JUNK = {"thumbs.db", "desktop.ini"}


class Picture(NamedTuple):
    """A file, by its path and by its name within the folder."""

    name: str
    path: str
    label: int = NO_CLASS
    mask: str = ""


class PictureFolder(ABC):
    """Reads the pictures of a folder: at once where they have one size and memory allows, else one by one.

    Attributes:
        mode: As given.
        image_size: As given; what `auto` came to after `read()`.
        auto_size: Whether that was asked for.
        notes: What was left out or decided, a sentence each; there after `read()`.
    """

    info: ClassVar[SourceInfo]
    bytes_per_target: ClassVar = 0
    """Of a pixel, where targets are as large as pictures."""

    def __init__(
        self, root: str, image_size: ImageSize, mode: str, in_memory: bool | str, on_bad: str
    ) -> None:
        self.auto_size, self.image_size = image_size == "auto", check_size(image_size)
        self.mode, self.class_names, self.notes = mode, tuple[str, ...](), tuple[str, ...]()
        self._root, self._in_memory, self._on_bad = Path(root), in_memory, on_bad

    @abstractmethod
    def _list(self) -> dict[str, list[Picture]]:
        """The pictures of each subset the folder has: `all`, or `train` and any of `val` and `test`."""

    def _common_size(self, pictures: Sequence[Picture]) -> tuple[int, int] | None:
        """Height and width, if the pictures seem to have the same; asked before they are read."""
        sizes = {size_of(one.path) for one in pictures[:: max(1, len(pictures) // PEEK)]} - {None}
        return sizes.pop() if len(sizes) == 1 else None

    @abstractmethod
    def _problems(self, pictures: Sequence[Picture], looks: Sequence[Look]) -> dict[str, str]:
        """Why pictures cannot be used, by their names."""

    @abstractmethod
    def _subset(
        self,
        subset: str,
        pictures: Sequence[Picture],
        looks: Sequence[Look],
        images: Tensor | None,
    ) -> Samples | Stream:
        """The samples of a subset; `images` are theirs, where they were decoded."""

    def read(self) -> Mapping[str, Samples | Stream]:
        """The subsets the folder has: `all`, or `train` and any of `val` and `test`."""
        self.notes = ()
        check_path(self._root, self.info.paths[0], "data.source.root")
        listed = self._list()
        pictures = [picture for some in listed.values() for picture in some]
        paths = [picture.path for picture in pictures]
        if self.auto_size:
            self.image_size, told = choose_size(paths)
            self.notes += (told,) if told else ()
        size = self.image_size or self._common_size(pictures)
        images, looks = None, list[Look]()
        if size is not None and self._fit_in_memory(size, len(paths)):
            images, looks = self._decode(paths, size)
        else:
            looks = survey(self._root, paths)
        problems = self._problems(pictures, looks)
        self._judge(problems, len(pictures) + len(problems.keys() - {picture.name for picture in pictures}))
        good = [picture.name not in problems for picture in pictures]
        sizes = {look.size for look, is_good in zip(looks, good, strict=True) if is_good}
        if not self.image_size and sizes != {size}:
            images = None
        if self._in_memory is True and images is None:
            raise DataError(
                f"data.source.in_memory=true: the pictures in {self._root} have several sizes",
                hint="data.source.image_size=[224,224], or data.source.in_memory=auto",
            )
        subsets: dict[str, Samples | Stream] = {}
        start = 0
        for subset, some in listed.items():
            rows = [row for row in range(start, start + len(some)) if good[row]]
            own = images
            if images is not None:
                whole = len(rows) == len(some)
                own = images[start : start + len(some)] if whole else images[torch.tensor(rows).long()]
            chosen = [pictures[row] for row in rows]
            subsets[subset] = self._subset(subset, chosen, [looks[row] for row in rows], own)
            start += len(some)
        return subsets

    def _note(self, note: str) -> None:
        self.notes += (f"data.source.root={self._root}: {note}",)

    def _refuse(self, message: str, hint: str) -> DataError:
        return DataError(f"data.source.root={self._root}: {message}", hint=hint)

    def _fit_in_memory(self, size: tuple[int, int], count: int) -> bool:
        if self._in_memory != "auto":
            return bool(self._in_memory)
        pixel = MODES[self.mode][1] + self.bytes_per_target
        return count * pixel * size[0] * size[1] < free_memory() // 4

    def _decode(self, paths: Sequence[str], size: tuple[int, int]) -> tuple[Tensor, list[Look]]:
        """All pictures as one tensor, and what is known of each; one of another size is left zero."""
        images = torch.zeros((len(paths), MODES[self.mode][1], *size), dtype=torch.uint8)

        def take(index: int, content: bytes) -> tuple[int, int]:
            image = decode(content, self.mode, None)
            found = image.shape[1], image.shape[2]
            if self.image_size is not None:
                image = F.resize(image, list(self.image_size), antialias=True)
            if image.shape[1:] == images.shape[2:]:
                images[index] = image
            return found

        return images, look_at(paths, take)

    def _judge(self, problems: Mapping[str, str], count: int) -> None:
        """Refuse pictures that cannot be used, or say that they are left out."""
        if not problems:
            return
        told = "; ".join(f"{name} ({why})" for name, why in list(problems.items())[:NAMED])
        others = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        message = f"{len(problems)} of {count} pictures cannot be used: {told}{others}"
        if too_many(len(problems), count, self._on_bad):
            raise self._refuse(message, "repair or remove them, or leave them out: data.source.on_bad=skip")
        self._note(f"{message}; left out, as data.source.on_bad={self._on_bad} says")

    def _unlike(self, looks: Sequence[Look]) -> tuple[int, ...]:
        """Some pictures of each size, where there are several."""
        sizes = {} if self.image_size else {look.size: at for at, look in enumerate(looks)}
        return tuple(sizes.values())[:PEEK] if len(sizes) > 1 else ()


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
