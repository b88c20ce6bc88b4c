"""A class of the user's, or a package, that cannot be used is one message with key, line and way out."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf
from optuna.samplers import BaseSampler

from assay.assemble.node import build
from assay.config.unread_keys import OUR_DATA
from assay.errors import ConfigError
from assay.targets.allowed_targets import _ONE_A_NAME, _SLOTS
from assay.targets.resolve import (
    _ANY_CALL,
    _resolve_custom,
    check_installed,
    check_tasks,
    custom_class,
    import_task,
    import_tasks,
    install_command,
    require,
    resolve,
)
from assay.targets.trust import KEY
from assay.task.task import Task
from assay.task.task_of import task_of
from assay_sweep.definition import find_class, make_part
from assay_sweep.launcher.launcher import Launcher
from assay_sweep.search.search import Search

if TYPE_CHECKING:
    from collections.abc import Callable


NODES = {slot: f"{slot}.it" if slot in _ONE_A_NAME else slot for slot in _SLOTS} | {"inside": "model.inner"}
INTERFACES: dict[str, tuple[type, str]] = {
    "hydra.launcher": (Launcher, "close, has_gpus, has_room, slots, start, stop, wait"),
    "hydra.sweeper": (Search, "next, total"),
}
SLOTS = (*NODES, *INTERFACES, "hydra.sweeper.sampler", "data.source.task")
TASK_BASE = "assay.task.task.Task"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A package for each test, whose module `it` the test writes."""
    name = f"custom_{abs(hash(request.node.name))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


def write(package: str, text: str) -> None:
    Path(package, "it.py").write_text(text, encoding="utf-8")


def looked_up(slot: str, package: str, text: str) -> tuple[Callable[[], Any], str]:
    """What looks the class up, and the key that is to be named."""
    write(package, text)
    path = f"{package}.it.It"
    if slot in INTERFACES:
        return lambda: find_class(
            {"_target_": path}, slot, INTERFACES[slot][0], [package]
        ), f"{slot}._target_"
    if slot == "hydra.sweeper.sampler":
        return lambda: custom_class(f"{slot}._target_", path, [package], BaseSampler), f"{slot}._target_"
    if slot == "data.source.task":
        return lambda: import_task(slot, path, [package]), slot
    return lambda: resolve(NODES[slot], path, [package]), f"{NODES[slot]}._target_"


def refusal(look: Callable[[], Any], key: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        look()
    assert caught.value.key == key
    return caught.value


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("from math import nothing", "cannot import name 'nothing'", "fix the module"),
        ("class It:\n    def f(self:", "SyntaxError: ", "fix the module"),
        ("import not_there", "No module named 'not_there'", "install not_there"),
        ("import sys; sys.exit(3)", "SystemExit: 3", "fix the module"),
        ("class It2: pass", "it has no 'It'", "did you mean 'It2'?"),
    ],
)
@pytest.mark.parametrize("slot", ["model", "hydra.launcher", "data.source.task"])
def test_what_cannot_be_imported(slot: str, text: str, says: str, hint: str, package: str) -> None:
    error = refusal(*looked_up(slot, package, text))
    assert says in error.message
    assert hint in error.hint
    assert "It2" in text or f"({package}/it.py:" in error.message


def base_of(slot: str) -> str:
    if slot in INTERFACES:
        kind = INTERFACES[slot][0]
        return f"{kind.__module__}.{kind.__qualname__}"
    others = {
        "inside": "torch.nn.Module",
        "hydra.sweeper.sampler": "optuna.samplers.BaseSampler",
        "data.source.task": TASK_BASE,
    }
    return others.get(slot) or next(iter(_SLOTS[slot].bases), "builtins.object")


@pytest.mark.parametrize("slot", SLOTS)
def test_a_class_of_another_kind_or_with_something_abstract(slot: str, package: str) -> None:
    if slot not in (*_ANY_CALL, "inside"):
        error = refusal(*looked_up(slot, package, "class It: pass"))
        assert "It' is not " in error.message
        assert "derive" in error.hint
    for name in list(sys.modules):
        if name.startswith(package):
            del sys.modules[name]
    _resolve_custom.cache_clear()
    base = base_of(slot)
    text = f"import abc\nimport {base.rpartition('.')[0]}\nclass It({base}, metaclass=abc.ABCMeta):\n"
    error = refusal(
        *looked_up(slot, package, text + "    @abc.abstractmethod\n    def left_out(self): ...\n#")
    )
    assert "left_out" in error.message
    assert error.hint == "define that in It"
    assert all(name in error.message for name in INTERFACES.get(slot, ("", "left_out"))[1].split(", "))


@pytest.mark.parametrize("slot", ["model", "callbacks", "inside", *INTERFACES])
def test_a_constructor_that_raises(slot: str, package: str) -> None:
    base, key = base_of(slot), NODES.get(slot, slot)
    head = f"import {base.rpartition('.')[0]}\nclass It({base}):\n    def __init__(self):\n"
    look, _ = looked_up(
        slot, package, f"{head}        raise RuntimeError('no luck')\nIt.__abstractmethods__ = frozenset()"
    )
    job = OmegaConf.create({KEY: [package]})
    OmegaConf.update(job, key, {"_target_": f"{package}.it.It"}, force_add=True)
    error = refusal(lambda: make_part(look(), {}, slot) if slot in INTERFACES else build(job, key), key)
    assert "cannot be built" in error.message
    assert f"no luck ({package}/it.py:4, in __init__)" in error.message


@pytest.mark.parametrize("slot", [slot for slot in _SLOTS if slot not in _ANY_CALL])
def test_a_function_that_makes_something_else(slot: str, package: str) -> None:
    write(package, "def it(): return 3")
    job = OmegaConf.create({KEY: [package]})
    OmegaConf.update(job, NODES[slot], {"_target_": f"{package}.it.it"}, force_add=True)
    error = refusal(lambda: build(job, NODES[slot]), NODES[slot])
    assert error.message.endswith(", got a int")
    assert _SLOTS[slot].words in error.message


# -- tasks -----------------------------------------------------------------------------------------

GRADES = """
from assay.task.classification import SingleLabel
class Grades(SingleLabel):
    suits = "loss=ordinal"
    loss_kinds = frozenset()
    form = "one grade per sample"
"""


def job_with_task(task: str, packages: list[str], key: str = "data.source.task") -> Any:
    config = OmegaConf.create({KEY: packages, "data": {"_target_": OUR_DATA}})
    OmegaConf.update(config, key, task, force_add=True)
    return config


@pytest.mark.parametrize("key", ["data.source.task", "data.spec.task", "spec.task"])
def test_a_task_is_imported_from_a_trusted_package_alone(package: str, key: str) -> None:
    name = f"{package}.it.Grades"
    write(package, "raise SystemExit('imported')")
    for judge in (check_tasks, import_tasks):
        error = refusal(lambda judge=judge: judge(job_with_task(name, ["another"], key)), key)  # type: ignore[misc]  # bound
        assert "package that is not trusted here" in error.message
        assert f"trusted_packages: [{package}] into conf/project.yaml" in error.hint
    write(package, GRADES)
    check_tasks(job_with_task(name, [package], key))
    assert f"{package}.it" not in sys.modules, "a name is judged without an import"
    import_tasks(job_with_task(name, [package], key))
    assert task_of(name).in_words({"num_classes": 3}) == "3 classes"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "from assay.task.task_of import Binary as Grades",
            "it is assay.task.classification.Binary",
            "for example",
        ),
        ("class Grades: pass", f"not a subclass of {TASK_BASE}", "derive"),
        (
            "from assay.task.task import Task\nclass Grades(Task): pass",
            f"it lacks {', '.join(sorted(Task.__abstractmethods__))}",
            "define that in Grades",
        ),
        (GRADES.replace("    suits = ", "    text = "), "requires: suits", "set it as attributes of Grades"),
        (GRADES + "    name = 'grades'", "has the name 'grades'", "leave `name` out of Grades"),
        (GRADES + "    def __init__(self):\n        1 / 0", "ZeroDivisionError: division by zero", "--debug"),
    ],
)
def test_what_is_not_a_task_once_it_is_imported(package: str, text: str, message: str, hint: str) -> None:
    write(package, text)
    job = job_with_task(f"{package}.it.Grades", [package])
    error = refusal(lambda: import_tasks(job), "data.source.task")
    assert message in error.message
    assert hint in error.hint


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes packages as good as not installed: Python itself refuses a module that is None."""

    def take_away(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return take_away


def node(target: str) -> dict[str, Any]:
    return {"logger": {"one": {"_target_": target}}}


@pytest.mark.parametrize(
    ("target", "packages", "hint"),
    [
        ("lightning.pytorch.loggers.wandb.WandbLogger", "wandb", "pip install 'assay[wandb]'"),
        ("lightning.pytorch.loggers.TensorBoardLogger", "tensorboard tensorboardX", "'assay[tensorboard]'"),
        ("lightning.pytorch.loggers.CometLogger", "comet_ml", "pip install comet-ml"),
    ],
)
def test_what_is_not_there_is_told(without: Any, target: str, packages: str, hint: str) -> None:
    without(*packages.split())
    with pytest.raises(ConfigError, match="not installed") as caught:
        check_installed(OmegaConf.create(node(target)))
    assert caught.value.key == "logger.one"
    assert hint in caught.value.hint


def test_what_is_there_passes(without: Any) -> None:
    without("tensorboardX")
    for target in ("lightning.pytorch.loggers.TensorBoardLogger", "my_project.WandbLogger", "???"):
        check_installed(OmegaConf.create(node(target)))


def test_an_extra_of_the_package_goes_before_the_package() -> None:
    extras = importlib.metadata.metadata("assay").get_all("Provides-Extra") or []
    for extra in extras:
        assert install_command(f"logger.{extra}", extra) == f"pip install 'assay[{extra}]'"


def test_a_package_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As optuna 2, which Hydra's own sweeper brings."""
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: {"optuna": "2.10.1"}.get(name) or version(name)
    )
    require("hydra.launcher", "this launcher", "ray")
    with pytest.raises(ConfigError, match=r"needs optuna >=4, and 2\.10\.1 is installed") as caught:
        require("hydra.sweeper", "this search", "optuna")
    assert caught.value.hint == "pip install 'assay[optuna]'"
