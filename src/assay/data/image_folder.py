"""Images in folders named as their classes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from PIL import Image
from torchvision.datasets.folder import (  # type: ignore[import-untyped]  # torchvision ships no types
    IMG_EXTENSIONS,
    find_classes,
    make_dataset,
)
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.memory import free_memory
from assay.data.samples import Samples, Stream
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from assay.data.spec import Task

_MODES = {"RGB": ("RGB", 3), "GRAY": ("L", 1)}
_PARTS = {"train", "val", "test"}
_PEEK = 32
_CHUNK = 32


@final
class ImageFolder:
    """`root/<class>/*.jpg`, or with parts of its own `root/{train,val,test}/<class>/*.jpg`.

    The layout of `torchvision.datasets.ImageFolder`. Images become uint8 tensors `[C, H, W]`. If they have
    one size (or `image_size` gives them one) and take less than a quarter of the free memory, they are
    decoded once, by as many threads as there are cores; otherwise they are decoded by the loader's worker
    processes, sample by sample.

    Args:
        root: The folder.
        image_size: Height and width every image is scaled to; None leaves them as they are.
        mode: `RGB` or `GRAY`; other images are converted, transparency is left out.
        in_memory: `auto` as above; True or False to decide.

    Raises:
        ValueError: An argument is none of its choices.
    """

    task: Task = "multiclass"

    def __init__(
        self,
        root: str,
        image_size: Sequence[int] | None = None,
        mode: str = "RGB",
        in_memory: bool | str = "auto",
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode={mode!r}: RGB or GRAY was expected")
        if in_memory not in (True, False, "auto"):
            raise ValueError(f"in_memory={in_memory!r}: auto, true or false was expected")
        if image_size is not None and (len(image_size) != 2 or min(image_size) < 1):
            raise ValueError(f"image_size={list(image_size)}: [height, width] was expected")
        self._root, self._mode, self._in_memory = Path(root), mode, in_memory
        self._size = None if image_size is None else (int(image_size[0]), int(image_size[1]))
        self.class_names: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Nothing to download."""

    def read(self) -> Mapping[str, Samples | Stream]:
        """The parts the folder has: `all`, or `train` and any of `val` and `test`.

        Raises:
            DataError: The folder is missing or no such folder, a class has no image, a file is no image.
        """
        listed = {part: self._list(part, folder) for part, folder in self._part_folders().items()}
        size = self._size or _common_size([path for files in listed.values() for path, _ in files])
        if self._wanted_in_memory(size, sum(map(len, listed.values()))) and size:
            decoded = {part: self._decode(files, size) for part, files in listed.items()}
            if all(samples is not None for samples in decoded.values()):
                return {part: samples for part, samples in decoded.items() if samples is not None}
        if self._in_memory is True:
            raise DataError(
                f"data.source.in_memory=true: the images in {self._root} have several sizes",
                hint="data.source.image_size=[224,224], or data.source.in_memory=auto",
            )
        return {part: self._stream(files) for part, files in listed.items()}

    def _part_folders(self) -> dict[str, Path]:
        if not self._root.is_dir():
            raise DataError(
                f"data.source.root={self._root}: there is no such folder",
                hint="set data.source.root=/path/to/images",
            )
        names = {entry.name for entry in self._root.iterdir() if entry.is_dir()}
        if "train" not in names or (names - _PARTS and not names & (_PARTS - {"train"})):
            return {"all": self._root}  # `train` may be a class, beside `car` and `plane`
        if names - _PARTS:
            raise DataError(
                f"data.source.root={self._root}: beside train there is {sorted(names - _PARTS)[0]}",
                hint="name the parts train, val and test, and keep nothing else in this folder",
            )
        return {part: self._root / part for part in ("train", "val", "test") if part in names}

    def _list(self, part: str, folder: Path) -> list[tuple[str, int]]:
        try:
            names, _ = find_classes(str(folder))
        except FileNotFoundError as error:
            raise DataError(
                f"data.source.root={self._root}: {folder} has no folder of images in it",
                hint="one folder a class was expected: root/<class>/*.jpg",
            ) from error
        if part in ("all", "train"):
            self.class_names = tuple(names)
        elif unknown := sorted(set(names) - set(self.class_names)):
            raise DataError(
                f"data.source.root={self._root}: {part} has a class that training lacks: {unknown[0]}",
                hint="give train a folder of the same name, or remove this one",
            )
        indices = {name: index for index, name in enumerate(self.class_names) if name in names}
        files: list[tuple[str, int]]
        files = make_dataset(str(folder), indices, extensions=IMG_EXTENSIONS, allow_empty=True)
        found = {label for _, label in files}
        empty = [name for name, index in indices.items() if index not in found]
        if empty and part in ("all", "train"):
            raise DataError(
                f"data.source.root={self._root}: no image in the folder of class {', '.join(empty[:5])}",
                hint=f"remove the folder, or add images ({', '.join(IMG_EXTENSIONS)})",
            )
        return files

    def _wanted_in_memory(self, size: tuple[int, int] | None, count: int) -> bool:
        if self._in_memory != "auto":
            return bool(self._in_memory)
        return size is not None and count * _MODES[self._mode][1] * size[0] * size[1] < free_memory() // 4

    def _decode(self, files: list[tuple[str, int]], size: tuple[int, int]) -> Samples | None:
        """All images as one tensor; None if one is of another size and may not be scaled."""
        images = torch.empty((len(files), _MODES[self._mode][1], *size), dtype=torch.uint8)

        def decode(start: int) -> bool:
            for index in range(start, min(start + _CHUNK, len(files))):
                image = read_image(files[index][0], self._mode, self._size)
                if image.shape[1:] != images.shape[2:]:
                    return False
                images[index] = image
            return True

        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            complete = all(pool.map(decode, range(0, len(files), _CHUNK)))
        finally:
            pool.shutdown(cancel_futures=True)
        return Samples(images, _labels(files), self._identity(files)) if complete else None

    def _stream(self, files: list[tuple[str, int]]) -> Stream:
        return Stream(_Files(files, self._mode, self._size), _labels(files), self._identity(files))

    def _identity(self, files: list[tuple[str, int]]) -> str:
        return "\n".join(
            f"{os.path.relpath(path, self._root)} {Path(path).stat().st_size}" for path, _ in files
        )


@final
class _Files:
    """Image files as `(uint8 [C, H, W], class index)`."""

    def __init__(self, files: list[tuple[str, int]], mode: str, size: tuple[int, int] | None) -> None:
        self._files, self._mode, self._size = files, mode, size

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self._files[index]
        return read_image(path, self._mode, self._size), label


def read_image(path: str, mode: str = "RGB", size: tuple[int, int] | None = None) -> Tensor:
    """Decode an image file.

    Args:
        path: Any file Pillow can read.
        mode: `RGB` or `GRAY`.
        size: Height and width to scale to (bilinear, antialiased); None leaves the image as it is.

    Returns:
        uint8 `[C, H, W]`.

    Raises:
        DataError: The file is no image, or damaged.
    """
    try:
        with Image.open(path) as opened:
            decoded: Tensor = F.pil_to_tensor(_plain(opened).convert(_MODES[mode][0]))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error
    if size is not None:
        decoded = F.resize(decoded, list(size), antialias=True)
    return decoded


def _plain(image: Image.Image) -> Image.Image:
    """What Pillow would convert wrongly or with a warning: 16 bits, palettes with transparency."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
    return image.convert("RGBA") if image.mode == "P" else image


def _unreadable(path: str, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read as an image: {error}", hint="repair or remove this file (data.source.root)"
    )


def _common_size(paths: list[str]) -> tuple[int, int] | None:
    """Height and width, if a few images spread over all have the same; only their headers are read."""
    sizes = set()
    for path in paths[:: max(1, len(paths) // _PEEK)]:
        try:
            with Image.open(path) as image:
                sizes.add((image.height, image.width))
        except (OSError, ValueError, SyntaxError) as error:
            raise _unreadable(path, error) from error
    return sizes.pop() if len(sizes) == 1 else None


def _labels(files: list[tuple[str, int]]) -> Tensor:
    return torch.tensor([label for _, label in files], dtype=torch.int64)
