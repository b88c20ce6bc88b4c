"""Arrays, data sets of torch, torchvision and scikit-learn, synthetic ones, and the digest of samples."""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import pickle
import re
import tarfile
import warnings
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn import datasets as bundled  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.linear_model import LinearRegression, LogisticRegression  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch.utils.data import Dataset, IterableDataset
from torchvision import datasets  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.arrays import Arrays
from assay.data.core.custom import Custom
from assay.data.core.samples import Samples
from assay.data.core.source_files import read_header
from assay.data.core.synthetic import Synthetic
from assay.data.image.torchvision_images import TorchvisionImages
from assay.data.table.bundled import Bundled
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.core.data_module import DataModule


class Own(Dataset[Any]):
    """A user's data set; `form` makes its samples."""

    def __init__(self, form: Callable[[int], Any], count: int = 40, **attributes: Any) -> None:
        self.form, self.count, self.read = form, count, 0
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        return self.form(index)


def pair(index: int) -> tuple[torch.Tensor, int]:
    return torch.full((3,), float(index)), index % 2


def mapping(index: int) -> dict[str, Any]:
    return {"name": f"sample {index}", "label": index % 2, "data": np.full(3, index, dtype=np.float32)}


@pytest.mark.parametrize(
    ("form", "options"),
    [(pair, {}), (mapping, {"input_key": "data", "target_key": "label"}), (lambda i: [*pair(i), "x"], {})],
)
def test_tuples_lists_and_mappings(
    form: Callable[[int], Any], options: dict[str, Any], data_module: Callable[..., DataModule]
) -> None:
    datamodule = data_module(Custom(Own(form), **options))
    datamodule.setup()
    assert (datamodule.spec.class_names, datamodule.spec.input_shape) == (("0", "1"), (3,))
    inputs, targets = datamodule.on_after_batch_transfer(next(iter(datamodule.train_dataloader())), 0)
    assert (inputs.dtype, inputs.shape, targets.dtype) == (torch.float32, (4, 3), torch.int64)
    assert (inputs[:, 0].long() % 2).tolist() == targets.tolist()


def draw(generator: np.random.Generator | None) -> Callable[[int], Any]:
    """Samples with noise of a generator, or of NumPy's global one; one number is missing."""
    normal = np.random.normal if generator is None else generator.normal
    return lambda index: (torch.tensor([float(normal()), math.nan]), index % 2)


def test_samples_that_cannot_be_read_again_are_noted() -> None:
    for form in (pair, draw(None)):
        source = Custom(Own(form))
        source.read()
        assert source.notes == ()
    source = Custom(Own(draw(np.random.default_rng(0))))
    source.read()
    (note,) = source.notes
    assert note.startswith("data.source.dataset: a sample differs when it is read again with the same seed")


@pytest.mark.parametrize("name", ["targets", "labels"])
def test_known_targets_are_not_read_again(name: str) -> None:
    dataset = Own(pair, classes=["even", "odd"])
    setattr(dataset, name, [index % 2 for index in range(40)])
    source = Custom(dataset)
    assert source.read()["train"].targets.tolist() == [0, 1] * 20
    assert source.class_names == ("even", "odd")
    assert dataset.read == 3, "one to compare, two that tell whether reading can be repeated"
    assert Custom(Own(pair, targets=[7] * 40)).read()["train"].targets.tolist() == [0, 1] * 20


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (Own(pair, 0), {}, "Own is empty"),
        (Own(lambda _: torch.zeros(3)), {}, "sample 0 is of type Tensor"),
        (Own(mapping), {"input_key": "dta"}, "sample 0 has no key 'dta'"),
        (Own(mapping), {"target_key": "lab"}, "sample 0 has no key 'lab'"),
        (Own(lambda _: (torch.zeros(3), "cat")), {}, "expected numbers as targets, got str"),
    ],
)
def test_data_sets_that_cannot_be_used(dataset: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Custom(dataset, **options).read()


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(3))


def test_data_sets_without_a_length_or_a_task() -> None:
    with pytest.raises(ValueError, match="Endless lacks __len__ or __getitem__"):
        Custom(Endless())  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ValueError, match="task='ranking'"):
        Custom(Own(pair), task="ranking")


def test_an_attribute_that_divides(data_module: Callable[..., DataModule]) -> None:
    days = np.random.default_rng(0).permutation(40)
    datamodule = data_module(Custom(Own(pair, day=days)), split={"time": "day"})
    datamodule.setup()
    assert sorted(days[datamodule.subset("test").rows]) == list(range(32, 40))
    with pytest.raises(DataError, match=r"data\.split\.time=hour: this data has neither"):
        data_module(Custom(Own(pair, day=days)), split={"time": "hour"}).setup()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(("task", "num_classes"), [("multiclass", 3), ("binary", 2)])
def test_classes_can_be_learned(task: str, num_classes: int, dtype: Any) -> None:
    source = Synthetic(task, 1500, [3, 4, 4], num_classes, dtype=dtype)
    samples = source.read()["all"]
    assert (samples.inputs.shape, samples.inputs.dtype) == ((1500, 3, 4, 4), getattr(torch, dtype))
    assert samples.targets.bincount().tolist() == [1500 // num_classes] * num_classes
    inputs, targets = samples.inputs.flatten(1).float().numpy(), samples.targets.numpy()
    inputs = (inputs - inputs.mean()) / inputs.std()
    assert LogisticRegression().fit(inputs[:1000], targets[:1000]).score(inputs[1000:], targets[1000:]) > 0.9
    assert len(source.class_names) == num_classes


def test_a_regression_is_linear_up_to_the_noise() -> None:
    samples = Synthetic("regression", 2000, [20], 2, noise=0.1).read()["all"]
    assert (samples.targets.shape, samples.targets.dtype) == ((2000, 2), torch.float32)
    inputs, targets = samples.inputs.numpy(), samples.targets.numpy()
    model = LinearRegression().fit(inputs[:1000], targets[:1000])
    residual = targets[1000:] - model.predict(inputs[1000:])
    np.testing.assert_allclose(residual.std(), 0.1, atol=0.01)
    assert targets.std() > 0.5


@pytest.mark.parametrize("wrong", [{"task": "binary", "num_classes": 3}, {"noise": -1}])
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    options: dict[str, Any] = {"task": "multiclass", "num_samples": 10, "input_shape": [4], "num_classes": 2}
    with pytest.raises(ValueError, match=r"expected|has 2 classes"):
        Synthetic(**{**options, **wrong})


CLASSES = {"breast_cancer": "binary", "iris": "multiclass", "wine": "multiclass"}


@pytest.mark.parametrize("name", [*CLASSES, "diabetes"])
def test_what_scikit_learn_has(name: str) -> None:
    source = Bundled(name)  # type: ignore[arg-type]  # one of these names
    samples = source.read()["all"]
    table = getattr(bundled, f"load_{name}")()
    assert samples.inputs.dtype == torch.float32
    np.testing.assert_allclose(samples.inputs.numpy(), table.data, rtol=1e-6)
    if name in CLASSES:
        assert source.task == CLASSES[name]
        assert samples.targets.dtype == torch.int64
        assert samples.targets.tolist() == table.target.tolist()
        assert source.class_names == tuple(table.target_names)
    else:
        assert (source.task, source.class_names) == ("regression", ())
        assert (samples.targets.dtype, samples.targets.shape) == (torch.float32, (442, 1))
        np.testing.assert_allclose(samples.targets[:, 0].numpy(), table.target)


INPUTS, TARGETS = torch.arange(24.0).reshape(4, 6), torch.tensor([0, 1, 1, 0])
SAMPLES = Samples(INPUTS, TARGETS)


@pytest.mark.parametrize(
    "other",
    [
        Samples(INPUTS.double(), TARGETS),
        Samples(INPUTS.reshape(4, 2, 3), TARGETS),
        Samples(INPUTS.flip(0), TARGETS),
        Samples(INPUTS, TARGETS.flip(0) + 1),
        Samples(INPUTS, TARGETS.int()),
        replace(SAMPLES, identity="files"),
        Samples(INPUTS.nextafter(torch.tensor(torch.inf)), TARGETS),
    ],
    ids=["dtype", "shape", "order", "targets", "type of targets", "identity", "last bit"],
)
def test_other_data_has_another_digest(other: Samples) -> None:
    assert other.digest() != SAMPLES.digest()


def test_the_same_values_have_the_same_digest_however_they_lie_in_memory() -> None:
    assert Samples(INPUTS.t().contiguous().t(), TARGETS.clone()).digest() == SAMPLES.digest()
    many = torch.arange(2 * 5000).reshape(5000, 2)
    assert Samples(many.t().contiguous().t(), many[:, 0]).digest() == Samples(many, many[:, 0]).digest()


def test_a_stream_is_known_by_its_identity_and_targets() -> None:
    digests = [
        Samples(SAMPLES, TARGETS, identity="files").digest(),
        Samples(SAMPLES, TARGETS, identity="other files").digest(),
        Samples(SAMPLES, 1 - TARGETS, identity="files").digest(),
        Samples(INPUTS, TARGETS, identity="files").digest(),
    ]
    assert len(Samples(SAMPLES, TARGETS)) == 4
    assert sorted(Counter(digests).values()) == [1, 1, 2], "in memory and streamed it is the same data"
    assert digests[0] == digests[3]


RNG = np.random.default_rng(0)
SIZES = {"train": 60, "t10k": 20}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """The format of Yann LeCun's page: two zeros, type, number of dimensions, sizes big-endian, data."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes() + array.tobytes()


def write_mnist(root: Path, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The four files as torchvision unpacks them."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    arrays = {}
    for part, count in SIZES.items():
        arrays[f"{part}-images-idx3-ubyte"] = RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    for file, array in arrays.items():
        (folder / file).write_bytes(idx(array))
    return arrays


def write_cifar(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray[Any, Any]]:
    """The unpacked archive: pickled batches, each image as 3,072 bytes, channels first."""
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    reader = getattr(datasets, name)
    label = "fine_labels" if name == "CIFAR100" else "labels"
    arrays: dict[str, Any] = {}
    content: dict[str, Any] = {
        reader.meta["filename"]: {reader.meta["key"]: [f"kind {index}" for index in range(10)]}
    }
    for file, _ in (*reader.train_list, *reader.test_list):
        arrays[file] = RNG.integers(0, 256, (20, 3072), dtype=np.uint8)
        content[file] = {"data": arrays[file], label: list(range(10)) * 2}
    (root / reader.base_folder).mkdir()
    for file, value in content.items():
        (root / reader.base_folder / file).write_bytes(pickle.dumps(value))
    return arrays


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_idx_files(name: str, tmp_path: Path) -> None:
    arrays = write_mnist(tmp_path, name)
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
    assert "data.source.download=true" not in caught.value.hint
    assert "data.source.root" in caught.value.hint


@pytest.mark.parametrize("kind", ["dots", "absolute", "link", "through a link"])
def test_an_archive_with_a_member_that_leads_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    importlib.import_module("assay.assemble.assembly")  # it sets the filter, for data of every kind
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
    content = (root / "cifar-10-python.tar.gz").read_bytes()
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", hashlib.md5(content, usedforsecurity=False).hexdigest())
    with pytest.raises(DataError, match="CIFAR10 is missing or damaged") as caught:
        TorchvisionImages(datasets.CIFAR10, str(root)).prepare()
    if kind != "absolute":  # its leading slash is taken off
        assert "outside" in caught.value.message or "link to an absolute path" in caught.value.message
    assert list(outside.iterdir()) == []
    assert not any(path.is_symlink() for path in root.iterdir())


LABELS = np.arange(40) % 3


def folder(root: Path, **arrays: Any) -> str:
    for name, array in arrays.items():
        np.save(root / f"{name}.npy", array)
    return str(root)


def archive(root: Path, **arrays: Any) -> str:
    np.savez(root / "data.npz", **arrays)
    return str(root / "data.npz")


def read(source: Arrays) -> Samples:
    return source.read()["train"]


@pytest.mark.parametrize("save", [folder, archive])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float64", "bool"])
def test_the_type_is_kept(tmp_path: Path, save: Callable[..., str], dtype: str) -> None:
    inputs = RNG.integers(0, 2, (40, 3, 2)).astype(dtype)
    source = Arrays(save(tmp_path, inputs=inputs, targets=LABELS))
    assert read_header(source._root, "inputs") == (inputs.shape, inputs.dtype)
    samples = read(source)
    assert samples.inputs.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(samples.inputs.numpy(), inputs)
    assert samples.targets.tolist() == LABELS.tolist()
    assert (source.task, source.class_names) == ("multiclass", ("0", "1", "2"))


@pytest.mark.parametrize(
    ("dtype", "kept"), [(">f4", torch.float32), ("<u2", torch.int32), ("<u4", torch.int64)]
)
def test_types_that_torch_lacks_are_converted(tmp_path: Path, dtype: str, kept: torch.dtype) -> None:
    inputs = RNG.integers(0, 60_000, (40, 3)).astype(dtype)
    samples = read(Arrays(folder(tmp_path, inputs=inputs, targets=LABELS)))
    assert samples.inputs.dtype == kept
    assert samples.inputs.tolist() == inputs.tolist()


def test_a_file_is_mapped_and_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder(tmp_path, inputs=RNG.random((40, 5)), targets=LABELS)
    loaded: list[np.ndarray[Any, Any]] = []
    open_memmap = np.lib.format.open_memmap

    def spy(*args: Any, **options: Any) -> Any:
        loaded.append(open_memmap(*args, **options))
        return loaded[-1]

    monkeypatch.setattr(np.lib.format, "open_memmap", spy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samples = read(Arrays(root))
    assert isinstance(loaded[0], np.memmap)
    assert samples.inputs.data_ptr() == loaded[0].ctypes.data
    assert samples.targets.data_ptr() == loaded[1].ctypes.data
    before = (tmp_path / "inputs.npy").read_bytes()
    samples.inputs.zero_()
    assert (tmp_path / "inputs.npy").read_bytes() == before


def test_parts_of_its_own(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    root = archive(tmp_path, x=RNG.random((40, 5)), y=LABELS, xt=RNG.random((10, 5)), yt=LABELS[:10])
    datamodule = data_module(Arrays(root, inputs="x", targets="y", test_inputs="xt", test_targets="yt"))
    datamodule.setup()
    spec = datamodule.spec
    assert (spec.num_train, spec.num_val, spec.num_test, spec.num_classes) == (36, 4, 10, 3)


TASKS: list[tuple[Any, str, tuple[int, ...], torch.dtype]] = [
    (LABELS.astype(np.uint8), "multiclass", (40,), torch.int64),
    (LABELS[:, None], "multiclass", (40,), torch.int64),
    (LABELS > 0, "binary", (40,), torch.int64),
    (RNG.integers(0, 2, (40, 4)), "multilabel", (40, 4), torch.int64),
    (RNG.random((40, 2)) > 0.5, "multilabel", (40, 2), torch.int64),
    (RNG.random(40), "regression", (40, 1), torch.float32),
    (RNG.random((40, 2)), "regression", (40, 2), torch.float32),
]


@pytest.mark.parametrize(("targets", "task", "shape", "dtype"), TASKS)
def test_the_task_goes_by_the_targets(
    tmp_path: Path, targets: Any, task: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    source = Arrays(folder(tmp_path, inputs=RNG.random((40, 3)), targets=targets))
    samples = read(source)
    assert (source.task, samples.targets.shape, samples.targets.dtype) == (task, shape, dtype)
    np.testing.assert_allclose(
        samples.targets.numpy(), targets.reshape(shape).astype(samples.targets.numpy().dtype)
    )


@pytest.mark.parametrize("layout", ["NHW", "NHWC"])
def test_layouts(tmp_path: Path, layout: Any) -> None:
    images = RNG.integers(0, 256, (40, 5, 6) if layout == "NHW" else (40, 5, 6, 3), dtype=np.uint8)
    inputs = read(Arrays(folder(tmp_path, inputs=images, targets=LABELS), layout=layout)).inputs
    expected = images[:, None] if layout == "NHW" else images.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(inputs.numpy(), expected)


POINTS = RNG.random((40, 2))


@pytest.mark.parametrize(
    ("arrays", "options", "message", "hint"),
    [
        ({"inputs": POINTS}, {}, "data.source.targets=targets:", "available: inputs"),
        (
            {"inputs": POINTS, "targets": LABELS.astype(str)},
            {},
            "expected an array of numbers, got <U",
            "numpy.unique",
        ),
        (
            {"inputs": POINTS * 1j, "targets": LABELS},
            {},
            "inputs=inputs: expected an array of numbers, got complex",
            "",
        ),
        ({"inputs": POINTS, "targets": np.array(3)}, {}, "of shape ()", ""),
        (
            {"inputs": POINTS, "targets": np.array([{}], object)},
            {},
            "data.source.targets=targets",
            "plain numbers",
        ),
        ({"inputs": POINTS[:9], "targets": np.arange(9) * 10**9}, {}, "go up to 8,000,000,000, but", ""),
        ({"inputs": POINTS, "targets": LABELS}, {"layout": "NHWC"}, "the inputs have shape (40, 2)", "null"),
    ],
)
def test_arrays_that_cannot_be_used(
    tmp_path: Path, arrays: Any, options: Any, message: str, hint: str
) -> None:
    for save in (folder, archive):
        with pytest.raises(DataError, match=re.escape(message)) as caught:
            Arrays(save(tmp_path, **arrays), **options).read()
        assert hint in caught.value.hint


def test_a_damaged_archive_and_arguments_out_of_range(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match="cannot be read"):
        Arrays(str(tmp_path / "data.npz")).read()
    wrong: Any
    for wrong in ({"task": "ranking"}, {"test_inputs": "x"}):
        with pytest.raises(ValueError, match=r"expected|must be set together"):
            Arrays("somewhere", **wrong)


def test_integers_become_numbers_when_asked(tmp_path: Path) -> None:
    inputs = np.arange(18, dtype=np.uint16).reshape(9, 2)
    np.savez(tmp_path / "x.npz", inputs=inputs, targets=np.arange(9) % 2)
    assert not read(Arrays(str(tmp_path / "x.npz"))).inputs.is_floating_point()
    numbers = read(Arrays(str(tmp_path / "x.npz"), dtype="float32")).inputs
    assert numbers.dtype == torch.float32
    np.testing.assert_array_equal(numbers.numpy(), inputs)


def test_an_array_that_divides(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    patients = np.resize(list("abcdefgh"), 40)
    root = folder(
        tmp_path, inputs=RNG.random((40, 3)), targets=LABELS, patient=patients, wide=np.zeros((40, 2))
    )
    datamodule = data_module(Arrays(root), split={"group": "patient"})
    datamodule.setup()
    tested = datamodule.subset("test").rows
    assert set(patients[tested]) & set(patients[datamodule.subset("train").rows]) == set()
    for name, message in (
        ("x", "data.split.group=x: .* no such array"),
        ("wide", "group=wide: expected one value per sample"),
    ):
        with pytest.raises(DataError, match=message):
            data_module(Arrays(root), split={"group": name}).setup()
