"""What sources of encoded images have in common: folders of them are read at once or one by one."""

from __future__ import annotations

import os
from abc import abstractmethod
from functools import partial
from itertools import compress, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.placement import free_memory
from assay.data.core.samples import LazyDataset, Samples
from assay.data.core.source import Source
from assay.data.core.source_files import check_path, note_bad
from assay.data.image.decode import (
    MODES,
    Decoding,
    ImageSize,
    MaxValue,
    Size,
    decode_with_size,
    largest_value,
    read_as,
    read_header,
    verify,
)
from assay.data.image.image_cache import (
    FileScan,
    Pictures,
    decode_in_memory,
    decode_once,
    scan_images,
    takes_long,
)
from assay.errors import DataError, check_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from assay.data.image.image_cache import Decode


IMAGE_SUFFIXES: tuple[str, ...] = (*IMG_EXTENSIONS, ".gif")
_MOST_LOOKED_AT = 1000
_LARGE = 512
_LONGEST = 224
"""Headers, and pixels: a side from which on images are scaled, and what it is scaled to."""


def choose_size(shapes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int] | None, str]:
    """The size that images are scaled to where `auto` is asked for, and a sentence on it."""
    sizes = set(shapes)
    if not sizes or (len(sizes) == 1 and max(shapes[0]) <= _LARGE):
        return None, ""
    middle = np.median(np.array(shapes), 0)
    scale = min(1.0, _LONGEST / middle.max())
    height, width = (max(8, int(scale * side / 8 + 0.5) * 8) for side in middle)
    subject = "images are"
    if len(sizes) > 1:
        subject = f"images of {len(sizes):,} sizes are"
    return (height, width), (
        f"data.source.image_size=auto: {subject} scaled to {height}×{width} (height × width)"
    )


def choose_max_value(values: Iterable[int]) -> tuple[int | None, str]:
    """What images of 16 bits are scaled by where `auto` is asked for, and a sentence on it."""
    highest = max(values, default=0)
    if not highest:
        return None, ""
    scale = (1 << highest.bit_length()) - 1
    return scale, (
        f"data.source.max_value=auto: images of 16 bits have values up to {highest:,}, scaled to 8 bits, "
        f"{scale:,} to 255"
    )


NO_CLASS = -1
PEEK = 32
_JUNK = {"thumbs.db", "desktop.ini"}


class ImageFile(NamedTuple):
    """A file, by its path, its name within the folder, and its row among all that are read."""

    name: str
    path: str
    label: int = NO_CLASS
    mask: str = ""
    row: int = 0


class DecodedImages(Source):
    """A source of encoded images.

    Attributes:
        mode: As given.
        image_size: As given; what `auto` came to after `read()`.
        max_value: As `image_size`.
        auto_size: Whether that was asked for.
        notes: What was left out or decided, a sentence each; there after `read()`.
    """

    notes: tuple[str, ...] = ()

    def _set_decoding(self, mode: str, image_size: ImageSize, max_value: MaxValue) -> None:
        self.mode = mode
        self.auto_size = image_size == "auto"
        self._auto_value = max_value == "auto"
        if image_size is not None and image_size != "auto":
            height, width = image_size
            check_numbers("[1, inf)", image_size=(height, width))
            self.image_size = int(height), int(width)
        if max_value != "auto":
            check_numbers("[1, 65535]", max_value=max_value)
            self.max_value = max_value

    @property
    def decoding(self) -> Decoding:
        """How its images are decoded."""
        return self.mode, self.image_size, self.max_value

    def _choose_decoding(self, sizes: Iterable[Size], values: Iterable[int]) -> None:
        """Choose what `auto` stands for by some of the images."""
        if self.auto_size:
            self.image_size, note = choose_size([size for size in sizes if size])
            if note:
                self.notes += (note,)
        if self._auto_value:
            self.max_value, note = choose_max_value(values)
            if note:
                self.notes += (note,)


class ImageSource(DecodedImages):
    """Reads the images of a folder: decoded once where the cache or memory has room, else one by one."""

    def __init__(
        self,
        root: str,
        image_size: ImageSize,
        mode: str,
        in_memory: bool | str,
        on_bad: str,
        *,
        max_value: MaxValue,
    ) -> None:
        self._set_decoding(mode, image_size, max_value)
        self._root = Path(root)
        self._in_memory = in_memory
        self._on_bad = on_bad
        self._unusable: list[tuple[str, str]] = []
        """Images that are not listed, with the reason."""

    @abstractmethod
    def _list(self) -> dict[str, list[ImageFile]]:
        """The images of each subset the folder has: `all`, or `train` and any of `val` and `test`."""

    def _problem(self, file: ImageFile, scan: FileScan) -> str:
        """Why an image cannot be used; empty where it can."""
        del file
        return scan.bad

    @abstractmethod
    def _targets(self, subset: str, files: Sequence[ImageFile], images: Tensor | None) -> Tensor:
        """Targets of a subset, or what stands for them where its images were not decoded."""

    @abstractmethod
    def _target_reader(self) -> Callable[[ImageFile], Tensor]:
        """What gives a streamed image its target."""

    def _identity(self, files: Sequence[ImageFile], looks: Sequence[FileScan]) -> str:
        """What stands for the contents of images and targets."""
        return "\n".join(
            f"{one.name} {look.sha256}" for one, look in zip(files, looks, strict=True)
        )

    def read(self) -> Mapping[str, Samples]:
        """The subsets the folder has: `all`, or `train` and any of `val` and `test`."""
        self.notes = ()
        check_path(self._root, self.info.paths[0], "data.source.root")
        rows = count()
        listed = {
            subset: [file._replace(row=next(rows)) for file in some]
            for subset, some in self._list().items()
        }
        files = [file for some in listed.values() for file in some]
        paths = [file.path for file in files]
        spread = paths[:: -(-len(paths) // _MOST_LOOKED_AT) or 1]
        headers = [header for header in map(read_header, spread) if header]
        sizes = []
        if self.auto_size or not self.image_size:
            sizes = [size for size, _ in headers]
        self._choose_decoding(sizes, map(largest_value, spread))
        if any(has_more for _, has_more in headers):
            self._note("of images with several frames or pages, the first one is used")
        self._choose_scaling(sizes)
        self._read_targets(files)
        form = self.mode
        if self.max_value is not None:
            form += f", up to {self.max_value}"
        decoded = self._decode(paths, form, MODES[self.mode][1], self._decode_image)
        pictures, looks = decoded or (None, scan_images(self._root, paths, verify))
        scanned = zip(files, looks, strict=True)
        bad = [(file.name, why) for file, look in scanned if (why := self._problem(file, look))]
        problems = dict(bad)
        bad = [*self._unusable, *bad]
        if bad:
            total = len(files) + len(self._unusable)
            mend = "repair or remove them"
            self.notes += (
                note_bad(self._where, "image", bad, total, on_bad=self._on_bad, mend=mend),
            )
        good = [file.name not in problems for file in files]
        images = self._as_tensor(pictures, looks, good)
        if self._in_memory is True and images is None:
            message = f"data.source.in_memory=true: the images in {self._root} have several sizes"
            raise DataError(
                message, hint="data.source.image_size=[224,224], or data.source.in_memory=auto"
            )
        looks = list(compress(looks, good))
        read_input = partial(_read_input, pictures, self._decode_image)
        subsets: dict[str, Samples] = {}
        start = 0
        for subset, some in listed.items():
            chosen = [file for file in some if file.name not in problems]
            block = slice(start, start + len(chosen))
            some_images = None
            if images is not None:
                some_images = images[block]
            subsets[subset] = self._subset(subset, chosen, looks[block], some_images, read_input)
            start += len(chosen)
        return subsets

    def _subset(
        self,
        subset: str,
        files: Sequence[ImageFile],
        looks: Sequence[FileScan],
        images: Tensor | None,
        read_input: Callable[[ImageFile], Tensor],
    ) -> Samples:
        targets = self._targets(subset, files, images)
        identity = self._identity(files, looks)
        names = [file.name for file in files]
        hashes = [look.sha256 for look in looks]
        if images is not None:
            return Samples(images, targets, identity, names, hashes=hashes)
        reader = partial(_read_sample, files, read_input, self._target_reader())
        lazy = LazyDataset(len(files), reader)
        # Some images of each size, where there are several.
        unlike: tuple[int, ...] = ()
        if not self.image_size:
            sizes = {look.size: position for position, look in enumerate(looks)}
            if len(sizes) > 1:
                unlike = tuple(sizes.values())[:PEEK]
        return Samples(lazy, targets, identity, names, hashes=hashes, unlike=unlike)

    @property
    def _where(self) -> str:
        return f"data.source.root={self._root}"

    def _note(self, note: str) -> None:
        self.notes += (f"{self._where}: {note}",)

    def _error(self, message: str, hint: str) -> DataError:
        return DataError(f"{self._where}: {message}", hint=hint)

    def _choose_scaling(self, sizes: Sequence[tuple[int, int]]) -> None:
        """Choose how images are scaled before they are kept: as the transforms begin, if that is smaller."""
        self._scaling = None
        self._num_pixels = 0.0
        if self.image_size:
            self._num_pixels = float(np.prod(self.image_size))
        elif sizes:
            areas = np.prod(sizes, 1)
            self._num_pixels = float(areas.mean())
            if self.resize is not None:
                side, *others = self.resize.size
                scaled = side**2 * areas / np.min(sizes, 1) ** 2
                if others:
                    scaled = np.array([side * others[0]])
                if scaled.mean() < self._num_pixels:
                    self._scaling = self.resize
                    self._num_pixels = float(scaled.mean())

    def _read_targets(self, files: Sequence[ImageFile]) -> None:
        """Read targets that lie in files."""

    def _decode(
        self, paths: Sequence[str], form: str, channels: int, decode_content: Decode
    ) -> tuple[Pictures, list[FileScan]] | None:
        """All images or masks and a look at each; None where neither cache nor memory has room for them."""
        if self._in_memory is False:
            return None
        picture_bytes = channels * self._num_pixels
        num_bytes = picture_bytes * len(paths)
        if self._scaling is not None:
            form += f", {self._scaling}"
        elif self.image_size:
            form += f", scaled to {self.image_size[0]}×{self.image_size[1]}"
        if takes_long(paths):
            try:
                return decode_once(
                    *(self._root, paths, form, channels, decode_content),
                    picture_bytes=picture_bytes,
                )
            except OSError as error:
                self._note(f"decoded images are not kept for the next job: {error}")
        if self._in_memory == "auto" and num_bytes >= free_memory() // 4:
            return None
        return decode_in_memory(paths, channels, decode_content, picture_bytes)

    @property
    def _decode_image(self) -> Decode:
        return partial(_decode_scaled, decoding=self.decoding, scaling=self._scaling)

    def _as_tensor(
        self, pictures: Pictures | None, looks: Sequence[FileScan], good: Sequence[bool]
    ) -> Tensor | None:
        """All usable images, where they have one size and memory has room for them."""
        if pictures is None or pictures.size is None:
            return None
        if self._in_memory == "auto" and pictures.num_bytes >= free_memory() // 2:
            return None
        images = pictures.as_tensor()
        usable = [is_good for look, is_good in zip(looks, good, strict=True) if not look.bad]
        if not all(usable):
            return images[torch.tensor(usable)]
        return images


def _read_sample(
    files: Sequence[ImageFile],
    read_input: Callable[[ImageFile], Tensor],
    read_target: Callable[[ImageFile], Tensor],
    index: int,
) -> tuple[Tensor, Tensor]:
    """An image file as `(uint8 [C, H, W], target)`."""
    return read_input(files[index]), read_target(files[index])


def _read_input(pictures: Pictures | None, decode: Decode, file: ImageFile) -> Tensor:
    if pictures is not None:
        return pictures[file.row]
    return read_as("an image", file.path, lambda content: decode(content)[1])


def _decode_scaled(
    content: bytes, *, decoding: Decoding, scaling: Any
) -> tuple[FileScan, Tensor]:
    image, size = decode_with_size(content, *decoding)
    if scaling is not None:
        image = scaling(image)
    return FileScan(size=size), image


def list_images(folder: Path) -> tuple[list[str], list[str]]:
    """Paths of the images below a folder, in order, and what else is there that is not hidden, by suffix."""
    images = []
    others = []
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real_path = os.path.realpath(parent)
        if real_path in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real_path)
        folders[:] = [name for name in folders if not name.startswith(".")]
        others += [
            "folder named as an image"
            for name in folders
            if name.lower().endswith(IMAGE_SUFFIXES)
        ]
        for name in names:
            if name.startswith(".") or name.lower() in _JUNK:
                continue
            if name.lower().endswith(IMAGE_SUFFIXES):
                images.append((parent, name))
            else:
                others.append(Path(name).suffix.lower() or "no suffix")
    return [f"{parent}{os.sep}{name}" for parent, name in sorted(images)], others
