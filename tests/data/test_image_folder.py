from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder as Reference  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.image_folder import ImageFolder, read_image
from assay.data.samples import Samples, Stream
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.data_module import DataModule

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
    assert isinstance(data, Samples if in_memory else Stream)
    samples = data if isinstance(data, Samples) else data.dataset
    for index in range(len(reference)):
        assert torch.equal(samples[index][0], reference[index][0])
        assert samples[index][1] == reference[index][1]


@pytest.mark.parametrize("in_memory", [True, False])
def test_parts_of_its_own(tmp_path: Path, in_memory: bool, data_module: Callable[..., DataModule]) -> None:
    write(tmp_path / "train", {"a": 10, "b": 10, "c": 10})
    write(tmp_path / "test", {"b": 2, "c": 4})
    datamodule = data_module(ImageFolder(str(tmp_path), in_memory=in_memory), split={"val": 0.2})
    datamodule.setup()
    spec = datamodule.spec
    assert (spec.num_train, spec.num_val, spec.num_test) == (24, 6, 6)
    assert (spec.class_names, spec.class_counts, spec.input_shape) == (("a", "b", "c"), (8, 8, 8), (3, 6, 8))
    targets = torch.cat([targets for _, targets in datamodule.test_dataloader()])
    assert targets.tolist() == [1, 1, 2, 2, 2, 2]  # numbered as in training


def test_a_class_named_train(tmp_path: Path) -> None:
    write(tmp_path, {"car": 1, "plane": 1, "train": 1})
    source = ImageFolder(str(tmp_path))
    assert list(source.read()) == ["all"]
    assert source.class_names == ("car", "plane", "train")


def test_auto_decodes_once_what_has_one_size_and_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a": 2, "b": 2})
    needed = 4 * 4 * 3 * 6 * 8
    monkeypatch.setattr("assay.data.image_folder.free_memory", lambda: needed)
    assert isinstance(ImageFolder(str(tmp_path)).read()["all"], Stream)
    monkeypatch.setattr("assay.data.image_folder.free_memory", lambda: needed + 4)
    assert isinstance(ImageFolder(str(tmp_path)).read()["all"], Samples)


def test_images_of_several_sizes(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    write(tmp_path, {"a": 10})
    write(tmp_path / "..", {})
    write(tmp_path, {"b": 10}, size=(9, 9))
    assert isinstance(ImageFolder(str(tmp_path)).read()["all"], Stream)
    scaled = ImageFolder(str(tmp_path), image_size=[4, 5]).read()["all"]
    assert isinstance(scaled, Samples)
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


def test_a_size_that_a_peek_at_some_images_misses(tmp_path: Path) -> None:
    write(tmp_path, {"a": 99})
    Image.fromarray(pixels(3, 3)).save(tmp_path / "a" / "01.png")
    assert isinstance(ImageFolder(str(tmp_path)).read()["all"], Stream)


def test_memory_and_stream_count_as_the_same_data(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    write(tmp_path, {"a": 10, "b": 10})
    digests = []
    for in_memory in (True, False):
        datamodule = data_module(ImageFolder(str(tmp_path), in_memory=in_memory))
        datamodule.setup()
        digests.append(datamodule.digest())
    assert digests[0] == digests[1]
    Image.fromarray(pixels(60, 60)).save(tmp_path / "a" / "00.png")
    changed = data_module(ImageFolder(str(tmp_path), in_memory=False))
    changed.setup()
    assert changed.digest() != digests[0]


def reference_pixels(image: Image.Image, mode: str) -> torch.Tensor:
    return v2.functional.pil_to_tensor(image.convert(mode))  # type: ignore[no-any-return]  # torchvision ships no types


@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff", "webp", "jpg"])
@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("GRAY", 1)])
def test_formats(tmp_path: Path, suffix: str, mode: str, channels: int) -> None:
    smooth = np.linspace(0, 255, 24 * 24 * 3).reshape(24, 24, 3).astype(np.uint8)
    path = tmp_path / f"image.{suffix}"
    Image.fromarray(smooth).save(path, lossless=suffix == "webp")
    image = read_image(str(path), mode)
    assert (image.dtype, image.shape) == (torch.uint8, (channels, 24, 24))
    expected = reference_pixels(Image.fromarray(smooth), "RGB" if mode == "RGB" else "L")
    assert (image.int() - expected.int()).abs().max() <= (6 if suffix == "jpg" else 1)


@pytest.mark.parametrize("kind", ["L", "P", "RGBA", "LA", "I;16", "1"])
@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("GRAY", 1)])
def test_modes(tmp_path: Path, kind: str, mode: str, channels: int) -> None:
    color = Image.fromarray(pixels(10, 12))
    path = tmp_path / "image.png"
    if kind == "I;16":
        Image.fromarray(np.full((10, 12), 257 * 100, dtype=np.uint16)).save(path)
    else:
        color.convert(kind).save(path)
    image = read_image(str(path), mode)
    assert (image.dtype, image.shape) == (torch.uint8, (channels, 10, 12))
    if kind == "I;16":
        assert (image == 100).all()
    else:
        expected = reference_pixels(color.convert(kind), "RGB" if mode == "RGB" else "L")
        assert (image.int() - expected.int()).abs().max() <= 1


def test_scaling_is_torchvisions(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    Image.fromarray(pixels(20, 30)).save(path)
    assert torch.equal(read_image(str(path), size=(7, 9)), v2.Resize([7, 9])(read_image(str(path))))


@pytest.mark.parametrize("in_memory", ["auto", False])
@pytest.mark.parametrize("content", [b"", b"this is no image", b"\x89PNG\r\n\x1a\n cut off"])
def test_a_file_that_is_no_image(
    tmp_path: Path, in_memory: bool | str, content: bytes, data_module: Callable[..., DataModule]
) -> None:
    write(tmp_path, {"a": 2, "b": 2})
    path = tmp_path / "b" / "00.png"
    path.write_bytes(content)
    options = {"split": {"val": 0, "test": 0}, "drop_last": False, "transform": {"normalize": "data"}}
    datamodule = data_module(ImageFolder(str(tmp_path), in_memory=in_memory), **options)
    with pytest.raises(DataError, match="cannot be read as an image") as caught:
        datamodule.setup()
    assert caught.value.message.startswith(str(path))


def test_a_truncated_jpeg(tmp_path: Path) -> None:
    path = tmp_path / "image.jpg"
    Image.fromarray(pixels(100, 100)).save(path)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(DataError, match=r"image\.jpg cannot be read as an image"):
        read_image(str(path))


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.source\.root=.*/nowhere: there is no such folder"):
        ImageFolder(str(tmp_path / "nowhere")).read()


def test_a_root_without_folders(tmp_path: Path) -> None:
    Image.fromarray(pixels()).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="has no folder of images in it"):
        ImageFolder(str(tmp_path)).read()


def test_an_empty_class(tmp_path: Path) -> None:
    write(tmp_path, {"a": 2, "b": 0, "c": 1})
    with pytest.raises(DataError, match="no image in the folder of class b") as caught:
        ImageFolder(str(tmp_path)).read()
    assert caught.value.hint.startswith("remove the folder")


def test_a_class_that_training_lacks(tmp_path: Path) -> None:
    write(tmp_path / "train", {"a": 2, "b": 2})
    write(tmp_path / "test", {"a": 1, "x": 1})
    with pytest.raises(DataError, match="test has a class that training lacks: x"):
        ImageFolder(str(tmp_path)).read()


def test_a_folder_beside_the_parts(tmp_path: Path) -> None:
    write(tmp_path / "train", {"a": 2})
    write(tmp_path / "test", {"a": 2})
    (tmp_path / "masks").mkdir()
    with pytest.raises(DataError, match="beside train there is masks"):
        ImageFolder(str(tmp_path)).read()


@pytest.mark.parametrize(
    "wrong", [{"mode": "CMYK"}, {"in_memory": "maybe"}, {"image_size": [8]}, {"image_size": [0, 8]}]
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="was expected"):
        ImageFolder("somewhere", **wrong)
