"""Folders as people have them: many sizes and modes, turned by EXIF, a file that is damaged."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.conftest import unchanged_process

if TYPE_CHECKING:
    from pathlib import Path
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

import assay
from assay.data.image_folder import ImageFolder
from assay.data.images import choose_size, read_image, too_many
from assay.errors import DataError


def typed(root: Path) -> list[str]:
    folder = ["data=image_folder", f"data.source.root={root}", "data.num_workers=0"]
    return [*folder, "device=cpu", "baseline=none"]


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


@pytest.fixture
def mess(tmp_path: Path) -> Path:
    sizes = [(30, 40), (33, 44), (36, 48), (31, 40)]
    for number in range(40):
        mode = {3: "L", 5: "RGBA", 7: "I;16", 9: "P"}.get(number, "RGB")
        for name, level in (("dark", 40), ("light", 190)):
            paint(tmp_path / "pictures" / name / f"{number}.png", sizes[number % 4], mode, level + number)
    turned = Image.fromarray(np.full((40, 30, 3), 40, np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "pictures" / "dark" / "turned.jpg", exif=exif)
    (tmp_path / "pictures" / "light" / "damaged.png").write_bytes(b"\x89PNG, or not")
    return tmp_path / "pictures"


def test_all_of_it_trains_as_typed_and_is_said(mess: Path, tmp_path: Path) -> None:
    with chdir(tmp_path), unchanged_process():
        result: Any = assay.train([*typed(mess), "trainer.max_epochs=2"])
        told = "\n".join(result.notes)
        assert "pictures of 4 sizes are scaled to 32×40 (height × width)" in told
        assert "1 of 82 pictures cannot be used: light/damaged.png (it is not an image); left out" in told
        data: Any = result.trainer.datamodule
        assert data.spec.input_shape == (3, 32, 40)
        predicted = result.predictor(mess / "dark" / "0.png")
    assert predicted.label == "dark"


def test_they_are_scaled_as_torchvision_does(mess: Path) -> None:
    source = ImageFolder(str(mess), image_size="auto", on_bad="auto")
    samples: Any = source.read()["all"]
    assert source.image_size == (32, 40)
    path = mess / "dark" / "0.png"
    expected = F.resize(read_image(str(path)), [32, 40], antialias=True)
    assert torch.equal(samples[samples.names.index("dark/0.png")][0], expected)


@pytest.mark.parametrize(
    ("sizes", "chosen", "told"),
    [
        ([(20, 30)] * 3, None, ""),
        ([(20, 30), (24, 36), (24, 36)], (24, 40), "proportions change by up to"),
        ([(16, 16), (32, 32)], (24, 24), "pictures of 2 sizes are scaled to 24×24 (height × width)"),
        ([(600, 800)] * 2, (168, 224), "pictures are scaled to 168×224"),
        ([(1, 3), (3, 1)], (8, 8), "pictures of 2 sizes"),
    ],
)
def test_the_size(
    tmp_path: Path, sizes: list[tuple[int, int]], chosen: tuple[int, int] | None, told: str
) -> None:
    paths = [str(paint(tmp_path / f"{number}.png", size)) for number, size in enumerate(sizes)]
    size, note = choose_size(paths)
    assert size == chosen
    assert told in note
    assert bool(note) == (chosen is not None)


def test_one_size_stays_as_it_is_without_a_word(tmp_path: Path) -> None:
    for number in range(4):
        paint(tmp_path / f"{'ab'[number % 2]}" / f"{number}.png", (10, 12))
    source = ImageFolder(str(tmp_path), image_size="auto", on_bad="auto")
    samples: Any = source.read()["all"]
    assert samples[0][0].shape == (3, 10, 12)
    assert (source.image_size, source.notes) == (None, ())


def test_with_transforms_they_reach_these_as_they_are(mess: Path, tmp_path: Path) -> None:
    with chdir(tmp_path), unchanged_process():
        result = assay.train(
            [*typed(mess), "trainer.max_epochs=1", "data/transform=resize", "data.transform.size=[16,16]"]
        )
    assert not [note for note in result.notes if "image_size" in note]


@pytest.mark.parametrize(
    ("bad", "total", "on_bad", "ends"),
    [
        (1, 30, "auto", False),
        (2, 30, "auto", True),
        (5, 100, "auto", False),
        (6, 100, "auto", True),
        (29, 30, "skip", False),
        (30, 30, "skip", True),
        (1, 1000, "error", True),
        (0, 1000, "error", False),
    ],
)
def test_how_many_may_be_bad(bad: int, total: int, on_bad: str, ends: bool) -> None:
    assert too_many(bad, total, on_bad) is ends


def test_too_many_bad_ones_are_refused_together(mess: Path) -> None:
    for number in range(8):
        (mess / "dark" / f"bad{number}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"9 of 90 pictures cannot be used") as caught:
        ImageFolder(str(mess), image_size="auto", on_bad="auto").read()
    assert caught.value.hint.endswith("data.source.on_bad=skip")
