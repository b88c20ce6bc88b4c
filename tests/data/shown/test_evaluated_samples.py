from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.samples import Samples
from assay.data.shown_samples import evaluated_samples, labelled_samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.data.data_module import DataModule

SAMPLES = Samples(torch.rand(40, 1, 6, 6), torch.arange(40) % 4)


@pytest.fixture
def data(data_module: Callable[..., DataModule], given_source: Any) -> DataModule:
    source = given_source({"all": SAMPLES}, "multiclass", tuple("abcd"))
    transform = {"train": [v2.RandomCrop(4)], "eval": [v2.CenterCrop(4)], "normalize": "data"}
    built = data_module(source, transform=transform)
    built.setup()
    return built


@pytest.mark.parametrize("name", ["train", "test"])
def test_they_are_those_of_the_batches(data: DataModule, name: str) -> None:
    inputs, targets = evaluated_samples(data, name, [2, 0])
    rows = data.splits.rows[name][[2, 0]]
    cropped = SAMPLES.inputs[rows][:, :, 1:5, 1:5]
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (data.spec.mean, data.spec.std))
    torch.testing.assert_close(inputs, (cropped - mean) / std)
    assert torch.equal(targets, SAMPLES.targets[rows])


def test_labels_choose_training_samples(data: DataModule) -> None:
    labelled = labelled_samples(data, lambda labels: (labels == 3).nonzero()[:2, 0])
    assert labelled is not None
    assert labelled[1].tolist() == [3, 3]
    train = torch.as_tensor(data.splits.rows["train"])
    at = (SAMPLES.targets[train] == 3).nonzero()[:2, 0].tolist()
    assert torch.equal(labelled[0], evaluated_samples(data, "train", at)[0])
    data.tested = "all"
    assert labelled_samples(data, lambda labels: labels[:1]) is None
