"""Tasks of the user's own whose methods cannot take what the interface gives them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest
from tests.task.grades import made

from assay.errors import ConfigError
from assay.task.task import Task
from assay.task.task_of import TASKS, check_interface

if TYPE_CHECKING:
    from pathlib import Path

METHODS = [name for name, one in vars(Task).items() if inspect.isfunction(one) and not name.startswith("_")]


def as_asked(name: str) -> str:
    """The parameters of a method of the interface, without types."""
    asked = inspect.signature(getattr(Task, name))
    names = [one.replace(annotation=one.empty) for one in asked.parameters.values()]
    return str(asked.replace(parameters=names, return_annotation=asked.empty))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_another_form_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an hour is not lost to a typing error in its last minute."""
    monkeypatch.chdir(tmp_path)
    asked = as_asked(name)
    for wrong in (
        f"def {name}({', '.join(asked[1:-1].split(', ')[:-1])}): pass",
        f"def {name}{asked.replace('(self', '(self, surplus', 1)}: pass",
        f"def {name}(self): pass",
        f"async def {name}{asked}: pass",
        f"def {name}{asked}: yield",
        f"{name} = 3",
    ):
        with pytest.raises(ConfigError) as caught:
            check_interface(made(tmp_path, f"    {wrong}"), "data.source.task")
        assert caught.value.key == "data.source.task"
        assert f"{name} of 'grades.Grades' is " in caught.value.message
        assert caught.value.hint == f"write def {name}{asked}"
        assert ("(grades.py:6)" in caught.value.message) == wrong.startswith(("def", "async"))


def test_other_names_and_more_that_may_be_left_out_are_taken(tmp_path: Path) -> None:
    text = """
    def said(self, kept, at, long=False): return "x"
    def legend(self, *every): return []
    @staticmethod
    def labels(outputs): return None
"""
    check_interface(made(tmp_path, text), "data.source.task")


@pytest.mark.parametrize("name", TASKS)
def test_ours_are_as_they_are_asked_to_be(name: str) -> None:
    check_interface(TASKS[name], "data.source.task")
