from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from assay.data.arrays import Arrays
from assay.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.data_module import DataModule
    from assay.data.samples import Samples

RNG = np.random.default_rng(0)
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
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float16", "float32", "float64", "bool"])
def test_the_type_is_kept(tmp_path: Path, save: Callable[..., str], dtype: str) -> None:
    inputs = RNG.integers(0, 2, (40, 3, 2)).astype(dtype)
    source = Arrays(save(tmp_path, inputs=inputs, targets=LABELS))
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


def test_a_given_task(tmp_path: Path) -> None:
    root = folder(tmp_path, inputs=RNG.random((40, 3)), targets=LABELS)
    source = Arrays(root, task="regression")
    assert read(source).targets.dtype == torch.float32
    assert (source.task, source.class_names) == ("regression", ())
    named = Arrays(root, class_names=["x", "y", "z"])
    read(named)
    assert named.class_names == ("x", "y", "z")


def test_multilabel_arrays_through_the_data_module(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    targets = RNG.integers(0, 2, (40, 4))
    datamodule = data_module(Arrays(folder(tmp_path, inputs=RNG.random((40, 3)), targets=targets)))
    datamodule.setup()
    spec = datamodule.spec
    assert (spec.task, spec.num_classes, spec.class_names) == ("multilabel", 4, ("0", "1", "2", "3"))
    _, batch = datamodule.on_after_batch_transfer(next(iter(datamodule.train_dataloader())), 0)
    assert batch.shape == (4, 4)


@pytest.mark.parametrize("layout", ["NHW", "NHWC"])
def test_layouts(tmp_path: Path, layout: str) -> None:
    images = RNG.integers(0, 256, (40, 5, 6) if layout == "NHW" else (40, 5, 6, 3), dtype=np.uint8)
    inputs = read(Arrays(folder(tmp_path, inputs=images, targets=LABELS), layout=layout)).inputs
    expected = images[:, None] if layout == "NHW" else images.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(inputs.numpy(), expected)
    with pytest.raises(DataError, match=r"data\.source\.layout=NHWC: the inputs have shape \(40, 2\)"):
        Arrays(folder(tmp_path, inputs=RNG.random((40, 2)), targets=LABELS), layout="NHWC").read()


INPUTS = RNG.random((40, 2))


@pytest.mark.parametrize(
    ("arrays", "options", "message", "hint"),
    [
        ({"inputs": INPUTS}, {}, "data.source.targets=targets:", "there is: inputs"),
        ({"inputs": INPUTS, "y": LABELS}, {"targets": "z"}, "has no such array", "there is: inputs, y"),
        ({"inputs": INPUTS, "targets": LABELS.astype(str)}, {}, "the array is text; numbers", "numpy.unique"),
        (
            {"inputs": INPUTS * 1j, "targets": LABELS},
            {},
            "data.source.inputs=inputs: the array is of type complex",
            "",
        ),
        ({"inputs": INPUTS, "targets": np.array(3)}, {}, "a single number", ""),
    ],
)
def test_arrays_that_cannot_be_used(
    tmp_path: Path, arrays: Any, options: Any, message: str, hint: str
) -> None:
    for save in (folder, archive):
        with pytest.raises(DataError, match=re.escape(message)) as caught:
            Arrays(save(tmp_path, **arrays), **options).read()
        assert hint in caught.value.hint


@pytest.mark.parametrize("save", [folder, archive])
def test_pickled_objects_are_refused(tmp_path: Path, save: Callable[..., str]) -> None:
    root = save(tmp_path, inputs=INPUTS, targets=np.array([{"a": 1}] * 40, dtype=object))
    with pytest.raises(DataError, match=r"data\.source\.targets=targets.*cannot be read"):
        Arrays(root).read()


@pytest.mark.parametrize("name", ["data.npz", "inputs.npy"])
def test_a_damaged_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match="cannot be read"):
        Arrays(str(tmp_path / name if name == "data.npz" else tmp_path)).read()


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"root: there is no such file or folder: .*nowhere\.npz"):
        Arrays(str(tmp_path / "nowhere.npz")).read()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inputs": INPUTS[:39], "targets": LABELS}, "39 inputs and 40 targets"),
        ({"inputs": INPUTS[:, 0], "targets": LABELS}, "got [40] in the train subset"),
        ({"inputs": INPUTS, "targets": LABELS - 1}, "targets from -1 to 1"),
        ({"inputs": INPUTS, "targets": LABELS * 2}, "no training sample of class: 1, 3"),
        ({"inputs": INPUTS * [1, np.nan], "targets": LABELS}, "hold NaN or infinity, first in sample 0"),
        ({"inputs": INPUTS[:1], "targets": LABELS[:1]}, "1 sample"),
    ],
)
def test_arrays_that_cannot_be_trained_on(
    tmp_path: Path, data_module: Callable[..., DataModule], arrays: Any, message: str
) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        data_module(Arrays(folder(tmp_path, **arrays))).setup()


def test_a_class_that_training_lacks(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    root = folder(tmp_path, inputs=INPUTS, targets=LABELS, x=INPUTS[:2], y=np.array([0, 3]))
    with pytest.raises(DataError, match="test or validation subset has classes that training lacks: 3"):
        data_module(Arrays(root, test_inputs="x", test_targets="y")).setup()


@pytest.mark.parametrize("wrong", [{"task": "ranking"}, {"layout": "CHWN"}, {"test_inputs": "x"}])
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|go together"):
        Arrays("somewhere", **wrong)


def test_labels_beyond_the_samples_take_no_memory(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", inputs=np.zeros((9, 2)), targets=np.arange(9) * 10**9)
    with pytest.raises(DataError, match="the targets go up to 8,000,000,000, but there are only 9 samples"):
        Arrays(str(tmp_path / "x.npz")).read()


def test_integers_become_numbers_when_asked(tmp_path: Path) -> None:
    inputs = np.arange(18).reshape(9, 2)
    for dtype in ("int16", "uint16", "int32", "int64"):
        np.savez(tmp_path / "x.npz", inputs=inputs.astype(dtype), targets=np.arange(9) % 2)
        left = Arrays(str(tmp_path / "x.npz")).read()["train"].inputs
        assert not left.is_floating_point()
        numbers = Arrays(str(tmp_path / "x.npz"), dtype="float32").read()["train"].inputs
        assert numbers.dtype == torch.float32
        np.testing.assert_array_equal(numbers.numpy(), inputs)
    with pytest.raises(ValueError, match="null or float32 was expected"):
        Arrays(str(tmp_path / "x.npz"), dtype="int8")


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
        ("wide", "group=wide: .*one a sample"),
    ):
        with pytest.raises(DataError, match=message):
            data_module(Arrays(root), split={"group": name}).setup()
