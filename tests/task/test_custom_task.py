"""A task of the user's own: what it lacks, and what its methods take, return and raise."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.task.grades import made

from assay.errors import ConfigError, DataError
from assay.task.answers import scores_of, typed_by
from assay.task.prediction.stored_predictions import StoredPredictions
from assay.task.task import Task
from assay.task.task_of import TASKS, check_interface

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["scores", "check", "loss_targets"])
def test_a_method_of_another_form_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an hour is not lost to a typing error in its last minute."""
    monkeypatch.chdir(tmp_path)
    asked = str(inspect.signature(getattr(Task, name))).partition(":")[0]
    for wrong in (
        f"def {name}(self): pass",
        f"def {name}(self, a, b, c, surplus): pass",
        f"async def {name}(self, *arguments): pass",
        f"def {name}(self, *arguments): yield",
        f"{name} = 3",
    ):
        with pytest.raises(ConfigError, match=rf"{name} of 'grades\.Grades' cannot be called") as caught:
            check_interface(made(tmp_path, f"    {wrong}"), "data.source.task")
        assert caught.value.key == "data.source.task"
        assert caught.value.hint.startswith(f"write def {name}{asked}")


def test_other_names_and_more_that_may_be_left_out_are_taken(tmp_path: Path) -> None:
    text = """
    def predicted_label(self, kept, at, long=False): return "x"
    def legend(self, *every): return []
    @staticmethod
    def labels(outputs): return None
"""
    check_interface(made(tmp_path, text), "data.source.task")
    for task in TASKS.values():
        check_interface(task, "data.source.task")


@pytest.mark.parametrize("method", ["scores", "typed"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {}['kappa']", "raised KeyError: 'kappa' (grades.py:6, in {method})"),
        ("return {'kappa': 1.0}", "returned a dict; a"),
    ],
)
def test_the_class_the_method_and_the_file_are_named(
    method: str, body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = made(tmp_path, f"    def {method}(self, *arguments): {body}")
    outputs, names = np.eye(3, dtype=np.float32), ("low", "middle", "high")
    predictions = StoredPredictions(task.name, "probabilities", ("0", "1", "2"), outputs, np.arange(3), names)
    ask = (lambda: scores_of(task, predictions)) if method == "scores" else None
    with pytest.raises(DataError) as caught:
        ask() if ask else typed_by(task, outputs, "probabilities", names)
    expected = f"{method} of task 'grades.Grades' {message.format(method=method)}"
    assert caught.value.message.startswith(expected)
    assert "grades.py:6" in caught.value.message
