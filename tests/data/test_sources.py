"""Data sets of torch and of scikit-learn, synthetic ones, and the digest of samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn import datasets  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.linear_model import LinearRegression, LogisticRegression  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch.utils.data import Dataset, IterableDataset

from assay.data.bundled import Bundled
from assay.data.custom import Custom
from assay.data.samples import Samples, Stream
from assay.data.synthetic import Synthetic
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.data.data_module import DataModule


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


@pytest.mark.parametrize("name", ["targets", "labels"])
def test_known_targets_are_not_read_again(name: str) -> None:
    dataset = Own(pair, classes=["even", "odd"])
    setattr(dataset, name, [index % 2 for index in range(40)])
    source = Custom(dataset)
    assert source.read()["train"].targets.tolist() == [0, 1] * 20
    assert source.class_names == ("even", "odd")
    assert dataset.read == 1
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
    table = getattr(datasets, f"load_{name}")()
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
        Stream(SAMPLES, TARGETS, identity="files").digest(),
        Stream(SAMPLES, TARGETS, identity="other files").digest(),
        Stream(SAMPLES, 1 - TARGETS, identity="files").digest(),
        Samples(INPUTS, TARGETS, identity="files").digest(),
    ]
    assert len(Stream(SAMPLES, TARGETS)) == 4
    assert sorted(Counter(digests).values()) == [1, 1, 2], "in memory and streamed it is the same data"
    assert digests[0] == digests[3]
