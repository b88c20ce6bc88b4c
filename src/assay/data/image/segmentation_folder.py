"""Images with a mask each: two folders with files of the same names."""

from __future__ import annotations

import io
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from PIL import Image
from torchvision.tv_tensors import Mask  # type: ignore[import-untyped]  # torchvision ships no types
from typing_extensions import override

from assay.data.core.source_files import SUBSETS, find_subset_folders
from assay.data.image.decode import ImageSize, MaxValue, read_as, turn_upright
from assay.data.image.image_cache import FileScan, scan_files
from assay.data.image.image_source import ImageFile, ImageSource, list_images
from assay.errors import DataError
from assay.quoting import join_first
from assay.task.segmentation import IGNORED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.types import Size, Strings
    from assay.data.image.image_cache import Decode, Pictures

    Colours = Sequence[Sequence[int]]


_FORMATS = ("PNG", "BMP", "DIB", "PPM", "TIFF", "GIF")
"""Those that keep values as they are: a JPEG would make others of them."""
_COLOURED = "it has colours"
_MOST_CLASSES = 20
"""That a message names."""
_LOOKED_AT = 10
"""Images, some of which have a mask, and endings of its name."""


def decode_mask(content: bytes, colours: Colours = ()) -> Tensor:
    """The values of a mask's pixels, or which of the colours they have."""
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as opened:
            upright = turn_upright(opened)
            values = _find_colours(upright, colours) if colours else _values(upright)
    except ValueError:
        raise
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(
            "it is a JPEG, which changes the values"
            if content.startswith(b"\xff\xd8")
            else f"it is not a PNG file: {error}"
        ) from error
    return torch.from_numpy(np.array(values))


def _scale(mask: Tensor, size: Size | None) -> Tensor:
    if size is None or mask.shape == size:
        return mask
    image = Image.fromarray(mask.numpy(), "L")
    scaled = image.resize((size[1], size[0]), Image.Resampling.NEAREST)
    return torch.from_numpy(np.array(scaled))


def _values(image: Image.Image) -> NDArray[np.uint8]:
    pixels = np.asarray(image)
    if image.mode in ("LA", "PA"):  # of a palette the indices, not the colours
        pixels = pixels[:, :, 0]
    elif image.mode in ("RGB", "RGBA"):
        if (pixels[:, :, :3] != pixels[:, :, :1]).any():
            raise ValueError(_COLOURED)
        pixels = pixels[:, :, 0]
    elif image.mode == "P":
        colours = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
        if (colours == colours[:, :1]).all():  # a GIF numbers the grey values that it has
            pixels = np.asarray(image.convert("L"))
    elif image.mode not in ("1", "L") and not image.mode.startswith("I"):
        raise ValueError(
            f"Pillow's mode {image.mode} is not a mask; expected grey values or a palette"
        )
    if pixels.min() < 0 or pixels.max() > 255:
        raise ValueError(f"expected values from 0 to 255, got up to {pixels.max()}")
    return pixels.astype(np.uint8)


def _find_colours(image: Image.Image, colours: Colours) -> NDArray[np.uint8]:
    """The position of each pixel's colour among these."""
    pixels = np.asarray(image.convert("RGB"))
    classes = np.full(pixels.shape[:2], len(colours), np.uint8)
    for place, colour in enumerate(colours):
        classes[(pixels == colour).all(2)] = place
    if len(strange := pixels[classes == len(colours)]):
        raise ValueError(
            f"it has the colour {strange[0].tolist()}, which is none of data.source.values"
        )
    return classes


NUM_VALUES = 256


def find_classes(
    counts: NDArray[np.int32],
    class_names: Strings | None,
    values: Sequence[int] | None,
    ignore_value: int | None,
) -> tuple[tuple[str, ...], Tensor, str]:
    """Names of the classes, the class of each value of a mask, and a note on what was decided."""
    present = np.flatnonzero(counts.any(0)).tolist()
    note = ""
    if values is None and present == [0, 255] and (class_names is None or len(class_names) == 2):
        values = (0, 255)
        note = "the masks have the values 0 and 255 alone: these are the two classes"
    if values is None:
        class_values = [value for value in present if value != ignore_value]
        if class_names is None and class_values != list(range(len(class_values))):
            every, others = (f"[{','.join(map(str, some))}]" for some in (present, class_values))
            ignored = ""
            if ignore_value in present:
                ignored = f", or data.source.values={others} to ignore {ignore_value}"
            hint = (
                f"data.source.values={every}{ignored}, or data.source.class_names=[…] with a name for "
                "each, those without a pixel included"
            )
            if len(present) > _MOST_CLASSES:
                hint = "save masks with one value per class; JPEG and smooth scaling make others"
            raise DataError(
                f"data.source.values: the masks have the values {join_first(present, _MOST_CLASSES)}, "
                "which do not number classes from 0",
                hint=hint,
            )
        values = range(len(class_values) if class_names is None else len(class_names))
    table = torch.full((NUM_VALUES,), -1, dtype=torch.int64)
    if ignore_value is not None:
        table[ignore_value] = IGNORED
    table[list(values)] = torch.arange(len(values))
    return tuple(map(str, class_names or range(len(values)))), table, note


def _find_ending(images: Sequence[str], masks: Sequence[str]) -> str:
    """What masks have at the end of their names and their images lack, such as `_mask`; mostly nothing."""
    known = set(masks)
    endings = Counter(
        mask.removeprefix(image)
        for image in images[:_LOOKED_AT]
        for mask in masks
        if mask.startswith(image)
    )
    likely = sorted(["", *(ending for ending, _ in endings.most_common(_LOOKED_AT))])
    return max(likely, key=lambda ending: sum(stem + ending in known for stem in images))


@final
class SegmentationFolder(ImageSource):
    """`root/images/*.jpg` with `root/masks/*.png`: a mask is called as its image, but for the suffix.

    All masks may have the same ending before it, such as `_mask`.
    With subsets of its own: `root/{train,val,test}/images` and `…/masks`, or `root/images/{train,val,test}`.
    Images and masks are decoded once, as by `assay.data.image.image_folder.ImageFolder`. All files are looked
    at before training.

    A mask has the class of each pixel as grey values, or as indices of a palette of colours. What is wrong
    with any pair of files is told with its name: a mask that is missing, of another size, or with a value
    that is not a class.

    Args:
        root: The folder.
        image_size: Height and width that images (bilinear) and masks (nearest) are scaled to; None leaves
            them as they are; `auto` as for `assay.data.image.image_folder.ImageFolder`.
        mode: `RGB` or `GRAY`; other images are converted, transparency is left out.
        class_names: A name for each class; None: their numbers.
        values: The value of each class in the masks, or its colour as `[red, green, blue]`; None: 0, 1, 2, …;
            of masks of 0 and 255 these two.
        ignore_value: Of pixels that neither loss nor metrics see; None for none.
        in_memory: `auto` as above; True or False to decide.
        on_bad: What to do about pairs that cannot be used: `error`, or `skip` to leave them out; `auto`
            leaves up to a twentieth of them out.
        max_value: As for `ImageFolder`; masks are never scaled.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    task: str = "segmentation"

    def __init__(
        self,
        root: str,
        image_size: ImageSize = None,
        mode: Literal["RGB", "GRAY"] = "RGB",
        *,
        class_names: Sequence[str] | None = None,
        values: Sequence[int] | Sequence[Sequence[int]] | None = None,
        ignore_value: int | None = 255,
        in_memory: bool | Literal["auto"] = "auto",
        on_bad: Literal["auto", "error", "skip"] = "error",
        max_value: MaxValue = None,
    ) -> None:
        super().__init__(root, image_size, mode, in_memory, on_bad, max_value=max_value)
        self._colours = tuple(
            tuple(value) for value in values or () if not isinstance(value, int)
        )
        numbers = None
        if values is not None:
            numbers = [value for value in values if isinstance(value, int)]
        if self._colours:
            if numbers or {*map(len, self._colours)} != {3}:
                raise ValueError(f"values={values}: expected numbers, or three for each colour")
            if len({*self._colours}) < len(self._colours):
                raise ValueError(f"values={values}: expected different colours")
            numbers = list(range(len(self._colours)))
        given = numbers or []
        used = [*given, *([] if ignore_value is None else [ignore_value])]
        is_outside = any(not 0 <= value < NUM_VALUES for value in used)
        if is_outside or len({*given}) < len(given):
            raise ValueError(f"values={used}: expected different ones from 0 to 255")
        if class_names is not None and not len(set(class_names)) == len(numbers or class_names):
            raise ValueError(
                f"class_names={list(class_names)}: expected a different name for each class"
            )
        self._asked = class_names, numbers, ignore_value
        self._masks: Pictures | None = None
        self._looks: dict[str, FileScan] = {}
        self._table = torch.empty(0)

    @override
    def _list(self) -> dict[str, list[ImageFile]]:
        self._unusable = []
        return {subset: self._pairs(*pair) for subset, pair in subset_folders(self._root).items()}

    def _pairs(self, images: Path, masks: Path) -> list[ImageFile]:
        """Images with their masks; an image without a mask is a problem, the reverse only noted."""
        files = self._by_stem(images)
        mask_of = self._by_stem(masks)
        if not files:
            raise self._error(
                f"no image below {images}", "expected root/images/*.jpg and root/masks/*.png"
            )
        if ending := _find_ending(list(files), list(mask_of)):
            self._note(f"a mask is called as its image with {ending} at the end")
        if mask_of.keys().isdisjoint(stem + ending for stem in files):
            examples = " and ".join((*sorted(files)[:1], *sorted(mask_of)[:1]))
            raise self._error(
                f"no mask below {masks} is called as an image below {images}: {examples}",
                "expected root/images/NAME.jpg and root/masks/NAME.png, or NAME_mask.png",
            )
        pairs: list[ImageFile] = []
        for stem, path in files.items():
            name = Path(os.path.relpath(path, self._root)).as_posix()
            if mask := mask_of.pop(stem + ending, ""):
                pairs.append(ImageFile(name, path, mask=mask))
            else:
                place = masks.relative_to(self._root).as_posix()
                self._unusable.append((name, f"no mask {stem}{ending}.png in {place}"))
        if mask_of:
            self._note(f"masks without an image are left out: {join_first(list(mask_of))}")
        return pairs

    def _by_stem(self, folder: Path) -> dict[str, str]:
        """The files below a folder by their names without suffixes."""
        paths: dict[str, str] = {}
        for path in list_images(folder)[0]:
            stem = Path(os.path.relpath(path, folder)).with_suffix("").as_posix()
            if stem in paths:
                message = f"{paths[stem]} and {path} differ only in their suffix"
                raise self._error(message, "rename one of them")
            paths[stem] = path
        return paths

    @override
    def _read_targets(self, files: Sequence[ImageFile]) -> None:
        paths = [pair.mask for pair in files]
        self._masks = None
        form = f"masks{self._colours or ''}"
        decoded = self._decode(paths, form, 1, self._decode_mask)
        if decoded is None:
            looks = scan_files(paths, lambda content: self._decode_mask(content)[0])
        else:
            self._masks, looks = decoded
        self._looks = {pair.name: look for pair, look in zip(files, looks, strict=True)}
        rows = [self._count(pair) for pair in files if not self._looks[pair.name].bad]
        counts = np.array(rows).reshape(-1, NUM_VALUES)
        self._name_colours(files, np.flatnonzero(counts.any(0)))
        class_names, values, ignore_value = self._asked
        if class_names is None and self.known_labels:
            class_names = self.known_labels
            if values is not None and len(values) != len(class_names):
                raise DataError(
                    f"data.source.values={values}: expected {len(class_names)} values, one per class of the "
                    f"run: {join_first(class_names)}",
                    hint="data.source.values=null takes those of the run",
                )
        if values is None and self.mask_values:
            values = list(self.mask_values)
        self.class_names, self._table, note = find_classes(
            counts, class_names, values, ignore_value
        )
        classes = self._table.tolist()
        self.mask_values = tuple(map(classes.index, range(len(self.class_names))))
        if note:
            self._note(note)
        if share := counts[:, self._table.numpy() == IGNORED].sum() / max(1, counts.sum()):
            self._note(
                f"{share * 100:.1f} % of the masks' pixels have the value {ignore_value} and are ignored"
            )

    def _name_colours(self, files: Sequence[ImageFile], greys: Iterable[int]) -> None:
        """Name all colours of masks in what is wrong with those that have some."""
        coloured = [pair for pair in files if self._looks[pair.name].bad == _COLOURED]
        found: set[tuple[int, ...]] = {(grey, grey, grey) for grey in map(int, greys)}
        for pair in coloured:
            with Image.open(pair.mask, formats=_FORMATS) as image:
                pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
            found.update(map(tuple, np.unique(pixels, axis=0).tolist()))
            if len(found) > _MOST_CLASSES:
                break
        typed = str([list(colour) for colour in sorted(found)]).replace(" ", "")
        bad = f"{_COLOURED}; if each is a class: data.source.values={typed}"
        if len(found) > _MOST_CLASSES:
            bad = f"{_COLOURED}, more than {_MOST_CLASSES} in all; expected one value per class"
        for pair in coloured:
            self._looks[pair.name] = self._looks[pair.name]._replace(bad=bad)

    @property
    def _decode_mask(self) -> Decode:
        return partial(
            _decode_scaled, size=self.image_size, scaling=self._scaling, colours=self._colours
        )

    def _count(self, pair: ImageFile) -> NDArray[np.int32]:
        """How many pixels of a mask have each value."""
        counts = np.zeros(NUM_VALUES, np.int32)
        for value, count in self._looks[pair.name].values:
            counts[value] = count
        return counts

    @override
    def _problem(self, file: ImageFile, scan: FileScan) -> str:
        mask = self._looks[file.name]
        if scan.bad:
            return f"the image: {scan.bad}"
        if mask.bad:
            return f"its mask: {mask.bad}"
        if scan.size != mask.size:
            sizes = ["×".join(map(str, size)) for size in (mask.size, scan.size)]
            return f"its mask has {sizes[0]} pixels, the image {sizes[1]} (height × width)"
        strange = np.flatnonzero((self._count(file) > 0) & (self._table.numpy() < 0))
        if len(strange):
            values = ", ".join(map(str, strange[:5]))
            return f"its mask has the value {values}, which is not a class; others: data.source.values=[…]"
        return ""

    @override
    def _targets(self, subset: str, files: Sequence[ImageFile], images: Tensor | None) -> Tensor:
        # pixels of each class, int32 `[N, C]`, stand for masks that are read later
        if images is None:
            counts = np.array([self._count(pair) for pair in files]).reshape(-1, NUM_VALUES)
            labels = range(len(self.class_names))
            columns = [counts[:, self._table.numpy() == label].sum(1) for label in labels]
            return torch.from_numpy(np.stack(columns, 1).astype(np.int32))
        targets = torch.empty(len(files), *images.shape[2:], dtype=torch.uint8)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for index, mask in enumerate(pool.map(self._target_reader(), files)):
                targets[index] = mask
        return targets

    @override
    def _target_reader(self) -> Callable[[ImageFile], Tensor]:
        return partial(_read_classes, self._masks, self._decode_mask, self._table)

    @override
    def _identity(self, files: Sequence[ImageFile], looks: Sequence[FileScan]) -> str:
        lines = [
            f"{pair.name} {look.sha256} {self._looks[pair.name].sha256}"
            for pair, look in zip(files, looks, strict=True)
        ]
        return "\n".join([*lines, f"{self._table.tolist()}{self._colours or ''}"])


def _decode_scaled(
    content: bytes, *, size: Size | None, scaling: Any, colours: Colours
) -> tuple[FileScan, Tensor]:
    mask = decode_mask(content, colours)
    counts = np.bincount(mask.flatten().numpy())
    values = tuple((int(value), int(counts[value])) for value in np.flatnonzero(counts))
    scan = FileScan(size=(mask.shape[0], mask.shape[1]), values=values)
    if scaling is not None:
        mask = scaling(Mask(mask)).as_subclass(torch.Tensor)
    return scan, _scale(mask, size)[None]


def _read_classes(
    masks: Pictures | None, decode: Decode, table: Tensor, pair: ImageFile
) -> Tensor:
    """The classes of an image's pixels, uint8 `[H, W]`."""
    if masks is None:
        values = read_as("a mask", pair.mask, lambda content: decode(content)[1])
    else:
        values = masks[pair.row]
    return table[values[0].long()].to(torch.uint8)


def subset_folders(root: Path) -> dict[str, tuple[Path, Path]]:
    """The folders of images and of masks of each subset, or of `all`."""
    inside = {
        subset: (folder / "images", folder / "masks")
        for subset, folder in find_subset_folders(root).items()
        if (folder / "images").is_dir()
    }
    outside = {
        subset: (folder, root / "masks" / folder.name)
        for subset, folder in find_subset_folders(root / "images").items()
    }
    for folders in (inside, outside):
        if "train" in folders:
            return {subset: folders[subset] for subset in SUBSETS if subset in folders}
    return {"all": (root / "images", root / "masks")}
