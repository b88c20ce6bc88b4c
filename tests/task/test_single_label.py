"""One class per sample: multiclass and binary tasks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_wine  # type: ignore[import-untyped]  # scikit-learn ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import DataError
from assay.task.task_of import task_of

DATA = {"multiclass": load_wine(), "binary": load_breast_cancer()}


@pytest.mark.parametrize("name", DATA)
def test_real_labels(name: str) -> None:
    task, labels, names = task_of(name), DATA[name].target, list(DATA[name].target_names)
    targets = task.as_targets(torch.from_numpy(labels.astype(np.int16)[:, None]))
    assert targets.dtype == torch.int64
    assert targets.numpy().tolist() == labels.tolist()
    assert task.sizes(targets, names)["class_counts"] == tuple(np.unique(labels, return_counts=True)[1])
    assert task.number_classes([targets]) == tuple(map(str, np.unique(labels)))
    task.check("all", targets, names)


@pytest.mark.parametrize("name", DATA)
def test_a_batch_of_a_data_set_that_gives_columns_of_floats(name: str) -> None:
    labels = DATA[name].target[:9]
    batch = torch.from_numpy(labels.astype(np.float64)[:, None])
    targets = task_of(name).batch_targets(batch, torch.float16)
    assert (targets.dtype, targets.tolist()) == (torch.int64, labels.tolist())


def test_what_metrics_see_of_mixed_classes() -> None:
    torch.manual_seed(0)
    labels = torch.from_numpy(DATA["multiclass"].target)
    _, soft = v2.MixUp(num_classes=3)(torch.rand(len(labels), 1, 2, 2), labels)
    assert task_of("multiclass").hard_targets(soft).tolist() == np.argmax(soft.numpy(), axis=1).tolist()
    assert torch.equal(task_of("multiclass").hard_targets(labels), labels)


def test_floats_are_not_made_classes() -> None:
    values = torch.tensor([0.0, 1.5])
    assert torch.equal(task_of("multiclass").as_targets(values), values)
    with pytest.raises(DataError, match=r"type torch\.float32; a multiclass task has one class index"):
        task_of("multiclass").check("all", values, ["a", "b"])
    assert task_of("multiclass").number_classes([torch.tensor([float("nan"), 0.5])]) == ()


@pytest.mark.parametrize("values", [[0, 3], [-1, 0]])
def test_indices_out_of_range(values: list[int]) -> None:
    with pytest.raises(DataError, match=f"from {values[0]} to {values[1]}; indices of the 3 classes go"):
        task_of("multiclass").check("all", torch.tensor(values), "abc")


def test_more_classes_than_samples_are_refused_before_they_get_names() -> None:
    with pytest.raises(DataError, match="go up to 4,000,000,000, but there are only 3 samples") as caught:
        task_of("multiclass").number_classes([torch.tensor([0, 4_000_000_000]), torch.tensor([1])])
    assert "data.source.task=regression" in caught.value.hint


@pytest.mark.parametrize(
    ("train", "test", "names", "message"),
    [
        ([0, 0], [0], "a", "a single class, a"),
        ([0, 0, 2], [1], "abcd", "the test or validation subset has classes that training lacks: b"),
        ([0, 0, 2], [2], "abcd", "no training sample of class: b, d"),
        ([0], [], "abcdefgh", "no training sample of class: b, c, d, e, f, …"),
    ],
)
def test_nothing_to_learn(train: list[int], test: list[int], names: str, message: str) -> None:
    parts = {"train": torch.tensor(train), "val": torch.tensor([], dtype=torch.int64)}
    with pytest.raises(DataError, match=message) as caught:
        task_of("multiclass").check_subsets({**parts, "test": torch.tensor(test, dtype=torch.int64)}, names)
    assert "(data.source)" in caught.value.hint


@pytest.mark.parametrize("size", [2, 7])
def test_fake_classes_are_equally_frequent(size: int) -> None:
    counts = np.bincount(task_of("multiclass").fake_targets(50, size).numpy())
    assert len(counts) == size
    assert np.ptp(counts) <= 1
