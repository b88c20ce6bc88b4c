from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.custom import Custom
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


def test_parts_of_their_own(data_module: Callable[..., DataModule]) -> None:
    source = Custom(Own(pair), val_dataset=Own(pair, 6), test_dataset=Own(pair, 8))
    datamodule = data_module(source)
    datamodule.setup()
    spec = datamodule.spec
    assert (spec.num_train, spec.num_val, spec.num_test) == (40, 6, 8)


def test_a_stock_torch_data_set() -> None:
    source = Custom(TensorDataset(torch.rand(10, 3), torch.arange(10) % 3), class_names=["a", "b", "c"])
    stream = source.read()["train"]
    assert stream.targets.tolist() == [0, 1, 2] * 3 + [0]
    assert source.class_names == ("a", "b", "c")


@pytest.mark.parametrize("name", ["targets", "labels"])
def test_known_targets_are_not_read_again(name: str) -> None:
    dataset = Own(pair, classes=["even", "odd"])
    setattr(dataset, name, [index % 2 for index in range(40)])
    source = Custom(dataset)
    assert source.read()["train"].targets.tolist() == [0, 1] * 20
    assert source.class_names == ("even", "odd")
    assert dataset.read == 1


def test_targets_that_the_samples_contradict_are_read() -> None:
    dataset = Own(pair, targets=[7] * 40)
    assert Custom(dataset).read()["train"].targets.tolist() == [0, 1] * 20


def test_pil_images_become_tensors() -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    dataset = Own(lambda index: (Image.fromarray(image), index % 2))
    inputs, _ = Custom(dataset).read()["train"].dataset[0]
    assert torch.equal(inputs, v2.functional.pil_to_tensor(Image.fromarray(image)))


@pytest.mark.parametrize(
    ("task", "target", "shape", "dtype"),
    [
        ("regression", 0.5, (40, 1), torch.float32),
        ("regression", torch.tensor([0.5, 1.0]), (40, 2), torch.float32),
        ("multilabel", np.array([0, 1, 1]), (40, 3), torch.int64),
        ("binary", True, (40,), torch.int64),
        ("multiclass", torch.tensor([1]), (40,), torch.int64),
    ],
)
def test_targets_of_each_task(task: Any, target: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    source = Custom(Own(lambda _: (torch.zeros(3), target)), task=task)
    targets = source.read()["train"].targets
    assert (targets.shape, targets.dtype) == (shape, dtype)
    assert len(source.class_names) == {"regression": 0, "multilabel": 3, "binary": 2, "multiclass": 2}[task]


def test_a_regression_trains_on_columns(data_module: Callable[..., DataModule]) -> None:
    datamodule = data_module(Custom(Own(lambda index: (torch.rand(3), float(index))), task="regression"))
    datamodule.setup()
    _, targets = datamodule.on_after_batch_transfer(next(iter(datamodule.train_dataloader())), 0)
    assert (targets.shape, targets.dtype, datamodule.spec.num_targets) == ((4, 1), torch.float32, 1)


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (Own(pair, 0), {}, "Own is empty"),
        (Own(lambda _: torch.zeros(3)), {}, "sample 0 is of type Tensor"),
        (Own(mapping), {"input_key": "dta"}, r"data\.source\.input_key=dta: a sample has no such key"),
        (Own(mapping), {"target_key": "lab"}, r"data\.source\.target_key=lab"),
        (Own(lambda _: (torch.zeros(3), "cat")), {}, "targets are of type str; numbers were expected"),
    ],
)
def test_data_sets_that_cannot_be_used(dataset: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Custom(dataset, **options).read()


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(3))


def test_arguments_out_of_range() -> None:
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
