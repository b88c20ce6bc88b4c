from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.data.samples import Samples, Stream, Unfitted
from assay.data.splits import Splits, read_splits
from assay.data.subset import Split
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

SPLIT = Split(val=0.1, test=0.2)
LABELS = torch.arange(100) % 2
NAMES = ("a", "b")


def samples(targets: Tensor = LABELS) -> Samples:
    return Samples(torch.arange(2.0 * len(targets)).view(len(targets), 2), targets)


@pytest.fixture
def divide(given_source: Any) -> Callable[..., Splits]:
    def read(
        subsets: Any,
        task: str = "multiclass",
        names: tuple[str, ...] = NAMES,
        thin_classes: float | None = None,
    ) -> Splits:
        divided = read_splits(given_source(subsets, task, names), SPLIT, thin_classes)
        divided.check(1)
        return divided

    return read


def test_parts_share_one_tensor(divide: Callable[..., Splits]) -> None:
    whole = samples()
    subsets = divide({"all": whole})
    assert all(data is whole for data in subsets.data.values())
    assert {name: len(rows) for name, rows in subsets.rows.items()} == {"train": 70, "val": 10, "test": 20}
    assert sorted(np.concatenate(list(subsets.rows.values()))) == list(range(100))


def test_official_parts_are_kept(divide: Callable[..., Splits]) -> None:
    subsets = divide({"train": samples(), "test": samples(LABELS[:30])})
    assert {name: len(rows) for name, rows in subsets.rows.items()} == {"train": 90, "val": 10, "test": 30}
    assert subsets.data["val"] is subsets.data["train"]
    subsets = divide({"train": samples(), "test": samples(LABELS[:30]), "val": samples(LABELS[:5])})
    assert {name: len(rows) for name, rows in subsets.rows.items()} == {"train": 100, "val": 5, "test": 30}


def test_the_share_for_validation_leaves_the_test_part_as_it_is(given_source: Any) -> None:
    source = given_source({"all": samples()}, "multiclass", NAMES)
    tests = [read_splits(source, Split(val=val, test=0.2), None).rows["test"].tolist() for val in (0.1, 0.3)]
    assert tests[0] == tests[1]


def test_spec_counts_the_training_subset(divide: Callable[..., Splits]) -> None:
    targets = torch.cat([torch.zeros(60, dtype=torch.int64), torch.ones(40, dtype=torch.int64)])
    spec = divide({"all": samples(targets)}, thin_classes=0.5).describe(torch.zeros(1, 2), (), ())
    assert spec.class_counts == (42, 21)
    assert (spec.num_train, spec.num_val, spec.num_test) == (63, 10, 20)
    labels = torch.tensor([[1, 0, 1]] * 50)
    spec = divide({"all": samples(labels)}, "multilabel", ("x", "y", "z")).describe(torch.zeros(1, 2), (), ())
    assert (spec.num_classes, spec.class_counts, spec.num_targets) == (3, (35, 0, 35), 0)
    spec = divide({"all": samples(torch.rand(50, 2))}, "regression", ()).describe(torch.zeros(1, 2), (), ())
    assert (spec.num_classes, spec.class_counts, spec.num_targets) == (0, (), 2)


def test_the_digest_tells_contents_and_division(given_source: Any) -> None:
    def digest(data: Samples, split: Split = SPLIT) -> str:
        return read_splits(given_source({"all": data}, "multiclass", NAMES), split, None).digest

    changed = samples()
    changed.inputs[17, 1] += 1
    same, other_data, other_split = (
        digest(samples()),
        digest(changed),
        digest(samples(), Split(0.1, 0.2, seed=1)),
    )
    assert digest(samples()) == same
    assert len({same, other_data, other_split}) == 3


class Scaler:
    """Centres on the mean of the rows it was fitted on."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def fit(self, raw: Tensor, rows: np.ndarray[Any, Any]) -> None:
        self.rows = rows.tolist()
        self.mean = raw[rows].mean(0)

    def transform(self, raw: Tensor) -> Tensor:
        return raw - self.mean


def test_encoders_are_fitted_on_the_training_rows_alone(divide: Callable[..., Splits]) -> None:
    encoder, raw = Scaler(), torch.rand(100, 2)
    subsets = divide({"all": Unfitted(raw, LABELS, encoder)})
    assert encoder.rows == subsets.rows["train"].tolist()
    data = subsets.data["test"]
    assert isinstance(data, Samples)
    assert torch.equal(data.inputs, raw - raw[subsets.rows["train"]].mean(0))
    given = divide(
        {"test": Unfitted(raw[:10], LABELS[:10], encoder), "train": Unfitted(raw, LABELS, encoder)}
    )
    assert encoder.rows == given.rows["train"].tolist()
    assert isinstance(given.data["test"], Samples)
    assert len(given.data["test"].inputs) == 10


BAD = [
    ({"all": Samples(torch.rand(9, 2), LABELS[:10])}, "multiclass", "9 inputs and 10 targets"),
    ({"all": Stream([0] * 9, LABELS[:10])}, "multiclass", "9 inputs and 10 targets"),
    ({"all": samples(LABELS.float())}, "multiclass", "type torch.float32"),
    ({"all": samples(LABELS[:, None])}, "binary", "shape (100, 1)"),
    ({"all": samples(LABELS)}, "multilabel", "shape (100,)"),
    ({"all": samples(LABELS)}, "regression", "shape (100,)"),
    ({"all": samples(LABELS + 1)}, "multiclass", "from 1 to 2; indices of the 2 classes go from 0 to 1"),
    ({"all": samples(LABELS - 1)}, "multiclass", "from -1 to 0"),
    (
        {"all": samples(torch.full((100, 2), 3))},
        "multilabel",
        "from 3 to 3; multi-hot targets go from 0 to 1",
    ),
    (
        {"train": samples(), "test": samples(torch.tensor([0, 2]))},
        "multiclass",
        "the test subset has targets from 0 to 2",
    ),
    ({"train": samples(), "test": samples(), "val": samples(LABELS * 0)}, "multiclass", None),
    ({"train": samples(LABELS * 0), "test": samples()}, "multiclass", "classes that training lacks: b"),
    (
        {"train": samples(LABELS * 0), "test": samples(LABELS * 0)},
        "multiclass",
        "no training sample of class: b",
    ),
    ({"all": samples(LABELS[:1])}, "multiclass", "data.split.test: of 1 sample"),
    ({"train": samples(LABELS[:1]), "val": samples(), "test": samples()}, "multiclass", "1 training sample"),
    (
        {"all": Samples(torch.rand(100), LABELS)},
        "multiclass",
        "or [N, channels, …], got [100] in the train subset",
    ),
]


@pytest.mark.parametrize(("given", "task", "message"), BAD)
def test_what_cannot_be_trained_on(
    divide: Callable[..., Splits], given: Any, task: str, message: str | None
) -> None:
    if message is None:
        divide(given, task)
        return
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        divide(given, task)
    assert caught.value.hint


def test_a_binary_task_has_two_classes(divide: Callable[..., Splits]) -> None:
    with pytest.raises(DataError, match="a binary task has 2 classes, this data has 3"):
        divide({"all": samples()}, "binary", ("a", "b", "c"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["inputs", "targets"])
def test_values_that_are_not_finite(divide: Callable[..., Splits], value: float, where: str) -> None:
    data = Samples(torch.zeros(100, 3, 2), torch.zeros(100, 1))
    getattr(data, where)[41] = value
    with pytest.raises(
        DataError, match=f"the {where} of the train subset hold NaN or infinity, first in sample 41"
    ):
        divide({"all": data}, "regression", ())


def test_large_values_are_finite_although_their_sum_is_not(divide: Callable[..., Splits]) -> None:
    divide({"all": Samples(torch.full((100, 4), 3e38), LABELS)})


def test_fewer_samples_than_a_batch(divide: Callable[..., Splits]) -> None:
    subsets = divide({"all": samples()})
    with pytest.raises(DataError, match=r"data\.batch_size=71: there are only 70 training samples") as caught:
        subsets.check(71)
    assert caught.value.hint == "data.batch_size=70, or data.drop_last=false"


def test_imbalance_needs_classes(divide: Callable[..., Splits]) -> None:
    with pytest.raises(DataError, match=r"data\.thin_classes=0\.1.*regression"):
        divide({"all": samples(torch.rand(50, 1))}, "regression", (), thin_classes=0.1)


@pytest.mark.parametrize("names", [("all", "train"), ("train", "validation"), ("val", "test"), ()])
def test_parts_that_would_be_left_out_are_refused(
    divide: Callable[..., Splits], names: tuple[str, ...]
) -> None:
    with pytest.raises(DataError, match=f"expected the subsets .*, got {', '.join(names) or 'nothing'}"):
        divide(dict.fromkeys(names, samples()))
