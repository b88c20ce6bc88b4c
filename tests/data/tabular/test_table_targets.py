from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import LabelEncoder  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.table import TableTargets
from assay.errors import DataError

FRAME = pd.DataFrame(
    {
        "kind": ["b", "a", "c", "a"] * 5,
        "sick": [0, 1, 1, 0] * 5,
        "tired": [1, 1, 0, 0] * 5,
        "size": np.linspace(0.5, 9.5, 20),
    }
)


def test_classes_are_numbered_as_scikit_learn_does() -> None:
    targets = TableTargets("multiclass", ["kind"], FRAME[["kind"]])
    assert targets.class_names == ("a", "b", "c")
    expected = LabelEncoder().fit_transform(FRAME["kind"])
    assert targets.encode(FRAME).tolist() == expected.tolist()
    assert targets.encode(FRAME).dtype == torch.int64


@pytest.mark.parametrize(
    ("task", "names", "dtype", "class_names"),
    [
        ("regression", ["size"], torch.float32, ()),
        ("regression", ["size", "sick"], torch.float32, ()),
        ("multilabel", ["sick", "tired"], torch.int64, ("sick", "tired")),
    ],
)
def test_numbers_and_labels(
    task: str, names: list[str], dtype: torch.dtype, class_names: tuple[str, ...]
) -> None:
    targets = TableTargets(task, names, FRAME[names])
    encoded = targets.encode(FRAME)
    assert (encoded.dtype, targets.class_names) == (dtype, class_names)
    np.testing.assert_allclose(encoded.numpy(), FRAME[names].to_numpy())


def test_several_heads_hold_what_each_column_is() -> None:
    names = ["size", "kind", "sick"]
    targets = TableTargets("multitask", names, FRAME[names])
    assert targets.class_names == ("size", "kind=a", "kind=b", "kind=c", "sick=0", "sick=1")
    assert targets.notes == [
        "predicted side by side: size as a number, kind as one of 3 classes, sick as one of 2 classes"
    ]
    encoded = targets.encode(FRAME)
    assert encoded.dtype == torch.float32
    np.testing.assert_allclose(encoded[:, 0].numpy(), FRAME["size"])
    assert encoded[:, 1].tolist() == LabelEncoder().fit_transform(FRAME["kind"]).tolist()
    assert encoded[:, 2].tolist() == FRAME["sick"].tolist()


def test_classes_that_look_alike_are_said() -> None:
    frame = pd.DataFrame({"kind": ["a", "A ", "b"] * 5})
    (note,) = TableTargets("multiclass", ["kind"], frame).notes
    assert note == "classes that differ only in blanks or capital letters: 'a', 'A '"


@pytest.mark.parametrize(
    ("task", "frame", "message"),
    [
        ("multilabel", {"a": [0, 1, 2], "b": [0, 1, 0]}, "hold more than 0 and 1"),
        ("regression", {"a": ["x", "y", "z"]}, "a cannot be numbers"),
        ("regression", {"a": [1e9, 1e9 + 1, 1e9 + 2]}, "differ too little"),
    ],
)
def test_what_is_not_of_the_task(task: str, frame: dict[str, Any], message: str) -> None:
    table = pd.DataFrame(frame)
    with pytest.raises(DataError, match=message):
        TableTargets(task, list(frame), table).encode(table)
