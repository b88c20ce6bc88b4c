"""Other samples get the classes, the columns and the form that a run was trained with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from assay.data.samples import Samples, Unfitted
from assay.data.spec import FittedPreprocessing, Spec
from assay.data.tabular.table_encoder import TableEncoder
from assay.errors import DataError

INPUTS = torch.zeros(4, 2)


def spec(task: Any = "multiclass", **values: Any) -> Spec:
    names = () if task == "regression" else ("bird", "cat", "dog")
    return Spec(task, (2,), **{"num_classes": len(names), "class_names": names, **values})


def adapted(
    trained: FittedPreprocessing, names: tuple[str, ...], targets: list[Any], task: str = "multiclass"
) -> Any:
    source: Any = SimpleNamespace(task=task, class_names=names)
    return trained.adapt(source, {"all": Samples(INPUTS, torch.tensor(targets))})["all"].targets.tolist()


def test_classes_are_matched_by_name() -> None:
    trained = FittedPreprocessing(spec())
    assert adapted(trained, ("bird", "cat", "dog"), [0, 1, 2, 0]) == [0, 1, 2, 0]
    assert trained.notes == []
    assert adapted(trained, ("dog", "bird", "cat"), [0, 1, 2, 0]) == [2, 0, 1, 2]
    assert trained.notes == []
    assert adapted(trained, ("cat", "dog"), [0, 1, 1, 0]) == [1, 2, 2, 1]
    assert trained.notes == ["the data has no class bird: scores averaged over the classes mean little"]
    assert adapted(trained, ("cat", "fish"), [0, 0, 0, 0]) == [1, 1, 1, 1]  # no sample is a fish
    with pytest.raises(DataError, match="does not know the class 'cow', 'fish'") as caught:
        adapted(trained, ("cat", "cow", "fish"), [0, 1, 2, 0])
    assert caught.value.hint == "leave such samples out; it was trained on bird, cat, dog"


def test_labels_are_matched_by_name_and_must_all_be_there() -> None:
    trained = FittedPreprocessing(spec("multilabel"))
    assert adapted(trained, ("dog", "bird", "cat"), [[1, 0, 0]] * 4, "multilabel") == [[0, 0, 1]] * 4
    for names, message in (
        (("bird", "cat"), "the label 'dog' is missing"),
        (("bird", "cat", "fish"), "does not know the label 'fish'"),
    ):
        with pytest.raises(DataError, match=message):
            adapted(trained, names, [[0] * len(names)] * 4, "multilabel")


def test_another_task_or_number_of_targets_is_refused() -> None:
    with pytest.raises(DataError, match="the task is regression, but the model was trained for multiclass"):
        adapted(FittedPreprocessing(spec()), (), [[1.0]] * 4, "regression")
    trained = FittedPreprocessing(spec("regression", num_targets=2))
    assert adapted(trained, (), [[1.0, 2.0]] * 4, "regression") == [[1.0, 2.0]] * 4
    with pytest.raises(DataError, match="has 1 targets; the model predicts 2"):
        adapted(trained, (), [[1.0]] * 4, "regression")


def test_a_table_is_encoded_as_in_training() -> None:
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"size": [1.0, 2.0], "kind": ["a", "b"]}), np.arange(2))
    source: Any = SimpleNamespace(task="multiclass", class_names=("bird", "cat", "dog"))
    rows = pd.DataFrame({"kind": ["b", "c"], "size": [5.0, 6.0]})
    given = {"all": Unfitted(rows, torch.tensor([0, 1]), TableEncoder())}
    trained = FittedPreprocessing(spec(), encoder)
    found: Any = trained.adapt(source, given)["all"]
    assert found.encoder is encoder
    [note] = trained.notes
    assert note.startswith(
        "2 of 2 rows are unlike the training rows, first row 0 (rows count from 0): 'size'"
    )
    assert "far outside the training range, 1 to 2" in note
    with pytest.raises(DataError, match="trained on an array of numbers"):
        FittedPreprocessing(spec()).adapt(source, given)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(1, 3), r"shape \[3\] and type float32; the model was trained on \[2\] and float32"),
        (torch.zeros(1, 2, dtype=torch.uint8), r"\[2\] and type uint8"),
        (torch.zeros(1, 2, dtype=torch.int64), r"\[2\] and type int64"),
    ],
)
def test_another_form_is_refused(inputs: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FittedPreprocessing(spec()).check(inputs)
