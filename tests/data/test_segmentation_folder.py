"""Pictures with masks, as people have them."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from assay.data.image.decode import read_image
from assay.data.image.digits_segmentation import DigitsSegmentation
from assay.data.image.segmentation_folder import SegmentationFolder, decode_mask, find_classes
from assay.errors import ConfigError, DataError
from assay.task.segmentation import IGNORED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray


VALUES = np.array([[0, 1, 2, 255], [3, 3, 0, 9]], np.uint8)


def as_file(image: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def with_palette() -> Image.Image:
    image = Image.fromarray(VALUES, "L")
    image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
    return image


GREY = Image.fromarray(VALUES, "L")

FORMS = {
    "grey": GREY,
    "palette": with_palette(),
    "grey with alpha": Image.merge("LA", [GREY, Image.new("L", GREY.size, 7)]),
    "equal channels": Image.merge("RGB", [GREY] * 3),
    "equal channels and alpha": Image.merge("RGBA", [GREY] * 4),
    "16 bits": Image.fromarray(VALUES.astype(np.uint16)),
}


@pytest.mark.parametrize("form", FORMS)
def test_values_are_kept(form: str) -> None:
    np.testing.assert_array_equal(decode_mask(as_file(FORMS[form])).numpy(), VALUES)


@pytest.mark.parametrize("kind", ["GIF", "PNG"])
def test_a_palette_of_greys_has_grey_values(kind: str) -> None:
    # Pillow numbers the values that are there from 0
    image = Image.fromarray(np.where(VALUES > 2, np.uint8(9), np.uint8(4)), "L").quantize(2)
    content = as_file(image, kind)
    np.testing.assert_array_equal(decode_mask(content).numpy(), np.where(VALUES > 2, 9, 4))


def test_black_and_white() -> None:
    content = as_file(Image.fromarray(VALUES > 1))
    np.testing.assert_array_equal(decode_mask(content).numpy(), VALUES > 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (as_file(Image.merge("RGB", [GREY, GREY.rotate(180), GREY])), "it has colours"),
        (as_file(Image.fromarray(VALUES.astype(np.uint16) * 200)), "got up to 51000"),
        (as_file(GREY, "JPEG"), "JPEG, which changes the values"),
        (b"\x89PNG\r\n\x1a\nrest", "not a PNG file"),
    ],
)
def test_what_is_not_a_mask_is_refused(content: bytes, message: str, root: Path) -> None:
    with pytest.raises(ValueError, match=message):
        decode_mask(content)
    (root / "masks" / "my photo 3.png").write_bytes(content)
    with pytest.raises(DataError, match=rf"my photo 3\.\w+ \(its mask: .*{message}"):
        SegmentationFolder(str(root)).read()


def counts(*values: int) -> Any:
    table = np.zeros((1, 256), np.int32)
    table[0, list(values)] = 5
    return table


@pytest.mark.parametrize(
    ("given", "there", "names", "classes"),
    [
        ({}, [0, 1, 2, 255], ("0", "1", "2"), {0: 0, 2: 2, 255: IGNORED, 3: -1}),
        ({}, [0, 255], ("0", "1"), {0: 0, 255: 1}),
        ({"class_names": ["sky", "sea"]}, [0, 255], ("sky", "sea"), {255: 1}),
        ({"class_names": ["sky", "sea", "sand"]}, [0, 2, 255], ("sky", "sea", "sand"), {1: 1, 255: IGNORED}),
        ({"values": [7, 0]}, [0, 7], ("0", "1"), {7: 0, 0: 1, 255: IGNORED}),
        ({"ignore_value": 0}, [0, 1, 2], (), {}),
        ({"ignore_value": 0, "values": [1, 2]}, [0, 1, 2], ("0", "1"), {0: IGNORED, 1: 0, 2: 1, 255: -1}),
        ({"ignore_value": None}, [0, 1], ("0", "1"), {255: -1}),
        ({}, [0, 128], (), {}),
        ({}, [0, 127, 255], (), {}),
        ({"ignore_value": 127}, [0, 127, 255], (), {}),
    ],
)
def test_classes(given: dict[str, Any], there: list[int], names: Any, classes: dict[int, int]) -> None:
    options = {"class_names": None, "values": None, "ignore_value": 255} | given
    if not names:
        with pytest.raises(DataError, match="do not number classes from 0") as caught:
            find_classes(counts(*there), **options)
        every = ",".join(map(str, there))
        assert caught.value.hint.startswith(f"data.source.values=[{every}]")
        ignored = options["ignore_value"]
        others = ",".join(str(value) for value in there if value != ignored)
        said = f", or data.source.values=[{others}] to ignore {ignored}, or"
        assert (said in caught.value.hint) == (ignored in there)
        return
    found, table, note = find_classes(counts(*there), **options)
    assert found == names
    assert {value: int(table[value]) for value in classes} == classes
    assert bool(note) == (there == [0, 255])


@pytest.mark.parametrize(
    "given",
    [
        {"class_names": ["a", "a"]},
        {"values": [0, 0]},
        {"values": [0, 300]},
        {"values": [0, 1], "class_names": ["a", "b", "c"]},
        {"ignore_value": -1},
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        SegmentationFolder("scans", **given)


SUFFIXES = ("png", "jpg", "webp", "PNG")
SIZE = (6, 8)


def picture(seed: int, size: tuple[int, int] = SIZE) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8))


def mask(seed: int, size: tuple[int, int] = SIZE) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).choice([0, 1, 2, 255], size).astype(np.uint8), "L")


def fill(images: Path, masks: Path, count: int = 8) -> None:
    for at in range(count):
        name = f"my photo {at}" if at % 2 else f"deep/ä {at}"
        for folder, image, suffix in ((images, picture(at), SUFFIXES[at % 4]), (masks, mask(at), "png")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{name}.{suffix}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "images", tmp_path / "masks")
    return tmp_path


def test_pictures_and_masks_belong_together(root: Path) -> None:
    source = SegmentationFolder(str(root))
    [samples] = source.read().values()
    assert samples.in_memory
    assert source.class_names == ("0", "1", "2")
    for name, inputs, target in zip(samples.names, samples.inputs, samples.targets, strict=True):
        path = root / str(name)
        assert torch.equal(inputs, read_image(str(path)))
        stem = path.relative_to(root / "images").with_suffix(".png")
        assert torch.equal(target, decode_mask((root / "masks" / stem).read_bytes()))


@pytest.mark.parametrize("layout", ["{subset}/{kind}", "{kind}/{subset}"])
@pytest.mark.parametrize("names", [("train", "val", "test"), ("Training", "valid", "TEST")])
def test_parts_of_its_own(tmp_path: Path, layout: str, names: tuple[str, ...]) -> None:
    for subset in names:
        images, masks = (tmp_path / layout.format(subset=subset, kind=kind) for kind in ("images", "masks"))
        fill(images, masks, 4)
    assert {subset: len(data) for subset, data in SegmentationFolder(str(tmp_path)).read().items()} == {
        "train": 4,
        "val": 4,
        "test": 4,
    }


def test_a_stream_gives_the_same_and_counts_pixels(root: Path) -> None:
    [held] = SegmentationFolder(str(root), (4, 4), in_memory=True).read().values()
    [stream] = SegmentationFolder(str(root), (4, 4), in_memory=False).read().values()
    assert held.in_memory
    assert not stream.in_memory
    for at in range(len(held)):
        for one, other in zip(held[at], stream.inputs[at], strict=True):
            assert torch.equal(one, other)
    [whole] = SegmentationFolder(str(root), in_memory=False).read().values()
    assert int(whole.targets.sum()) == sum(
        int((decode_mask(path.read_bytes()) != IGNORED).sum()) for path in (root / "masks").rglob("*.png")
    )


def small(root: Path) -> None:
    mask(3, (5, 8)).save(root / "masks" / "my photo 3.png")


def strange(root: Path) -> None:
    Image.fromarray(np.full(SIZE, 7, np.uint8), "L").save(root / "masks" / "my photo 3.png")


def coloured(root: Path) -> None:
    picture(9).save(root / "masks" / "my photo 3.png")


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda root: (root / "masks" / "my photo 3.png").unlink(), "no mask my photo 3.png in masks"),
    "another size": (small, "its mask has 5×8 pixels, the image 6×8"),
    "unknown value": (strange, "its mask has the value 7, which is not a class; others: data.source.values="),
    "colours": (coloured, "its mask: it has colours"),
    "broken": (
        lambda root: (root / "masks" / "my photo 3.png").write_bytes(b"x"),
        "its mask: it is not a PNG",
    ),
    "broken picture": (
        lambda root: (root / "images" / "my photo 3.PNG").write_bytes(b"x"),
        "the image: it is not an image",
    ),
}


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_pair_is_named_or_left_out(root: Path, kind: str, in_memory: bool) -> None:
    spoil, why = BAD[kind]
    spoil(root)
    names: Any = {"class_names": ["a", "b", "c"], "in_memory": in_memory}
    with pytest.raises(DataError) as caught:
        SegmentationFolder(str(root), **names).read()
    assert f"1 of 8 images cannot be used: images/my photo 3.PNG ({why}" in caught.value.message
    assert "data.source.on_bad=skip" in caught.value.hint
    source = SegmentationFolder(str(root), **names, on_bad="skip")
    [kept] = source.read().values()
    assert len(kept) == 7
    assert why in " ".join(source.notes)
    assert "images/my photo 3.PNG" not in kept.names


def test_names_that_are_not_unique(root: Path) -> None:
    picture(1).save(root / "images" / "my photo 3.jpg")
    with pytest.raises(DataError, match="differ only in"):
        SegmentationFolder(str(root)).read()


def test_a_mask_without_a_picture_is_said(root: Path) -> None:
    mask(1).save(root / "masks" / "lonely.png")
    source = SegmentationFolder(str(root))
    source.read()
    assert "masks without an image are left out: lonely" in source.notes[0]


@pytest.mark.parametrize("make", ["", "images", "images masks", "train/images"])
def test_another_folder(tmp_path: Path, make: str) -> None:
    for name in make.split():
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DataError, match=r"data\.source\.root="):
        SegmentationFolder(str(tmp_path)).read()
    with pytest.raises(ConfigError, match="there is no such folder"):
        SegmentationFolder(str(tmp_path / "nowhere")).read()


def test_scenes_follow_from_the_seed() -> None:
    one, same, other = (DigitsSegmentation([20, 4, 4], seed=seed).read() for seed in (0, 0, 1))
    for part in ("train", "val", "test"):
        assert torch.equal(one[part].inputs, same[part].inputs)
        assert torch.equal(one[part].targets, same[part].targets)
        assert not torch.equal(one[part].inputs, other[part].inputs)
    targets = one["train"].targets
    assert sorted(set(targets.flatten().tolist())) == [0, 1, 2, 3]
    assert bool((targets == 0).flatten(1).any(1).all()), "a photograph is behind each"
    assert 0.05 < float((targets > 0).float().mean()) < 0.5


def write_pairs(root: Path, mask_names: list[str]) -> None:
    """Grey pictures 1, 2, …, 11 whose masks have their number as a value."""
    for folder in ("images", "masks"):
        (root / folder).mkdir()
    for number, name in enumerate(mask_names, 1):
        Image.new("RGB", (8, 8), (number,) * 3).save(root / "images" / f"{number}.png")
        Image.new("L", (8, 8), number % 2).save(root / "masks" / name)


@pytest.mark.parametrize("form", ["{}.gif", "{}_mask.png", "{}-seg.gif", "{}1.bmp"])
def test_masks_may_have_an_ending_or_be_gifs(form: str, tmp_path: Path) -> None:
    write_pairs(tmp_path, [form.format(number) for number in range(1, 12)])
    source = SegmentationFolder(str(tmp_path))
    samples = source.read()["all"]
    assert len(samples) == 11
    np.testing.assert_array_equal(samples.targets[:, 0, 0], samples.inputs[:, 0, 0, 0] % 2)


@pytest.mark.parametrize("lost", [1, 3])
def test_a_mask_without_the_ending_of_the_others_replaces_none(tmp_path: Path, lost: int) -> None:
    write_pairs(tmp_path, [f"{number}_mask.png" for number in range(1, 12)])
    Image.new("L", (8, 8), 1).save(tmp_path / "masks" / "2.png")
    (tmp_path / "masks" / f"{lost}_mask.png").unlink()
    source = SegmentationFolder(str(tmp_path), on_bad="skip")
    samples = source.read()["all"]
    np.testing.assert_array_equal(samples.targets[:, 0, 0], samples.inputs[:, 0, 0, 0] % 2)
    assert any("masks without an image are left out: 2" in note for note in source.notes)
    assert any(f"no mask {lost}_mask.png in masks" in note for note in source.notes)


def test_masks_that_are_called_otherwise_are_refused_with_an_example_of_both(tmp_path: Path) -> None:
    write_pairs(tmp_path, [f"m{number}.png" for number in range(1, 12)])
    with pytest.raises(DataError, match=r"is called as an image below .*: 1 and m1"):
        SegmentationFolder(str(tmp_path)).read()


def test_colours_may_be_classes_in_the_order_that_is_typed(tmp_path: Path) -> None:
    write_pairs(tmp_path, [f"{number}.png" for number in range(1, 12)])
    colours = np.array([[0, 0, 0], [200, 30, 30], [30, 30, 200]], np.uint8)
    classes = np.random.default_rng(0).integers(0, 3, (11, 8, 8))
    for number, wanted in enumerate(classes, 1):
        Image.fromarray(colours[wanted], "RGB").save(tmp_path / "masks" / f"{number}.png")
    with pytest.raises(DataError, match="it has colours") as caught:
        SegmentationFolder(str(tmp_path)).read()
    assert "data.source.values=[[0,0,0],[30,30,200],[200,30,30]]" in caught.value.message
    for order in ([0, 1, 2], [2, 0, 1]):
        source = SegmentationFolder(str(tmp_path), values=colours[order].tolist())
        samples = source.read()["all"]
        numbers = samples.inputs[:, 0, 0, 0].numpy() - 1
        np.testing.assert_array_equal(np.array(order)[samples.targets], classes[numbers])
    with pytest.raises(DataError, match=r"it has the colour \[30, 30, 200\], which is none of"):
        SegmentationFolder(str(tmp_path), values=colours[:2].tolist()).read()


@pytest.mark.parametrize("values", [[[0, 0, 0], [0, 0, 0]], [[0, 0], [1, 1]], [[0, 0, 0], 1]])
def test_colours_that_cannot_be_are_refused(values: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="values="):
        SegmentationFolder(str(tmp_path), values=values)


def write_masks(root: Path, masks: Iterable[NDArray[np.uint8]]) -> None:
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for number, values in enumerate(masks):
        picture(number, values.shape[:2]).save(root / "images" / f"{number}.png")
        Image.fromarray(values).save(root / "masks" / f"{number}.png")


def random_masks(values: list[Any], count: int = 6) -> list[NDArray[np.uint8]]:
    draw = np.random.default_rng(0)
    return [np.array(values, np.uint8)[draw.integers(0, len(values), (8, 8))] for _ in range(count)]


def test_all_colours_are_named_where_each_mask_has_some(tmp_path: Path) -> None:
    red, blue = [200, 30, 30], [30, 30, 200]
    write_masks(tmp_path, [*random_masks([[0, 0, 0], red]), *random_masks([blue, [9, 9, 9]], 2)])
    Image.new("RGB", (8, 8)).save(tmp_path / "masks" / "0.png")  # background alone, which is grey
    with pytest.raises(DataError, match="it has colours") as caught:
        SegmentationFolder(str(tmp_path)).read()
    typed = "[[0,0,0],[9,9,9],[30,30,200],[200,30,30]]"
    assert caught.value.message.count("it has colours") == 1
    assert f"data.source.values={typed})" in caught.value.message
    assert len(SegmentationFolder(str(tmp_path), values=json.loads(typed)).read()["all"]) == 8


def test_too_many_colours_or_values_are_no_classes(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    write_masks(tmp_path / "a", draw.integers(0, 256, (6, 8, 8, 3), np.uint8))
    with pytest.raises(DataError, match="it has colours, more than 20 in all"):
        SegmentationFolder(str(tmp_path / "a")).read()
    write_masks(tmp_path / "b", draw.integers(0, 60, (6, 8, 8), np.uint8) * 2)
    with pytest.raises(DataError, match=r"the masks have the values 0, 2, .* and 40 more") as caught:
        SegmentationFolder(str(tmp_path / "b"), ignore_value=1).read()
    assert "JPEG" in caught.value.hint
    assert "values=" not in caught.value.hint


def test_ignored_pixels_are_counted(tmp_path: Path) -> None:
    masks = random_masks([0, 1, 255, 1])
    write_masks(tmp_path, masks)
    source = SegmentationFolder(str(tmp_path))
    source.read()
    share = f"{np.mean(np.array(masks) == 255) * 100:.1f} %"
    assert f"{share} of the masks' pixels have the value 255 and are ignored" in " ".join(source.notes)
    source = SegmentationFolder(str(tmp_path), values=[0, 1, 255], ignore_value=2)
    source.read()
    assert "ignored" not in " ".join(source.notes)


BLACK_AND_WHITE = {"known_labels": ("0", "1"), "mask_values": (0, 255)}
THREE = {"known_labels": ("0", "1", "2"), "mask_values": (0, 1, 2)}
NAMED = {"known_labels": ("sky", "sea"), "mask_values": (0, 1)}


@pytest.mark.parametrize(
    ("trained", "given", "there", "classes"),
    [
        (BLACK_AND_WHITE, {}, [255], [1]),
        (BLACK_AND_WHITE, {}, [0], [0]),
        (BLACK_AND_WHITE, {"values": [0, 1]}, [0, 1], [0, 1]),
        (THREE, {}, [0, 2], [0, 2]),
        (THREE, {}, [2], [2]),
        (THREE, {}, [0, 255], [0, IGNORED]),
        (THREE, {"values": [7, 8, 9]}, [7, 9], [0, 2]),
        (NAMED, {}, [0, 255], [0, IGNORED]),
        (NAMED, {"values": [5, 3]}, [3, 5], [1, 0]),
    ],
)
def test_values_mean_what_they_meant_in_training(
    trained: dict[str, Any], given: dict[str, Any], there: list[int], classes: list[int], tmp_path: Path
) -> None:
    masks = random_masks(there)
    write_masks(tmp_path, masks)
    source = SegmentationFolder(str(tmp_path), **given)
    vars(source).update(trained)
    samples = source.read()["all"]
    assert source.class_names == trained["known_labels"]
    meant = np.vectorize(dict(zip(there, classes, strict=True)).get)
    order = [int(str(name).removeprefix("images/").removesuffix(".png")) for name in samples.names]
    np.testing.assert_array_equal(samples.targets, meant(np.array(masks))[order])


def test_what_values_meant_in_training_is_kept(tmp_path: Path) -> None:
    write_masks(tmp_path, random_masks([0, 255]))
    source = SegmentationFolder(str(tmp_path))
    source.read()
    assert source.mask_values == (0, 255)
