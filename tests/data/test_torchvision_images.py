"""Small files in the formats that the data sets are published in."""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib
import io
import pickle
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torchvision import datasets  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.torchvision_images import TorchvisionImages
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


RNG = np.random.default_rng(0)
SIZES = {"train": 60, "t10k": 20}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """The format of Yann LeCun's page: two zeros, type, number of dimensions, sizes big-endian, data."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes() + array.tobytes()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def write_mnist(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray[Any, Any]]:
    """The four archives as downloaded; torchvision checks and unpacks them."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    arrays, sums = {}, []
    for part, count in SIZES.items():
        arrays[f"{part}-images-idx3-ubyte"] = RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    for file, array in arrays.items():
        content = gzip.compress(idx(array))
        (folder / f"{file}.gz").write_bytes(content)
        sums.append((f"{file}.gz", md5(content)))
    monkeypatch.setattr(getattr(datasets, name), "resources", sums)
    return arrays


def write_cifar(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray[Any, Any]]:
    """The archive as downloaded: pickled batches, each image as 3,072 bytes, channels first."""
    reader, label, num_classes = (
        getattr(datasets, name),
        "fine_labels" if name == "CIFAR100" else "labels",
        10,
    )
    arrays: dict[str, Any] = {}
    content: dict[str, bytes] = {}
    lists: dict[str, list[Any]] = {}
    for what in ("train_list", "test_list"):
        lists[what] = []
        for file, _ in getattr(reader, what):
            data = RNG.integers(0, 256, (num_classes * 2, 3072), dtype=np.uint8)
            arrays[file] = data
            content[file] = pickle.dumps({"data": data, label: list(range(num_classes)) * 2})
            lists[what].append([file, md5(content[file])])
    names = [f"kind {index}" for index in range(num_classes)]
    content[reader.meta["filename"]] = pickle.dumps({reader.meta["key"]: names})
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for file, packed in content.items():
            entry = tarfile.TarInfo(f"{reader.base_folder}/{file}")
            entry.size = len(packed)
            tar.addfile(entry, io.BytesIO(packed))
    (root / reader.filename).write_bytes(archive.getvalue())
    monkeypatch.setattr(reader, "tgz_md5", md5(archive.getvalue()))
    for what, entries in lists.items():
        monkeypatch.setattr(reader, what, entries)
    monkeypatch.setattr(reader, "meta", {**reader.meta, "md5": md5(content[reader.meta["filename"]])})
    return arrays


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_idx_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = write_mnist(tmp_path, name, monkeypatch)
    source = TorchvisionImages(getattr(datasets, name), str(tmp_path))
    source.prepare()
    parts = source.read()
    assert list(parts) == ["train", "test"]
    for part, file in (("train", "train"), ("test", "t10k")):
        inputs = parts[part].inputs
        assert (inputs.dtype, inputs.shape) == (torch.uint8, (SIZES[file], 1, 28, 28))
        np.testing.assert_array_equal(inputs[:, 0].numpy(), arrays[f"{file}-images-idx3-ubyte"])
        assert parts[part].targets.tolist() == arrays[f"{file}-labels-idx1-ubyte"].tolist()
    assert len(source.class_names) == 10


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100"])
def test_cifar_batches(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = write_cifar(tmp_path, name, monkeypatch)
    source = TorchvisionImages(functools.partial(getattr(datasets, name)), str(tmp_path))
    source.prepare()
    parts = source.read()
    train = np.concatenate([data for file, data in arrays.items() if not file.startswith("test")])
    assert parts["train"].inputs.is_contiguous()
    np.testing.assert_array_equal(parts["train"].inputs.flatten(1).numpy(), train)
    assert parts["test"].inputs.shape == (20, 3, 32, 32)
    assert parts["test"].targets.tolist() == list(range(10)) * 2
    assert source.class_names[:2] == ("kind 0", "kind 1")


@pytest.mark.parametrize("name", ["MNIST", "CIFAR10"])
def test_missing_files_without_download(name: str, tmp_path: Path) -> None:
    source = TorchvisionImages(functools.partial(getattr(datasets, name)), str(tmp_path), download=False)
    source.prepare()
    with pytest.raises(
        DataError, match=rf"data\.source\.root={tmp_path}: {name} is missing or damaged"
    ) as caught:
        source.read()
    assert caught.value.hint.startswith("data.source.download=true, or set data.source.root")


@pytest.mark.parametrize("name", ["MNIST", "CIFAR10"])
def test_a_download_that_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    source = TorchvisionImages(getattr(datasets, name), str(tmp_path))
    with pytest.raises(
        DataError, match=rf"data\.source\.root={tmp_path}: {name} is missing or damaged"
    ) as caught:
        source.prepare()
    assert "no route to host" in caught.value.message
    assert "data.source.root" in caught.value.hint


@pytest.mark.parametrize("kind", ["dots", "absolute", "link", "through a link"])
def test_an_archive_with_a_member_that_leads_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    importlib.import_module("assay.build.assembly")  # it sets the filter, for data of every kind
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    members: list[tuple[str, str]] = {
        "dots": [("../outside/evil", "")],
        "absolute": [(str(outside / "evil"), "")],
        "link": [("cifar-10-batches-py", str(outside))],
        "through a link": [("way", "../outside"), ("way/evil", "")],
    }[kind]
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (tarfile.SYMTYPE, target) if target else (tarfile.REGTYPE, "")
            archive.addfile(info)
    sum_of = md5((root / "cifar-10-python.tar.gz").read_bytes())
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", sum_of)
    with pytest.raises(DataError, match="CIFAR10 is missing or damaged") as caught:
        TorchvisionImages(datasets.CIFAR10, str(root)).prepare()
    if kind != "absolute":  # its leading slash is taken off
        assert "outside" in caught.value.message or "link to an absolute path" in caught.value.message
    assert list(outside.iterdir()) == []
    assert not any(path.is_symlink() for path in root.iterdir())
