"""Decoded pictures of several sizes and masks: kept as the transforms begin, whatever memory there is."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.image import decode as decoding
from assay.data.image.decode import read_image
from assay.data.image.image_cache import list_cached
from assay.data.image.image_folder import ImageFolder
from assay.data.image.segmentation_folder import SegmentationFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from assay.data.core.data_module import DataModule

SIZES = [(30, 40), (40, 30), (33, 47), (20, 61), (1, 50), (50, 1), (1, 1), (64, 64)]
COUNT = 32
CHAINS: dict[str, tuple[list[Any], list[Any]]] = {
    "both to one size": ([v2.Resize([12, 16])], [v2.Resize([12, 16])]),
    "the shorter side, then crops": (
        [v2.Resize(6), v2.RandomCrop(6), v2.RandomHorizontalFlip()],
        [v2.Resize(6), v2.CenterCrop(6)],
    ),
    "crops of pictures as they are": ([v2.RandomResizedCrop(14)], [v2.Resize(15), v2.CenterCrop(14)]),
    "larger than they are": ([v2.Resize([90, 90])], [v2.Resize([90, 90])]),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    draws = np.random.default_rng(0)
    for number in range(COUNT):
        size = SIZES[number % len(SIZES)]
        files = {
            tmp_path / "images" / f"{number:02}.png": draws.integers(0, 256, (*size, 3)),
            tmp_path / "masks" / f"{number:02}.png": draws.choice([0, 1, 2, 255], size),
            tmp_path / "classes" / "abcd"[number % 4] / f"{number:02}.png": draws.integers(
                0, 256, (*size, 3)
            ),
        }
        for path, values in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values.astype(np.uint8)).save(path)
    return tmp_path


def source_of(kind: str, root: Path, **options: Any) -> Any:
    if kind == "masks":
        return SegmentationFolder(str(root), **options)
    return ImageFolder(str(root / "classes"), **options)


def batches(data: DataModule) -> Iterator[Any]:
    data.setup()
    for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        for batch in loader:
            yield data.on_after_batch_transfer(batch, 0)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("chains", CHAINS)
@pytest.mark.parametrize("kind", ["classes", "masks"])
def test_the_same_batches_without_reading_again(
    kind: str, chains: str, root: Path, reads: list[str], data_module: Callable[..., DataModule]
) -> None:
    train, evaluation = CHAINS[chains]
    transform = {"train": train, "eval": evaluation, "normalize": None}

    def make(**options: Any) -> DataModule:
        return data_module(source_of(kind, root, **options), transform=transform)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.data.core.data_module.shared_resize", lambda _: None)
        expected = list(batches(make(in_memory=False)))
    for _ in range(2):
        data = make()
        for (inputs, targets), (right_inputs, right_targets) in zip(batches(data), expected, strict=True):
            assert torch.equal(inputs, right_inputs)
            assert torch.equal(targets, right_targets)
        reads.clear()
    assert len(list(batches(make()))) == len(expected)
    assert not reads
    kept = {cached.form for cached in list_cached()}
    assert len(kept) == 1 + (kind == "masks")
    is_scaled = chains in ("both to one size", "the shorter side, then crops")
    assert all(("Resize" in form) == is_scaled for form in kept), "only where that makes them smaller"


@pytest.mark.parametrize("kind", ["classes", "masks"])
def test_what_memory_has_no_room_for_is_read_from_the_cache(
    kind: str, root: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = source_of(kind, root, image_size=(8, 12)).read()["all"]
    assert in_memory.in_memory
    reads.clear()
    monkeypatch.setattr("assay.data.image.image_source.free_memory", lambda: 0)
    samples = source_of(kind, root, image_size=(8, 12)).read()["all"]
    assert not samples.in_memory
    for dataset in (samples.inputs, pickle.loads(pickle.dumps(samples.inputs))):  # noqa: S301 - written here
        for row in range(COUNT):
            image, target = dataset[row]
            assert torch.equal(image, in_memory.inputs[row])
            assert torch.equal(target, in_memory.targets[row])
    assert not reads
    assert samples.digest() == in_memory.digest() or kind == "masks", "of masks, pixels are counted instead"


def test_what_cannot_be_used_is_left_out_of_what_is_kept(
    root: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    truncated = root / "classes" / "a" / "00.png"
    truncated.write_bytes(truncated.read_bytes()[:-600])
    (root / "classes" / "c" / "30.png").write_bytes(b"")
    for free in (1 << 40, 0):
        monkeypatch.setattr("assay.data.image.image_source.free_memory", lambda free=free: free)
        for size in (None, (8, 12)):
            source = ImageFolder(str(root / "classes"), size, on_bad="skip")
            samples = source.read()["all"]
            assert "2 of 32 images cannot be used: a/00.png (" in source.notes[-1]
            assert len(samples) == COUNT - 2
            for row, name in enumerate(samples.names):
                right = read_image(str(root / "classes" / name), "RGB", size)
                assert torch.equal(samples[row][0], right)


def test_no_more_is_kept_than_there_is_room_for(
    root: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    source = ImageFolder(str(root / "classes"))
    assert len(source.read()["all"]) == COUNT
    assert "No space left on device" in source.notes[0]
    assert len(reads) == COUNT, "nothing is decoded in vain"
    monkeypatch.setenv("ASSAY_CACHE_GB", "1e-6")
    assert len(source.read()["all"]) == COUNT
    assert "not kept for the next job: they take 0.0 GB, more than ASSAY_CACHE_GB=1e-06" in source.notes[0]


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_photo_is_decoded_at_a_reduced_size(
    orientation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns = np.mgrid[0:1200, 0:1600]
    waves = [np.sin(rows / 90), np.cos(columns / 70), np.sin((rows + columns) / 120)]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "classes" / "a" / "large.jpg"
    path.parent.mkdir(parents=True)
    photo = Image.fromarray((127 + 100 * np.stack(waves, -1)).astype(np.uint8))
    photo.save(path, quality=95, exif=exif)
    sizes: list[tuple[int, int]] = []
    whole = decoding.turn_upright

    def note(image: Image.Image) -> Image.Image:
        upright = whole(image)
        sizes.append(upright.size)
        return upright

    full = read_image(str(path))
    monkeypatch.setattr(decoding, "turn_upright", note)
    size = (75, 100) if orientation == 1 else (100, 75)
    samples = ImageFolder(str(tmp_path / "classes"), image_size=size).read()["all"]
    assert sizes == [(400, 300) if orientation == 1 else (300, 400)], (
        "a quarter, not less than twice the longer side"
    )
    right = v2.functional.resize(full, list(size), antialias=True)
    assert float((samples.inputs[0].float() - right.float()).abs().max()) <= 4
    assert torch.equal(samples.inputs[0], read_image(str(path), "RGB", size)), "as a prediction reads it"
