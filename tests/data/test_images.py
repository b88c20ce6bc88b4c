"""Pictures and masks as files, and the folders they lie in."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image, ImageOps
from tests.command import typed
from torchvision.datasets import ImageFolder as Reference  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.source_files import note_bad
from assay.data.image import image_cache
from assay.data.image.decode import as_tensor, read_image, size_of, upright_size, verify
from assay.data.image.image_cache import FileScan, read_bytes, scan_images
from assay.data.image.image_folder import ImageFolder
from assay.data.image.image_source import choose_size
from assay.data.image.segmentation_folder import SegmentationFolder, decode_mask
from assay.data.preprocess import Preprocess
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from assay.data.core.data_module import DataModule


PIXELS = np.random.default_rng(0).integers(0, 256, (9, 14, 3), dtype=np.uint8)
PICTURE = Image.fromarray(PIXELS)
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP")


def packed(picture: Image.Image = PICTURE, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
def test_as_pillow_reads_it(kind: str, tmp_path: Path) -> None:
    content = packed(kind=kind)
    path = tmp_path / "picture.txt"  # told by its content
    path.write_bytes(content)
    pillows = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    found = read_image(str(path))
    assert found.dtype == torch.uint8
    np.testing.assert_array_equal(found.permute(1, 2, 0).numpy(), pillows)
    assert verify(content) == size_of(str(path)) == (9, 14)


RNG = np.random.default_rng(0)


def pixels(height: int = 6, width: int = 8) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def write(root: Path, classes: dict[str, int], size: tuple[int, int] = (6, 8)) -> None:
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for index in range(count):
            Image.fromarray(pixels(*size)).save(root / name / f"{index:02}.png")


@pytest.mark.parametrize("in_memory", [True, False])
def test_as_torchvision_reads_the_folder(tmp_path: Path, in_memory: bool) -> None:
    write(tmp_path, {"cat": 40, "dog": 35})
    source = ImageFolder(str(tmp_path), in_memory=in_memory)
    data, reference = source.read()["all"], Reference(str(tmp_path), transform=v2.PILToTensor())
    assert source.class_names == ("cat", "dog")
    assert data.targets.tolist() == reference.targets
    assert data.in_memory == in_memory
    samples = data if data.in_memory else data.inputs
    for index in range(len(reference)):
        assert torch.equal(samples[index][0], reference[index][0])
        assert samples[index][1] == reference[index][1]


def test_parts_of_its_own(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    write(tmp_path / "train", {"a": 10, "b": 10, "c": 10})
    write(tmp_path / "test", {"b": 2, "c": 4})
    datamodule = data_module(ImageFolder(str(tmp_path)), split={"val": 0.2})
    datamodule.setup()
    spec = datamodule.spec
    assert (spec.num_train, spec.num_val, spec.num_test) == (24, 6, 6)
    assert (spec.class_names, spec.class_counts, spec.input_shape) == (("a", "b", "c"), (8, 8, 8), (3, 6, 8))
    targets = torch.cat([targets for _, targets in datamodule.test_dataloader()])
    assert targets.tolist() == [1, 1, 2, 2, 2, 2]  # numbered as in training


def test_auto_decodes_once_what_has_one_size_and_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a": 2, "b": 2})
    needed = 4 * 4 * 3 * 6 * 8
    monkeypatch.setattr("assay.data.image.image_source.free_memory", lambda: needed)
    assert not ImageFolder(str(tmp_path)).read()["all"].in_memory
    monkeypatch.setattr("assay.data.image.image_source.free_memory", lambda: needed + 4)
    assert ImageFolder(str(tmp_path)).read()["all"].in_memory


def test_images_of_several_sizes(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    write(tmp_path, {"a": 10})
    write(tmp_path / "..", {})
    write(tmp_path, {"b": 10}, size=(9, 9))
    assert not ImageFolder(str(tmp_path)).read()["all"].in_memory
    scaled = ImageFolder(str(tmp_path), image_size=(4, 5)).read()["all"]
    assert scaled.in_memory
    assert scaled.inputs.shape == (20, 3, 4, 5)
    with pytest.raises(DataError, match=r"in_memory=true: the images .* have several sizes"):
        ImageFolder(str(tmp_path), in_memory=True).read()
    with pytest.raises(DataError, match="cannot make up one batch") as caught:
        data_module(ImageFolder(str(tmp_path)), transform={"normalize": "data"}).setup()
    assert "data.source.image_size" in caught.value.hint
    crops = [v2.RandomResizedCrop(4)]
    datamodule = data_module(
        ImageFolder(str(tmp_path)), transform={"train": crops, "eval": crops, "normalize": "data"}
    )
    datamodule.setup()
    assert next(iter(datamodule.train_dataloader()))[0].shape == (4, 3, 4, 4)


STEPS = np.arange(120, dtype=np.uint8).reshape(10, 12) * 2


def reference_pixels(image: Image.Image, mode: str) -> torch.Tensor:
    return v2.functional.pil_to_tensor(image.convert(mode))  # type: ignore[no-any-return]  # torchvision ships no types


@pytest.mark.parametrize("kind", ["L", "P", "RGBA", "LA", "I;16", "1"])
@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("GRAY", 1)])
def test_modes(tmp_path: Path, kind: str, mode: str, channels: int) -> None:
    color = Image.fromarray(pixels(10, 12))
    path = tmp_path / "image.png"
    if kind == "I;16":
        Image.fromarray(257 * STEPS.astype(np.uint16)).save(path)
    else:
        color.convert(kind).save(path)
    image = read_image(str(path), mode)
    assert (image.dtype, image.shape) == (torch.uint8, (channels, 10, 12))
    if kind == "I;16":
        np.testing.assert_array_equal(image.numpy(), np.broadcast_to(STEPS, image.shape))
    else:
        expected = reference_pixels(color.convert(kind), "RGB" if mode == "RGB" else "L")
        assert (image.int() - expected.int()).abs().max() <= 1


WIDE = np.random.default_rng(0).integers(0, 4001, (6, 5, 7)).astype(np.uint16)


def write_wide(root: Path, suffix: str) -> list[Path]:
    """Six pictures of 12 bits in files of 16, in two classes."""
    paths = [root / "ab"[index % 2] / f"{index}.{suffix}" for index in range(6)]
    for path, values in zip(paths, WIDE, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(path)
    return paths


def test_what_lies_behind_the_first_page_is_said_to_be_left_out(tmp_path: Path) -> None:
    pages = [Image.new("L", (8, 8), shade) for shade in (10, 200)]
    for number in range(6):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        pages[0].save(folder / f"{number}.tif", save_all=number == 3, append_images=pages[1:])
    source = ImageFolder(str(tmp_path))
    data: Any = source.read()["all"]
    assert {int(image.max()) for image in data.inputs} == {10}
    assert [note for note in source.notes if "the first one is used" in note]


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_sixteen_bits_are_scaled_by_what_the_set_uses(
    tmp_path: Path, suffix: str, in_memory: bool, data_module: Callable[..., DataModule]
) -> None:
    paths = write_wide(tmp_path, suffix)
    source = ImageFolder(str(tmp_path), mode="GRAY", in_memory=in_memory, max_value="auto")
    data: Any = source.read()["all"]
    assert source.max_value == 4095
    [note] = source.notes
    assert note.startswith("data.source.max_value=auto: images of 16 bits have values up to ")
    expected = torch.from_numpy(WIDE[[0, 2, 4, 1, 3, 5]].astype(np.int64) * 255 // 4095)
    for index in range(6):
        sample = data.inputs[index] if in_memory else data.inputs[index][0]
        assert torch.equal(sample[0].long(), expected[index])
    assert len(np.unique(expected[0].numpy())) > 25  # 16 of them would be left by their upper 8 bits
    # Others are scaled by the same number, whatever they contain: files, Pillow's pictures, a later set.
    preprocess = Preprocess({"input_shape": [1, 5, 7], "input_dtype": "uint8"}, source=source)
    with Image.open(paths[0]) as image:
        for raw in (paths[0], image):
            assert torch.equal(preprocess.samples(raw)[0][0, 0].long(), expected[0])
    fixed = ImageFolder(str(tmp_path), mode="GRAY", in_memory=in_memory, max_value=source.max_value)
    fixed.read()
    assert (fixed.max_value, fixed.notes) == (4095, ())
    datamodule = data_module(source)
    datamodule.setup()
    assert datamodule.spec.max_value == 4095


COLORS = np.random.default_rng(1).integers(0, 4096, (2, 4, 5, 3)).astype(np.uint16)
OPAQUE = np.full((4, 5, 1), 65_535, dtype=np.uint16)


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of_sixteen_bits(values: NDArray[np.uint16]) -> bytes:
    """A PNG as the specification has it, which Pillow cannot write."""
    height, width, channels = values.shape
    color_type = {2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*one) for one in chunks)


def tiff_of_sixteen_bits(values: NDArray[np.uint16], orientation: int = 1) -> bytes:
    """An uncompressed TIFF of three colors."""
    height, width, _ = values.shape
    end = 8 + 2 + 12 * 10 + 4
    shape = (256, 3, 1, width), (257, 3, 1, height), (258, 3, 3, end), (259, 3, 1, 1), (262, 3, 1, 2)
    strips = (
        (273, 4, 1, end + 6),
        (274, 3, 1, orientation),
        (277, 3, 1, 3),
        (278, 3, 1, height),
        (279, 4, 1, values.nbytes),
    )
    entries = b"".join(struct.pack("<HHII", *entry) for entry in (*shape, *strips))
    bits = struct.pack("<3H", 16, 16, 16)
    return b"II*\0" + struct.pack("<IH", 8, 10) + entries + bytes(4) + bits + values.astype("<u2").tobytes()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["RGB", "RGBA", "LA", "TIFF"])
def test_sixteen_bits_are_kept_and_turned_as_their_exif_says(tmp_path: Path, kind: str, turned: bool) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    chunk = png_chunk(b"eXIf", exif.tobytes()[6:]) if turned else b""
    mode: Literal["RGB", "GRAY"] = "GRAY" if kind == "LA" else "RGB"
    colors = COLORS[..., :1] if kind == "LA" else COLORS
    for index, values in enumerate(colors):
        path = tmp_path / "ab"[index] / f"0.{'tif' if kind == 'TIFF' else 'png'}"
        path.parent.mkdir()
        if kind == "TIFF":
            content = tiff_of_sixteen_bits(values, 6 if turned else 1)
        else:
            alpha = {"RGB": [], "RGBA": [OPAQUE], "LA": [OPAQUE // 3]}[kind]
            content = png_of_sixteen_bits(np.concatenate([values, *alpha], -1))
            content = content[:33] + chunk + content[33:]  # after the signature and IHDR
        path.write_bytes(content)
    source = ImageFolder(str(tmp_path), in_memory=True, mode=mode, max_value="auto")
    samples = source.read()["all"]
    assert source.max_value == 4095
    upright = np.rot90(colors, -1, axes=(1, 2)) if turned else colors
    whole = torch.from_numpy(upright.astype(np.int64)).permute(0, 3, 1, 2) * 255
    assert torch.equal(samples.inputs.long(), whole // 4095)
    preprocess = Preprocess({"input_shape": [*whole.shape[1:]], "input_dtype": "uint8"}, source=source)
    with Image.open(path) as image:
        assert torch.equal(preprocess.samples(image)[0][0].long(), whole[1] // 4095)
    assert torch.equal(read_image(str(path), mode).long(), whole[1] // 65_535)


def test_no_other_pictures_are_scaled(tmp_path: Path) -> None:
    write(tmp_path, {"a": 2, "b": 2})
    source = ImageFolder(str(tmp_path), max_value="auto")
    source.read()
    assert (source.max_value, source.notes) == (None, ())
    write_wide(tmp_path / "wide", "png")
    bright = tmp_path / "wide" / "a" / "0.png"
    assert read_image(str(bright), "GRAY", None, 255).max() == 255  # what is above is white, not black
    assert read_image(str(bright), "GRAY")[0].tolist() == (WIDE[0] // 257).tolist()
    with pytest.raises(ValueError, match="max_value=0: expected"):
        ImageFolder(str(tmp_path), max_value=0)


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_and_masks_are_turned_once(tmp_path: Path, suffix: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.kron(np.array([[0, 1, 1], [0, 0, 1]]), np.ones((8, 8))).astype(np.uint8) * 255
    path = tmp_path / f"0.{suffix}"
    Image.fromarray(stored).convert("RGB").save(path, exif=exif)
    # By Pillow's own rule, of a picture that was not loaded from a file that turns itself.
    plain = io.BytesIO()
    Image.fromarray(stored).save(plain, "PNG", exif=exif)
    with Image.open(plain) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert size_of(str(path)) == expected.shape
    assert (read_image(str(path), "GRAY")[0].numpy() // 128 == expected // 128).all()
    with Image.open(path) as image:
        assert upright_size(image) == expected.shape
        image.load()
        assert upright_size(image) == expected.shape
        assert (as_tensor(image, "GRAY", None, None)[0].numpy() // 128 == expected // 128).all()
    if suffix != "jpg":
        assert (decode_mask(path.read_bytes()).numpy() == expected).all()
        for kind in ("images", "masks"):
            (tmp_path / kind).mkdir()
            shutil.copy(path, tmp_path / kind)
        for in_memory in (True, False):
            source = SegmentationFolder(str(tmp_path), mode="GRAY", in_memory=in_memory)
            data: Any = source.read()["all"]
            inputs, mask = (data.inputs[0], data.targets[0]) if in_memory else data.inputs[0]
            assert (inputs[0].numpy() == expected).all()
            assert (mask.numpy() == expected // 255).all()


def truncated(path: Path, suffix: str) -> None:
    Image.fromarray(pixels(100, 100)).save(path, format=suffix)
    path.write_bytes(path.read_bytes()[:-900])


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "zero.png": (Path.touch, "it is empty"),
    "text.jpg": (lambda path: path.write_text("this is not an image"), "it is not an image"),
    "header.png": (lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n cut off"), "it is not an image"),
    "cut.jpg": (lambda path: truncated(path, "JPEG"), "truncated"),
    "cut.png": (lambda path: truncated(path, "PNG"), "truncated"),
    "cut.webp": (lambda path: truncated(path, "WEBP"), "("),
    "dangling.jpg": (lambda path: path.symlink_to("nowhere.jpg"), "No such file"),
    "loop.jpg": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "pipe.jpg": (os.mkfifo, "it is not a regular file"),
    "wide.tif": (
        lambda path: Image.fromarray(np.full((100, 100), 70000, np.int32)).save(path),
        "its values go from 70000 to 70000; expected 8 or 16 bits",
    ),
    "real.tif": (
        lambda path: Image.fromarray(np.ones((100, 100), np.float32)).save(path),
        "its values are real numbers",
    ),
}


@pytest.mark.parametrize("in_memory", ["auto", False])
def test_all_bad_files_are_found_before_training(tmp_path: Path, in_memory: Any) -> None:
    write(tmp_path, {"a": 3, "b": 3}, size=(100, 100))
    for name, (make, _) in BAD.items():
        make(tmp_path / "b" / name)
    total = 6 + len(BAD)
    with pytest.raises(DataError) as caught:
        ImageFolder(str(tmp_path), in_memory=in_memory).read()
    message = caught.value.message
    assert message.startswith(
        f"data.source.root={tmp_path}: {len(BAD)} of {total} images cannot be used: b/cut.jpg ("
    )
    assert "b/header.png, b/text.jpg (it is not an image" in message
    assert all(f"b/{name}" in message and why in message for name, (_, why) in BAD.items())
    assert caught.value.hint.endswith("data.source.on_bad=skip")

    source = ImageFolder(str(tmp_path), in_memory=in_memory, on_bad="skip")
    data = source.read()["all"]
    assert data.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.in_memory != (in_memory is False)
    samples = data if data.in_memory else data.inputs
    assert torch.equal(samples[4][0], read_image(str(tmp_path / "b" / "01.png")))
    assert [note for note in source.notes if f"{len(BAD)} of {total} images cannot be used" in note]


def test_files_that_are_bad_alike_are_listed_together(tmp_path: Path) -> None:
    write(tmp_path, {"a": 3, "b": 3})
    for number in range(8):
        (tmp_path / "a" / f"empty{number}.png").touch()
    with pytest.raises(DataError) as caught:
        ImageFolder(str(tmp_path)).read()
    listed = ", ".join(f"a/empty{number}.png" for number in range(5))
    why = BAD["zero.png"][1]
    assert f"8 of 14 images cannot be used: {listed} and 3 more ({why}" in caught.value.message
    assert caught.value.message.count(why) == 1


def test_what_is_no_picture_by_its_name_is_said(tmp_path: Path) -> None:
    write(tmp_path, {"a": 2, "b": 2})
    for name in (".DS_Store", "Thumbs.db", "._00.png", ".hidden.jpg"):
        (tmp_path / "a" / name).write_bytes(b"x")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / "a" / "folder.jpg").mkdir()
    Image.fromarray(pixels()).save(tmp_path / "a" / "folder.jpg" / "inside.png")
    (tmp_path / "a" / "back").symlink_to(tmp_path / "a")
    quiet, source = ImageFolder(str(tmp_path)), ImageFolder(str(tmp_path))
    assert len(quiet.read()["all"]) == 5
    assert quiet.class_names == ("a", "b")
    frames = [Image.fromarray(pixels()) for _ in range(3)]
    frames[0].save(tmp_path / "b" / "moving.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "b" / "notes.txt").touch()
    samples = source.read()["all"]
    assert len(samples) == 6
    assert torch.equal(samples.inputs[-1], torch.from_numpy(np.array(frames[0])).movedim(-1, 0))
    assert "left out: 1 × folder named as an image" in quiet.notes[0]
    assert "1 × .txt" in source.notes[0].partition("left out: ")[2].split(", ")
    assert "of images with several frames or pages, the first one is used" in source.notes[1]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_changed_pixel_is_other_data(
    tmp_path: Path, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "_FEW", 0)  # what was found is remembered
    monkeypatch.setattr(image_cache, "_SETTLED", 0.0)
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "pictures"
    (root / "a").mkdir(parents=True)
    path, other = root / "a" / "0.bmp", root / "a" / "1.bmp"
    for file in (path, other):
        Image.fromarray(pixels()).save(file)
    before = path.stat()

    def digest() -> str:
        return ImageFolder(str(root), in_memory=in_memory).read()["all"].digest()

    digests = [digest(), digest()]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    digests.append(digest())
    assert digests[0] == digests[1] != digests[2]


def test_no_program_is_started_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, marker = tmp_path / "postscript.jpg", tmp_path / "started"
    Image.fromarray(pixels()).save(path, format="EPS")
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\nexit 0\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    with pytest.raises(OSError), Image.open(path) as opened:  # noqa: PT011 - whatever Ghostscript makes of it
        opened.load()
    assert marker.exists()
    marker.unlink()
    with pytest.raises(DataError, match="it is not an image"):
        read_image(str(path))
    with pytest.raises(ValueError, match="it is not an image"):
        verify(path.read_bytes())
    assert size_of(str(path)) is None
    assert not marker.exists()


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ({"a": None}, "contains no folder of images"),
        ({"a": 2, "b": 0, "c": 1}, "no image in the folder of class b"),
        ({"a": 0, "b": 0}, "contains no images"),
        ({"train/a": 2, "train/b": 2, "test/a": 0}, r"test contains no images"),
        ({"train/a": 2, "train/b": 2, "test/a": 1, "test/x": 1}, "test has a class that training lacks: x"),
        ({"train/a": 2, "test/a": 2, "masks": 0}, "beside train there is masks"),
        ({"train/a": 2, "val/a": 2, "valid/a": 2}, "both val and valid would be the val subset"),
    ],
)
def test_folders_that_are_not_classes(tmp_path: Path, folders: dict[str, Any], message: str) -> None:
    for name, count in folders.items():
        if count is None:
            Image.fromarray(pixels()).save(tmp_path / f"{name}.png")
        else:
            write((tmp_path / name).parent, {Path(name).name: count})
    with pytest.raises(DataError, match=message):
        ImageFolder(str(tmp_path)).read()


@pytest.mark.parametrize(
    ("names", "subsets"),
    [
        (["Training", "Testing"], {"train", "test"}),
        (["TRAIN", "valid", "Test"], {"train", "val", "test"}),
        (["train", "validation"], {"train", "val"}),
        (["training", "car"], {"all"}),
        (["train", "plane", "car"], {"all"}),
        (["test", "control"], {"all"}),
    ],
)
def test_names_of_folders_that_mean_a_subset(tmp_path: Path, names: list[str], subsets: set[str]) -> None:
    inside = [""] if subsets == {"all"} else ["/a", "/b"]
    for name in names:
        for label in inside:
            write((tmp_path / f"{name}{label}").parent, {f"{name}{label}".rpartition("/")[2]: 3})
    source = ImageFolder(str(tmp_path))
    assert set(source.read()) == subsets
    assert source.class_names == (tuple(sorted(names)) if subsets == {"all"} else ("a", "b"))


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    folder = tmp_path / "pictures"
    folder.mkdir()
    made = []
    for number in range(70):  # more than one thread takes at a time
        path = folder / f"{number:02}.png"
        Image.fromarray(np.full((2 + number % 3, 5), number, np.uint8)).save(path)
        made.append(str(path))
    (folder / "33.png").write_bytes(b"hello")
    return made


def check(looks: list[FileScan], paths: list[str]) -> None:
    assert looks[33].bad == "it is not an image"
    for number, (look, path) in enumerate(zip(looks, paths, strict=True)):
        if number != 33:
            with open(path, "rb") as file:  # noqa: PTH123 - as anybody would hash it
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            assert look == FileScan(digest, (2 + number % 3, 5))


def test_what_is_whole_is_remembered_and_what_changed_is_read_again(
    paths: list[str], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "pictures"
    first = scan_images(root, paths, verify)
    check(first, paths)
    [file] = cache.iterdir()
    assert len(json.loads(file.read_text())) == 69, "a bad file is read each time"
    read: list[str] = []

    def noted(path: str) -> bytes:
        read.append(path)
        return read_bytes(path)

    monkeypatch.setattr(image_cache, "read_bytes", noted)
    assert scan_images(root, paths, verify) == first
    assert read == [paths[33]]
    read.clear()
    Image.fromarray(np.full((2, 5), 200, np.uint8)).save(paths[0])
    again = scan_images(root, paths, verify)
    assert sorted(read) == [paths[0], paths[33]]
    assert again[0].sha256 != first[0].sha256
    assert again[1:] == first[1:]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"00.png": 3}', '{"00.png": ["", 7]}'])
def test_what_is_remembered_wrongly_is_made_anew(
    paths: list[str], tmp_path: Path, cache: Path, content: str
) -> None:
    root = tmp_path / "pictures"
    scan_images(root, paths, verify)
    [file] = cache.iterdir()
    file.write_text(content)
    check(scan_images(root, paths, verify), paths)
    assert len(json.loads(file.read_text())) == 69


def test_a_home_that_cannot_be_written(paths: list[str], tmp_path: Path, cache: Path) -> None:
    cache.parent.touch()  # a file where a folder has to be
    check(scan_images(tmp_path / "pictures", paths, verify), paths)


def paint(path: Path, size: tuple[int, int], mode: str = "RGB", level: int = 90) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(level).normal(level, 20, (*size, 3)).clip(0, 255).astype(np.uint8)
    picture = Image.fromarray(noise)
    if mode == "I;16":
        picture = Image.fromarray(noise[..., 0].astype(np.uint16) * 257)
    elif mode != "RGB":
        picture = picture.convert(mode)
    picture.save(path)
    return path


@pytest.mark.parametrize(
    ("sizes", "chosen", "told"),
    [
        ([(20, 30)] * 3, None, ""),
        ([(20, 30), (24, 36), (24, 36)], (24, 40), "images of 2 sizes"),
        ([(16, 16), (32, 32)], (24, 24), "images of 2 sizes are scaled to 24×24 (height × width)"),
        ([(600, 800)] * 2, (168, 224), "images are scaled to 168×224"),
        ([(1, 3), (3, 1)], (8, 8), "images of 2 sizes"),
    ],
)
def test_the_size(
    tmp_path: Path, sizes: list[tuple[int, int]], chosen: tuple[int, int] | None, told: str
) -> None:
    paths = [str(paint(tmp_path / f"{number}.png", size)) for number, size in enumerate(sizes)]
    size, note = choose_size([shape for path in paths if (shape := size_of(path))])
    assert size == chosen
    assert told in note
    assert bool(note) == (chosen is not None)


@pytest.mark.parametrize(
    ("bad", "total", "on_bad", "ends"),
    [
        (1, 30, "auto", False),
        (6, 100, "auto", True),
        (1, 30, "error", True),
        (29, 30, "skip", False),
        (30, 30, "skip", True),
    ],
)
def test_how_many_may_be_bad(bad: int, total: int, on_bad: str, ends: bool) -> None:
    bad_files = [(f"{number}.jpg", "it is empty") for number in range(bad)]
    options: dict[str, Any] = {"on_bad": on_bad, "mend": "repair them"}
    if ends:
        with pytest.raises(DataError, match=f"{bad} of {total} images cannot be used: 0.jpg") as caught:
            note_bad("data.source.root=x", "image", bad_files, total, **options)
        assert ("on_bad=skip" in caught.value.hint) == (bad < total)
    else:
        note = note_bad("data.source.root=x", "image", bad_files, total, **options)
        assert note.endswith(f"left out because of data.source.on_bad={on_bad}")


def test_a_size_that_no_picture_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"image_size=\(0, 32\): expected a number >= 1"):
        ImageFolder(str(tmp_path), image_size=(0, 32))


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        (["data/a/0.png", "data/b/0.png"], "a single folder, data", 'data.source.root="{root}/data"'),
        (["d/train/a/0.png", "d/train/b/0.png"], "a single folder, d", 'data.source.root="{root}/d"'),
        (
            ["train/a/0.png", "train/b/0.png", "test/0.png"],
            "test contains no folder",
            "assay predict reads them",
        ),
    ],
)
def test_a_folder_around_the_data_or_pictures_without_classes_are_named(
    files: list[str], message: str, hint: str, tmp_path: Path
) -> None:
    root = tmp_path / "my data"
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        PICTURE.save(root / name)
    with pytest.raises(DataError, match=message) as caught:
        ImageFolder(str(root)).read()
    assert hint.format(root=root) in caught.value.hint
    if "root" in hint:
        assert ImageFolder(str(root / files[0].partition("/")[0])).read()


def test_classes_that_differ_only_in_case_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"cat": 1, "Cat": 1, "dog": 1})
    source = ImageFolder(str(tmp_path))
    source.read()
    assert any("differ only in case or spaces: 'Cat', 'cat'" in note for note in source.notes)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *itertools.product(["folder", "classes", "labels"], ["${oc.env:HOME}", "a ${seed}", "???"]),
        ("multitask", "${oc.env:HOME}"),
    ],
)
def test_a_name_in_the_data_is_never_looked_up(kind: str, name: str, tmp_path: Path) -> None:
    """The environment would come into the run directory, and from there into predictions."""
    words = ["data=image_folder", f"data.source.root={tmp_path}/folder"]
    if kind == "folder":
        write(tmp_path / "folder", {name: 8, "b": 8})
    else:
        rows = {
            "x": [0.5, 0.1, 0.9, 0.4] * 4,
            "y": ["b", name, f"b|{name}", "b"] * 4,
            "z": ["c", "d", "d", "c"] * 4,
        }
        if kind != "labels":
            rows["y"] = [name, "b"] * 8
        pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
        words = ["data=table", f"data.source.path={tmp_path}/a.csv", "data.source.target=y"]
        if kind == "labels":
            words.append("data.source.label_separator='|'")
        elif kind == "multitask":
            words[-1] = "data.source.target=[y,z]"
    for verb in ("data", "train") if name == "${oc.env:HOME}" else ("data",):
        said = " ".join(typed(verb, *words, code=1, folder=tmp_path).output.split())
        assert f"{name}', which a config cannot hold" in said
        assert "rename it" in said
