"""Methods of a user's own task that raise, or return something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.task.grades import made

from assay.errors import AssayError, DataError
from assay.task.answers import scores_of, typed_by
from assay.task.prediction.predictions import Predictions
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from pathlib import Path

OUTPUTS = np.eye(3, dtype=np.float32)
NAMES = ("low", "middle", "high")


def predictions_of(task: str) -> Predictions:
    return Predictions(task, "probabilities", ("0", "1", "2"), OUTPUTS, np.arange(3), NAMES)


def ask(method: str, task: Any) -> Any:
    if method == "scores":
        return scores_of(task, predictions_of(task.name))
    return typed_by(task, OUTPUTS, "probabilities", NAMES)


@pytest.mark.parametrize("method", ["scores", "typed"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {}['kappa']", "of task 'grades.Grades' raised KeyError: 'kappa' (grades.py:6, in {method})"),
        ("return {'kappa': 1.0}", "of task 'grades.Grades' returned a dict; a"),
        ("pass", "of task 'grades.Grades' returned a NoneType; a"),
    ],
)
def test_the_class_the_method_and_the_file_are_named(
    method: str, body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = made(tmp_path, f"    def {method}(self, *arguments): {body}")
    with pytest.raises(DataError) as caught:
        ask(method, task)
    assert caught.value.message.startswith(f"{method} {message.format(method=method)}")
    assert "grades.py:6" in caught.value.message


def test_a_list_of_something_else_is_no_scores(tmp_path: Path) -> None:
    task = made(tmp_path, "    def scores(self, predictions): return [1.0]")
    with pytest.raises(DataError, match=r"a list of assay\.task\.score\.Score was expected"):
        ask("scores", task)


def test_a_message_of_assay_is_passed_on_as_it_is(tmp_path: Path) -> None:
    text = "    def scores(self, predictions):\n        from assay.errors import AssayError\n"
    with pytest.raises(AssayError, match=r"^mine$"):
        ask("scores", made(tmp_path, f"{text}        raise AssayError('mine')"))


def test_what_is_right_comes_back() -> None:
    task = task_of("multiclass")
    assert ask("scores", task)[0].value == 1.0
    assert len(ask("typed", task)) == 3
