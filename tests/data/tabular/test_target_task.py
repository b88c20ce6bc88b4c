from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from assay.data.tabular.feature_choice import task_of_columns, with_targets
from assay.errors import DataError

TARGETS: dict[str, tuple[list[Any], str, bool]] = {
    "fractions": ([0.5, 1.25, 2.75] * 20, "regression", False),
    "few whole floats": ([1.0, 2.0, 3.0] * 20, "regression", True),
    "yes and no": ([True, False] * 30, "binary", False),
    "texts": (["a", "b", "c"] * 20, "multiclass", False),
    "few integers": ([1, 2, 3] * 20, "multiclass", False),
    "twelve integers": (list(range(12)) * 5, "multiclass", False),
    "many integers": (list(range(60)), "regression", True),
    "integers with a gap": ([1, 2, None] * 20, "binary", False),
    "yes and no with a gap": ([True, None, False] * 20, "binary", False),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_the_task_that_a_target_is(kind: str) -> None:
    values, task, said = TARGETS[kind]
    found, note = task_of_columns(pd.DataFrame({"target": values}), ["target"])
    assert found == task
    assert bool(note) == said
    assert not said or "data.source.task=multiclass" in note


def test_several_columns() -> None:
    frame = pd.DataFrame({"a": [0, 1] * 5, "b": [1, 0] * 5, "x": [0.5, 1.5] * 5, "y": [2.5, 3.5] * 5})
    assert task_of_columns(frame, ["a", "b"]) == ("multilabel", "")
    assert task_of_columns(frame, ["x", "y"]) == ("regression", "")
    assert task_of_columns(frame, ["a", "x"]) == ("multitask", "")
    assert task_of_columns(frame.assign(kind=["u", "v"] * 5), ["a", "kind"]) == ("multitask", "")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([f"2024-01-{day:02}" for day in range(1, 29)], "dates"),
        ([f"{price:,} €" for price in range(1000, 1030)], "looks like numbers"),
        ([f"name{n}" for n in range(40)], "40 different texts in 40 rows"),
        (list(range(30)) * 25, "30 different integers in 750 rows: numbers, or classes?"),
        ([*range(11), *[0, 1] * 20, 14], "12 different integers in 52 rows: numbers, or classes?"),
        ([f"name{n}" for n in range(150)] * 5, "150 classes in 750 rows, fewer than 10 rows a class"),
    ],
)
def test_a_target_that_is_neither(values: list[Any], says: str) -> None:
    with pytest.raises(DataError) as refused:
        task_of_columns(pd.DataFrame({"target": values}), ["target"])
    assert says in refused.value.message


def test_rows_without_a_target_go_and_integers_are_such_again() -> None:
    frame = pd.DataFrame({"n": [1.0, None, 3.0], "x": [0.5, 1.0, None], "y": [True, False, None]})
    kept = with_targets(frame, ["n", "y"])
    assert kept.index.tolist() == [0]
    assert with_targets(frame, ["n"])["n"].tolist() == [1, 3]
    assert [str(with_targets(frame, [name])[name].dtype) for name in "nxy"] == ["int64", "float64", "bool"]
    assert with_targets(frame.iloc[:1], ["n"]) is not None
