from __future__ import annotations

import pytest

from assay.task.task_of import TASKS, infer_task, task_of


def test_each_task_by_its_name() -> None:
    assert {name: task_of(name).name for name in TASKS} == {name: name for name in TASKS}


@pytest.mark.parametrize("name", ["clustering", "auto", "", "Binary"])
def test_no_such_task(name: str) -> None:
    with pytest.raises(ValueError, match=f"task='{name}': one of multiclass, binary, multilabel, regression"):
        task_of(name)


@pytest.mark.parametrize(
    ("is_real", "num_columns", "name"),
    [
        (True, 1, "regression"),
        (True, 3, "regression"),
        (False, 1, "multiclass"),
        (False, 2, "multilabel"),
        (False, 0, "multilabel"),
    ],
)
def test_inferred_from_the_form(is_real: bool, num_columns: int, name: str) -> None:
    assert infer_task(is_real=is_real, num_columns=num_columns) == name
