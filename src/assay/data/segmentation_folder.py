"""Pictures with a mask each: two folders with files of the same names."""

from __future__ import annotations

import io
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.image_folder import images_below
from assay.data.images import (
    MODES,
    ImageSize,
    Look,
    check_reading,
    choose_size,
    decode,
    look_at,
    read_bytes,
    read_image,
    survey,
    too_many,
)
from assay.data.placement import free_memory
from assay.data.samples import Samples, Stream
from assay.data.source_info import info_of
from assay.data.source_paths import check_path
from assay.errors import DataError
from assay.task.segmentation import IGNORED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.task.task_name import TaskName

_FORMATS = ("PNG", "BMP", "DIB", "PPM", "TIFF", "GIF")
"""Those that keep values as they are: a JPEG would make others of them."""


def read_mask(path: str, size: tuple[int, int] | None = None) -> Tensor:
    """The values of a mask's pixels."""
    try:
        return decode_mask(read_bytes(path), size)
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read as a mask: {error}",
            hint="repair or remove this file (data.source.root)",
        ) from error


def decode_mask(content: bytes, size: tuple[int, int] | None = None) -> Tensor:
    """The values of a mask's pixels."""
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as opened:
            opened.load()
            values = _values(opened)
    except ValueError:
        raise
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(
            "it is a JPEG, which changes the values"
            if content.startswith(b"\xff\xd8")
            else f"it is not a PNG file: {error}"
        ) from error
    if size is not None and values.shape != tuple(size):
        scaled = Image.fromarray(values, "L").resize((size[1], size[0]), Image.Resampling.NEAREST)
        values = np.asarray(scaled)
    return torch.from_numpy(np.array(values))


def _values(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode == "1":
        return np.asarray(image).astype(np.uint8)
    if image.mode in ("L", "P"):  # of a palette the indices, not the colours
        return np.asarray(image)
    if image.mode in ("LA", "PA"):
        return np.asarray(image)[:, :, 0]
    if image.mode in ("RGB", "RGBA"):
        channels = np.asarray(image)[:, :, :3]
        if (channels == channels[:, :, :1]).all():
            return channels[:, :, 0]
        raise ValueError("it has colours; a class per pixel, as grey values or a palette, was expected")
    if image.mode.startswith("I"):
        whole = np.asarray(image)
        if whole.min() >= 0 and whole.max() <= 255:
            return whole.astype(np.uint8)
        raise ValueError(f"it has values up to {whole.max()}; 0 to 255 were expected")
    raise ValueError(
        f"Pillow's mode {image.mode} is not that of a mask; grey values or a palette were expected"
    )


NUM_VALUES: Final = 256


@final
class ClassValues:
    """The values that stand for classes, given or found."""

    def __init__(
        self, class_names: Sequence[str] | None, values: Sequence[int] | None, ignore_value: int | None
    ) -> None:
        if class_names is not None and not 2 <= len(set(class_names)) == len(class_names) <= IGNORED:
            raise ValueError(
                f"class_names={list(class_names)}: two to {IGNORED} different names were expected"
            )
        for value in (*(values or ()), *([] if ignore_value is None else [ignore_value])):
            if type(value) is not int or not 0 <= value < NUM_VALUES:
                raise ValueError(
                    f"values and ignore_value: whole numbers from 0 to 255 were expected, not {value!r}"
                )
        if values is not None and not 2 <= len(set(values)) == len(values):
            raise ValueError(f"values={list(values)}: two or more different numbers were expected")
        if class_names is not None and values is not None and len(class_names) != len(values):
            raise ValueError(f"there are {len(class_names)} class_names for {len(values)} values")
        self._names = None if class_names is None else tuple(map(str, class_names))
        self._values = None if values is None else tuple(values)
        self._ignored = ignore_value
        self.in_words = ""

    def found(self, counts: NDArray[np.int32]) -> tuple[tuple[str, ...], Tensor, str]:
        """Names of the classes, the class of each value, and what was decided."""
        there = np.flatnonzero(counts.any(0)).tolist()
        values, note = self._values, ""
        if values is None and there == [0, 255] and (self._names is None or len(self._names) == 2):
            values = (0, 255)
            note = "the masks have the values 0 and 255 alone: these are the two classes"
        if values is None:
            known = [value for value in there if value != self._ignored]
            if self._names is None and known != list(range(len(known))):
                raise DataError(
                    f"data.source.values: the masks have the values {_listed(known)}, which do not number "
                    "classes from 0",
                    hint=f"data.source.values=[{','.join(map(str, known[:20]))}], or data.source.class_names="
                    "[…] with a name for each, those without a pixel included",
                )
            values = tuple(range(len(self._names) if self._names is not None else len(known)))
        names = self._names or tuple(map(str, range(len(values))))
        table = torch.full((NUM_VALUES,), -1, dtype=torch.int64)
        if self._ignored is not None:
            table[self._ignored] = IGNORED
        table[list(values)] = torch.arange(len(values))
        self.in_words = _listed(list(values))
        return names, table, note


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:20])) + (", …" if len(values) > 20 else "")


_SUBSETS = ("train", "val", "test")
_IMAGES, _MASKS = "images", "masks"
_PEEK = 32
_NAMED = 10


class _Pair(NamedTuple):
    name: str
    image: str
    mask: str


@final
class SegmentationFolder:
    """`root/images/*.jpg` with `root/masks/*.png`: a mask is called as its picture, but for the suffix.

    With subsets of its own: `root/{train,val,test}/images` and `…/masks`, or `root/images/{train,val,test}`.
    Pictures are decoded as by `assay.data.image_folder.ImageFolder`: once where they have one size (or
    `image_size` gives them one) and take less than a quarter of the free memory, else sample by sample. All
    files are looked at before training.

    A mask has the class of each pixel as grey values or as a palette. What is wrong with any pair of files is
    told with its name: a mask that is missing, of another size, or with a value that is not a class.

    Args:
        root: The folder.
        image_size: Height and width that pictures (bilinear) and masks (nearest) are scaled to; None leaves
            them as they are; `auto` as for `assay.data.image_folder.ImageFolder`.
        mode: `RGB` or `GRAY`; other pictures are converted, transparency is left out.
        class_names: A name for each class; None: their numbers.
        values: The value of each class in the masks; None: 0, 1, 2, …; of masks of 0 and 255 these two.
        ignore_value: Of pixels that neither loss nor metrics see; None for none.
        in_memory: `auto` as above; True or False to decide.
        on_bad: What to do about pairs that cannot be used: `error`, or `skip` to leave them out; `auto`
            leaves up to a twentieth of them out.

    Attributes:
        mode: As given.
        image_size: As given; what `auto` came to after `read()`.
        auto_size: Whether that was asked for.
        notes: What was left out or decided, a sentence each; there after `read()`.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    info = info_of("assay.data.segmentation_folder.SegmentationFolder")

    task: TaskName = "segmentation"

    def __init__(
        self,
        root: str,
        image_size: ImageSize = None,
        mode: str = "RGB",
        *,
        class_names: Sequence[str] | None = None,
        values: Sequence[int] | None = None,
        ignore_value: int | None = 255,
        in_memory: bool | str = "auto",
        on_bad: str = "error",
    ) -> None:
        self.auto_size = image_size == "auto"
        self.image_size = check_reading(image_size, mode, in_memory, on_bad)
        self._root, self.mode, self._in_memory, self._on_bad = Path(root), mode, in_memory, on_bad
        self._classes = ClassValues(class_names, values, ignore_value)
        self.class_names: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def read(self) -> Mapping[str, Samples | Stream]:
        """The subsets the folder has: `all`, or `train` and any of `val` and `test`."""
        self.notes = ()
        check_path(self._root, self.info.paths[0], "data.source.root")
        problems: dict[str, str] = {}
        folders = subset_folders(self._root)
        listed = {subset: self._pairs(*pair, problems) for subset, pair in folders.items()}
        pairs = [pair for some in listed.values() for pair in some]
        if self.auto_size:
            self.image_size, told = choose_size([pair.image for pair in pairs])
            self.notes += (told,) if told else ()
        counts, masks = self._look_at_masks(pairs)
        images, looks = self._look_at_images(pairs, masks)
        self.class_names, table, note = self._classes.found(counts[[not look.bad for look in masks]])
        self.notes += (f"data.source.root={self._root}: {note}",) if note else ()
        bad = [self._problem(*one, table) for one in zip(looks, masks, counts, strict=True)]
        problems |= {pair.name: why for pair, why in zip(pairs, bad, strict=True) if why}
        self._judge(problems, len(pairs) + len(problems.keys() - {pair.name for pair in pairs}))
        sizes = {look.size for look, why in zip(looks, bad, strict=True) if not why}
        if images is not None and not self.image_size and sizes != {tuple(images.shape[2:])}:
            images = None
        if self._in_memory is True and images is None:
            raise DataError(
                f"data.source.in_memory=true: the pictures in {self._root} have several sizes",
                hint="data.source.image_size=[224,224], or data.source.in_memory=auto",
            )
        subsets: dict[str, Samples | Stream] = {}
        start = 0
        for subset, some in listed.items():
            rows = [row for row in range(start, start + len(some)) if not bad[row]]
            start += len(some)
            chosen = [pairs[row] for row in rows]
            names = [pair.name for pair in chosen]
            identity = "\n".join(
                f"{pair.name} {looks[row].sha256} {masks[row].sha256}"
                for pair, row in zip(chosen, rows, strict=True)
            )
            identity += f"\n{table.tolist()}"
            if images is not None:
                targets = torch.empty(len(chosen), *images.shape[2:], dtype=torch.uint8)
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    for at, mask in enumerate(pool.map(partial(self._mask, table), chosen)):
                        targets[at] = mask
                subsets[subset] = Samples(images[torch.tensor(rows).long()], targets, identity, names)
            else:
                several = {looks[row].size: at for at, row in enumerate(rows)} if len(sizes) > 1 else {}
                unlike = () if self.image_size or len(several) < 2 else tuple(several.values())[:_PEEK]
                files = _Files(chosen, self.mode, self.image_size, table)
                subsets[subset] = Stream(files, self._pixels(counts[rows], table), identity, unlike, names)
        return subsets

    def _pairs(self, images: Path, masks: Path, problems: dict[str, str]) -> list[_Pair]:
        """Pictures with their masks; a picture without a mask is a problem, the reverse only noted."""
        found = {folder: images_below(folder)[0] for folder in (images, masks)}
        if not found[images]:
            raise DataError(
                f"data.source.root={self._root}: no picture below {images}",
                hint="root/images/*.jpg and root/masks/*.png were expected",
            )
        of_name: dict[str, str] = {}
        for path in found[masks]:
            name = _stem(path, masks)
            if other := of_name.get(name):
                raise DataError(
                    f"data.source.root={self._root}: {Path(other).name} and {Path(path).name} are both the "
                    f"mask of {name}",
                    hint="remove one of them",
                )
            of_name[name] = path
        pairs: list[_Pair] = []
        used: dict[str, str] = {}
        for path in found[images]:
            name, key = Path(os.path.relpath(path, self._root)).as_posix(), _stem(path, images)
            if other := used.get(key):
                raise DataError(
                    f"data.source.root={self._root}: {other} and {name} have the same name but for the "
                    "suffix, so that nobody knows whose their mask is",
                    hint="rename one of them, and its mask",
                )
            used[key] = name
            if key in of_name:
                pairs.append(_Pair(name, path, of_name[key]))
            else:
                problems[name] = f"no mask {key}.png in {masks.relative_to(self._root).as_posix()}"
        if lonely := [name for name in of_name if name not in used]:
            told = ", ".join(lonely[:_NAMED])
            self.notes += (f"data.source.root={self._root}: masks without a picture are left out: {told}",)
        return pairs

    def _look_at_masks(self, pairs: Sequence[_Pair]) -> tuple[NDArray[np.int32], list[Look]]:
        """How many pixels of each mask have each value, `[N, 256]`."""
        counts = np.zeros((len(pairs), NUM_VALUES), np.int32)

        def take(index: int, content: bytes) -> tuple[int, int]:
            mask = decode_mask(content)
            counts[index] = mask.flatten().bincount(minlength=NUM_VALUES).numpy()
            return mask.shape[0], mask.shape[1]

        return counts, look_at([pair.mask for pair in pairs], take)

    def _look_at_images(
        self, pairs: Sequence[_Pair], masks: Sequence[Look]
    ) -> tuple[Tensor | None, list[Look]]:
        """All pictures as one tensor where that is wanted, and what is known of each file."""
        paths = [pair.image for pair in pairs]
        sizes = Counter(look.size for look in masks if not look.bad).most_common(1)
        common = sizes[0][0] if sizes and 2 * sizes[0][1] > len(paths) else None  # the rest may be left out
        size = self.image_size or common
        channels = MODES[self.mode][1]
        wanted = size is not None and (
            self._in_memory is True
            or (
                self._in_memory == "auto"
                and len(paths) * (channels + 1) * size[0] * size[1] < free_memory() // 4
            )
        )
        if size is None or not wanted:
            return None, survey(self._root, paths)
        images = torch.zeros((len(paths), channels, *size), dtype=torch.uint8)

        def take(index: int, content: bytes) -> tuple[int, int]:
            image = decode(content, self.mode, None)
            found = image.shape[1], image.shape[2]
            if self.image_size is not None:
                image = F.resize(image, list(self.image_size), antialias=True)
            if image.shape[1:] == images.shape[2:]:
                images[index] = image
            return found

        return images, look_at(paths, take)

    def _problem(self, image: Look, mask: Look, counts: NDArray[np.int32], table: Tensor) -> str:
        """Why a pair cannot be used; empty where it can."""
        if image.bad or mask.bad:
            return f"the picture: {image.bad}" if image.bad else f"its mask: {mask.bad}"
        if image.size != mask.size:
            sizes = ["×".join(map(str, size)) for size in (mask.size, image.size)]
            return f"its mask has {sizes[0]} pixels, the picture {sizes[1]} (height × width)"
        strange = np.flatnonzero((counts > 0) & (table.numpy() < 0))
        if len(strange):
            return f"its mask has the value {', '.join(map(str, strange[:5]))}, which is not a class"
        return ""

    def _judge(self, problems: Mapping[str, str], count: int) -> None:
        if not problems:
            return
        told = "; ".join(f"{name} ({why})" for name, why in list(problems.items())[:_NAMED])
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        message = f"{len(problems)} of {count} pictures cannot be used: {told}{more}"
        if too_many(len(problems), count, self._on_bad):
            values = f"; classes have the values {self._classes.in_words}" if "not a class" in told else ""
            raise DataError(
                f"data.source.root={self._root}: {message}{values}",
                hint="repair or remove them, or leave them out: data.source.on_bad=skip"
                + ("; other values: data.source.values=[…]" if values else ""),
            )
        self.notes += (
            f"data.source.root={self._root}: {message}; left out, as data.source.on_bad={self._on_bad} says",
        )

    def _mask(self, table: Tensor, pair: _Pair) -> Tensor:
        return table[read_mask(pair.mask, self.image_size).long()].to(torch.uint8)

    def _pixels(self, counts: NDArray[np.int32], table: Tensor) -> Tensor:
        """Pixels of each class, int32 `[N, C]`, which stand for masks that are read later."""
        columns = [counts[:, table.numpy() == label].sum(1) for label in range(len(self.class_names))]
        return torch.from_numpy(np.stack(columns, 1).astype(np.int32))


@final
class _Files:
    """Pairs of files as `(uint8 [C, H, W], uint8 [H, W])`."""

    def __init__(
        self, pairs: Sequence[_Pair], mode: str, size: tuple[int, int] | None, table: Tensor
    ) -> None:
        self._pairs, self._mode, self._size, self._table = pairs, mode, size, table

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        pair = self._pairs[index]
        mask = self._table[read_mask(pair.mask, self._size).long()].to(torch.uint8)
        return read_image(pair.image, self._mode, self._size), mask


def subset_folders(root: Path) -> dict[str, tuple[Path, Path]]:
    """The folders of pictures and of masks of each subset, or of `all`."""
    layouts = {
        "root/{train,val,test}/images": {
            subset: (root / subset / _IMAGES, root / subset / _MASKS) for subset in _SUBSETS
        },
        "root/images/{train,val,test}": {
            subset: (root / _IMAGES / subset, root / _MASKS / subset) for subset in _SUBSETS
        },
    }
    for layout, folders in layouts.items():
        if not folders["train"][0].is_dir():
            continue
        there = {subset: pair for subset, pair in folders.items() if pair[0].is_dir()}
        for images, masks in there.values():
            if not masks.is_dir():
                raise DataError(
                    f"data.source.root={root}: there is {images}, but no {masks}",
                    hint=f"{layout} needs masks beside it, in the same places",
                )
        return there
    if not (root / _IMAGES).is_dir() or not (root / _MASKS).is_dir():
        names = ", ".join(sorted(entry.name for entry in root.iterdir())[:_NAMED]) or "nothing"
        raise DataError(
            f"data.source.root={root}: the folders images and masks were expected; there is {names}",
            hint="root/images/*.jpg and root/masks/*.png, or both below root/train, root/val, root/test",
        )
    return {"all": (root / _IMAGES, root / _MASKS)}


def _stem(path: str, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).with_suffix("").as_posix()
