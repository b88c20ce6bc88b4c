"""A task of the user's own: from a package they trust, and from nowhere else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.config.unread_keys import OUR_DATA
from assay.errors import ConfigError
from assay.targets.own_task import check_tasks, import_tasks
from assay.targets.trust import KEY
from assay.task.task import Task
from assay.task.task_of import known_task, task_of

GRADES = """
from assay.task.single_label import SingleLabel
class Grades(SingleLabel):
    suits = "loss=ordinal"
    loss_kinds = frozenset()
    form = "one grade per sample"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A package of its own for each test, importable, with the given text as module `it`."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


def job(task: str, packages: list[str], key: str = "data.source.task") -> Any:
    config = OmegaConf.create({KEY: packages, "data": {"_target_": OUR_DATA}})
    OmegaConf.update(config, key, task, force_add=True)
    return config


def write(package: str, text: str) -> None:
    Path(package, "it.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("key", ["data.source.task", "data.spec.task", "spec.task"])
def test_it_is_known_once_a_job_names_it(package: str, key: str) -> None:
    write(package, GRADES)
    name = f"{package}.it.Grades"
    config = job(name, [package], key)
    check_tasks(config)
    assert f"{package}.it" not in sys.modules, "a name is judged without an import"
    assert known_task(name) is None
    with pytest.raises(
        ValueError, match=rf"trusted_packages: \[{package}\] into conf/project.yaml.*task = Grades\(\)"
    ):
        task_of(name)
    import_tasks(config)
    assert task_of(name).in_words({"num_classes": 3}) == "3 classes"
    assert task_of(name).name == name


@pytest.mark.parametrize("packages", [[], ["another"]])
@pytest.mark.parametrize("key", ["data.source.task", "data.spec.task", "spec.task"])
def test_nothing_of_a_stranger_is_imported(package: str, packages: list[str], key: str) -> None:
    write(package, "raise SystemExit('imported')")
    config = job(f"{package}.it.Grades", packages, key)
    for judge in (check_tasks, import_tasks):
        with pytest.raises(ConfigError, match="package that is not trusted here") as caught:
            judge(config)
        assert caught.value.key == key
        assert f"trusted_packages: [{package}] into conf/project.yaml" in caught.value.hint
        typed = f"trusted_packages=[{package}]" in caught.value.hint
        assert typed == key.startswith("data."), "a verb that looks at runs takes no such word"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("multiclas", "'multiclas' is not a task; did you mean 'multiclass'"),
        ("os.system", "'os.system' is not a task"),
        ("assay.task.task_of.Binary", "'assay.task.task_of.Binary' is not a task"),
        ("a..b", r"'a\.\.b' is not a task"),
    ],
)
def test_what_is_not_a_task_by_its_name(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_tasks(job(name, ["mine"]))
    assert "multiclass, binary" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("from assay.task.task import Task as Grades", "not a subclass of assay.task.task.Task", "derive"),
        (
            "from assay.task.task_of import Binary as Grades",
            "is assay.task.task_of.Binary, which is not",
            "wrote",
        ),
        ("class Grades: pass", "not a subclass of assay.task.task.Task", "derive"),
        ("from collections import OrderedDict as Grades", "not a subclass of", "derive"),
        ("Grades = 3", "not a subclass of", "derive"),
        (
            "from assay.task.task import Task\nclass Grades(Task): pass",
            f"lacks what assay.task.task.Task asks for: {', '.join(sorted(Task.__abstractmethods__))}",
            "define that in Grades",
        ),
        (GRADES.replace("    suits = ", "    text = "), "asks for: suits", "set it as attributes of Grades"),
        (
            GRADES + "    def said(self): return 'x'",
            "is def said(self), which cannot be called",
            "write def said",
        ),
        (GRADES + "    name = 'grades'", "calls itself 'grades'", "leave `name` out of Grades"),
        (GRADES + "    def __init__(self):\n        1 / 0", "ZeroDivisionError: division by zero", "--debug"),
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'", "--debug"),
    ],
)
def test_what_is_not_a_task_once_it_is_imported(package: str, text: str, message: str, hint: str) -> None:
    write(package, text)
    with pytest.raises(ConfigError) as caught:
        import_tasks(job(f"{package}.it.Grades", [package]))
    assert caught.value.key == "data.source.task"
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_source_hands_over_the_task_itself(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, GRADES)
    monkeypatch.syspath_prepend(".")
    task = importlib.import_module(f"{package}.it").Grades()
    assert task_of(task) is task
    assert task_of(f"{package}.it.Grades") is task


def test_a_task_that_is_handed_over_is_looked_at_too(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, GRADES + "    def said(self): return 'x'")
    monkeypatch.syspath_prepend(".")
    with pytest.raises(ConfigError, match=r"said of .* is def said\(self\)"):
        task_of(importlib.import_module(f"{package}.it").Grades())
