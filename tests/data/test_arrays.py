"""Arrays of numpy as samples, mapped and not copied."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from assay.data.arrays import Arrays
from assay.data.source_files import read_header
from assay.errors import DataError

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


INPUTS = RNG.random((40, 2))


@pytest.mark.parametrize(
    ("arrays", "options", "message", "hint"),
    [
        ({"inputs": INPUTS}, {}, "data.source.targets=targets:", "available: inputs"),
        (
            {"inputs": INPUTS, "targets": LABELS.astype(str)},
            {},
            "expected an array of numbers, got <U",
            "numpy.unique",
        ),
        (
            {"inputs": INPUTS * 1j, "targets": LABELS},
            {},
            "inputs=inputs: expected an array of numbers, got complex",
            "",
        ),
        ({"inputs": INPUTS, "targets": np.array(3)}, {}, "of shape ()", ""),
        (
            {"inputs": INPUTS, "targets": np.array([{}], object)},
            {},
            "data.source.targets=targets",
            "plain numbers",
        ),
        ({"inputs": INPUTS[:9], "targets": np.arange(9) * 10**9}, {}, "go up to 8,000,000,000, but", ""),
        ({"inputs": INPUTS, "targets": LABELS}, {"layout": "NHWC"}, "the inputs have shape (40, 2)", "null"),
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
