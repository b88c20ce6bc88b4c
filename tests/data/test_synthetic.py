from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.synthetic import Synthetic

if TYPE_CHECKING:
    from assay.task.task_name import TaskName


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(("task", "num_classes"), [("multiclass", 3), ("binary", 2)])
def test_classes_can_be_learned(task: TaskName, num_classes: int, dtype: str) -> None:
    source = Synthetic(task, 1500, [3, 4, 4], num_classes, dtype=dtype)
    samples = source.read()["all"]
    assert (samples.inputs.shape, samples.inputs.dtype) == ((1500, 3, 4, 4), getattr(torch, dtype))
    assert samples.targets.bincount().tolist() == [1500 // num_classes] * num_classes
    inputs, targets = samples.inputs.flatten(1).float().numpy(), samples.targets.numpy()
    inputs = (inputs - inputs.mean()) / inputs.std()
    assert LogisticRegression().fit(inputs[:1000], targets[:1000]).score(inputs[1000:], targets[1000:]) > 0.9
    assert len(source.class_names) == num_classes


def test_class_means_and_noise_are_as_promised() -> None:
    samples = Synthetic("multiclass", 4000, [50], 2, noise=0.5).read()["all"]
    within = [samples.inputs[samples.targets == label].std(0).mean().item() for label in (0, 1)]
    np.testing.assert_allclose(within, 0.5, atol=0.02)


def test_labels_can_be_learned() -> None:
    source = Synthetic("multilabel", 1500, [40], 3)
    samples = source.read()["all"]
    assert (samples.targets.shape, samples.targets.dtype) == ((1500, 3), torch.int64)
    np.testing.assert_allclose(samples.targets.double().mean(0), 0.3, atol=0.05)
    inputs, targets = samples.inputs.numpy(), samples.targets.numpy()
    for label in range(3):
        model = LogisticRegression().fit(inputs[:1000], targets[:1000, label])
        assert model.score(inputs[1000:], targets[1000:, label]) > 0.9


def test_a_regression_is_linear_up_to_the_noise() -> None:
    samples = Synthetic("regression", 2000, [20], 2, noise=0.1).read()["all"]
    assert (samples.targets.shape, samples.targets.dtype) == ((2000, 2), torch.float32)
    inputs, targets = samples.inputs.numpy(), samples.targets.numpy()
    model = LinearRegression().fit(inputs[:1000], targets[:1000])
    residual = targets[1000:] - model.predict(inputs[1000:])
    np.testing.assert_allclose(residual.std(), 0.1, atol=0.01)
    assert targets.std() > 0.5


def test_the_seed_decides() -> None:
    first, again, other = (Synthetic("multiclass", 10, [4], 2, seed=seed).read()["all"] for seed in (1, 1, 2))
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": "binary", "num_classes": 3},
        {"num_samples": 0},
        {"input_shape": []},
        {"input_shape": [0]},
        {"dtype": "int4"},
        {"noise": -1},
    ],
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    options: dict[str, Any] = {"task": "multiclass", "num_samples": 10, "input_shape": [4], "num_classes": 2}
    with pytest.raises(ValueError, match=r"expected|has 2 classes"):
        Synthetic(**{**options, **wrong})
