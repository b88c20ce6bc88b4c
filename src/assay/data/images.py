"""Pictures: one file read, decoded and judged; and all of a data set looked at before training."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import DataError
from assay.files.atomic import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


ImageSize = tuple[int, int] | Literal["auto"] | None
MODES = {"RGB": ("RGB", 3), "GRAY": ("L", 1)}
"""Pillow's name and the number of channels of each mode that pictures are converted to."""
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "PPM", "TIFF", "WEBP")
"""Told by the content, whatever a file is called; Pillow starts other programs for some of the rest."""
_ORIENTATION = 0x0112
_MOST_LOOKED_AT, _LARGE, _LONGEST = 1000, 512, 224
"""Headers, and pixels: a side from which on pictures are scaled, and what it is scaled to."""
_SIDEWAYS = 5
"""The first of the EXIF orientations that exchange height and width."""


def check_size(image_size: Sequence[int] | str | None) -> tuple[int, int] | None:
    """Height and width; None where pictures stay as they are, or `auto` chooses."""
    if image_size is None or image_size == "auto":
        return None
    if isinstance(image_size, str) or len(image_size) != 2 or min(image_size) < 1:
        raise ValueError(f"image_size: expected auto, null or [height, width], got {image_size!r}")
    return int(image_size[0]), int(image_size[1])


def choose_size(paths: Sequence[str]) -> tuple[tuple[int, int] | None, str]:
    """The size that pictures are scaled to where `auto` is asked for, and a sentence on it."""
    found = [size for path in paths[:: -(-len(paths) // _MOST_LOOKED_AT) or 1] if (size := size_of(path))]
    sizes = set(found)
    if not sizes or (len(sizes) == 1 and max(found[0]) <= _LARGE):
        return None, ""
    middle = np.median(np.array(found), 0)
    scale = min(1.0, _LONGEST / middle.max())
    height, width = (max(8, int(scale * side / 8 + 0.5) * 8) for side in middle)
    told = f"pictures of {len(sizes):,} sizes are" if len(sizes) > 1 else "pictures are"
    return (height, width), (
        f"data.source.image_size=auto: {told} scaled to {height}×{width} (height × width)"
    )


def too_many(bad: int, total: int, on_bad: str) -> bool:
    """Whether files that cannot be used end the reading: any under `error`, over a twentieth under `auto`."""
    return bad == total or (bad > 0 and on_bad == "error") or (on_bad == "auto" and 20 * bad > max(20, total))


def read_image(path: str, mode: str = "RGB", size: tuple[int, int] | None = None) -> Tensor:
    """Decode an image file."""
    try:
        return decode(read_bytes(path), mode, size)
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read as an image: {error}",
            hint="repair or remove this file (data.source.root)",
        ) from error


def read_bytes(path: str) -> bytes:
    """The contents of a regular file."""
    try:
        # pathlib takes as long as reading a small picture does.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise ValueError("it is not a regular file")
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if not content:
        raise ValueError("it is empty")
    return content


def decode(content: bytes, mode: str, size: tuple[int, int] | None) -> Tensor:
    """Decode an image."""
    try:
        with _opened(io.BytesIO(content)) as opened:
            return as_tensor(opened, mode, size)
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(_reason(error)) from error


def as_tensor(image: Image.Image, mode: str, size: tuple[int, int] | None) -> Tensor:
    """A picture of Pillow's as a tensor, as `read_image` makes it."""
    name, _ = MODES[mode]
    plain = _plain(_upright(image))
    # torchvision's pil_to_tensor takes twice as long, as much as decoding a small picture does.
    pixels = torch.from_numpy(np.array(plain if plain.mode == name else plain.convert(name)))
    decoded = pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
    return decoded if size is None else F.resize(decoded, list(size), antialias=True)


def verify(content: bytes) -> tuple[int, int]:
    """Decode an image as cheaply as it can be found out whether it is whole."""
    try:
        with _opened(io.BytesIO(content)) as opened:
            size = upright_size(opened)
            opened.draft(None, (1, 1))
            opened.load()
            _refuse_wide(opened)
    except Exception as error:  # the decoders raise whatever comes to them
        raise ValueError(_reason(error)) from error
    return size


def size_of(path: str) -> tuple[int, int] | None:
    """Height and width of the upright image, from its header; None where it cannot be read."""
    try:
        if not Path(path).is_file():
            return None
        with _opened(path) as image:
            return upright_size(image)
    except Exception:  # the decoders raise whatever comes to them; what is wrong is found when all is read
        return None


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Height and width of a picture once it is turned as its EXIF orientation says."""
    sideways = image.getexif().get(_ORIENTATION, 1) >= _SIDEWAYS
    return (image.width, image.height) if sideways else (image.height, image.width)


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION, 1) != 1 else image


def _plain(image: Image.Image) -> Image.Image:
    """What Pillow would convert wrongly or with a warning: 16 bits, palettes with transparency."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
    _refuse_wide(image)
    return image.convert("RGBA") if image.mode in ("P", "PA") else image


def _refuse_wide(image: Image.Image) -> None:
    if image.mode in ("I", "F"):  # Pillow would cut its values off at 255
        raise ValueError(f"its values have 32 bits (Pillow's mode {image.mode}); 8 or 16 were expected")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image"
    return " ".join(str(error).split()) or type(error).__name__


def _opened(source: str | io.BytesIO) -> Image.Image:
    return Image.open(source, formats=_FORMATS)


_CHUNK: Final = 32
_FEW: Final = 1000
"""Files that are looked at so quickly that nothing need be remembered."""
_SETTLED: Final = 2.0
"""Seconds after which a file's times tell whether it was changed."""


class Look(NamedTuple):
    """What is known of a file."""

    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    bad: str = ""


def look_at(paths: Sequence[str], take: Callable[[int, bytes], tuple[int, int]]) -> list[Look]:
    """Read every file once, by as many threads as there are cores."""

    def look(index: int) -> Look:
        try:
            content = read_bytes(paths[index])
            size = take(index, content)
        except ValueError as error:
            return Look(bad=str(error))
        return Look(hashlib.sha256(content).hexdigest(), size)

    def look_at_some(start: int) -> list[Look]:
        return [look(index) for index in range(start, min(start + _CHUNK, len(paths)))]

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        return [one for some in pool.map(look_at_some, range(0, len(paths), _CHUNK)) for one in some]
    finally:
        pool.shutdown(cancel_futures=True)


def survey(root: Path, paths: Sequence[str]) -> list[Look]:
    """Verify every file, and remember of those that are whole what they held."""
    if len(paths) < _FEW:
        return look_at(paths, _verify)
    kept = _remembered(root)
    states = {path: _state(path) for path in paths}
    looks = {path: Look(*kept[path][1:]) for path in paths if path in kept and kept[path][0] == states[path]}
    new = [path for path in paths if path not in looks]
    looks.update(zip(new, look_at(new, _verify), strict=True))
    now = time.time_ns()
    if new:
        settled = {
            path: (state, *looks[path][:2])
            for path, state in states.items()
            if state and not looks[path].bad and now - state[3] > _SETTLED * 1e9
        }
        _remember(root, settled)
    return [looks[path] for path in paths]


def _verify(index: int, content: bytes) -> tuple[int, int]:
    del index
    return verify(content)


def _state(path: str) -> list[int]:
    try:
        stat = Path(path).stat()
    except OSError:
        return []
    return [stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]


def _home() -> Path:
    told = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(told) if Path(told).is_absolute() else Path.home() / ".cache") / "assay" / "pictures"


def _file(root: Path) -> Path:
    return _home() / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]}.json"


def _remembered(root: Path) -> dict[str, tuple[Any, ...]]:
    try:
        kept = json.loads(_file(root).read_bytes())
        return {
            str(root / name): (state, sha, (int(height), int(width)))
            for name, (state, sha, (height, width)) in kept.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # it is made anew


def _remember(root: Path, kept: dict[str, tuple[Any, ...]]) -> None:
    file = _file(root)
    names = {os.path.relpath(path, root): known for path, known in kept.items()}
    with suppress(
        OSError
    ):  # a home that cannot be written, or is full: the files are read again the next time
        write_text(file, json.dumps(names))
