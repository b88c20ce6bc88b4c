"""A class of the user's own that is broken: one message with key, line and way out, in each slot."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf
from optuna.samplers import BaseSampler

from assay.build.node import build
from assay.compose.hydra_node import SWEEP_PARTS
from assay.errors import ConfigError
from assay.sweep.definition import made, target
from assay.sweep.launcher.launcher import Launcher
from assay.sweep.search.search import Search
from assay.targets.allowed_targets import _ONE_A_NAME, _SLOTS
from assay.targets.own_task import import_task
from assay.targets.resolve import _ANY_CALL, own_class, resolve
from assay.targets.trust import KEY

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = {slot: f"{slot}.it" if slot in _ONE_A_NAME else slot for slot in _SLOTS} | {"inside": "model.inner"}
INTERFACES: dict[str, tuple[type, str]] = {
    "hydra.launcher": (Launcher, "close, has_gpus, has_room, slots, start, stop, wait"),
    "hydra.sweeper": (Search, "next, restore, total"),
}
SLOTS = (*NODES, *INTERFACES, "hydra.sweeper.sampler", "data.source.task")
IMPORTS = {
    "name": ("from math import nothing_there", "ImportError: cannot import name 'nothing_there'", "it.py:1"),
    "syntax": ("class It:\n    def f(self:\n        pass", "SyntaxError: ", "it.py:2"),
    "package": ("\nimport nothing_installed", "No module named 'nothing_installed'", "it.py:2"),
    "raises": ("\n\nint('a')", "ValueError: invalid literal", "it.py:3"),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3", "it.py:2"),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"broken_{abs(hash(request.node.name))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


def job(key: str, path: str) -> Any:
    config = OmegaConf.create({KEY: [path.partition(".")[0]]})
    OmegaConf.update(config, key, {"_target_": path}, force_add=True)
    return config


def test_every_part_of_a_sweep_is_here() -> None:
    assert set(INTERFACES) == set(SWEEP_PARTS)


def looked_up(slot: str, package: str, text: str) -> tuple[Callable[[], Any], str]:
    """What looks the class up, and the key that is to be named."""
    Path(package, "it.py").write_text(text, encoding="utf-8")
    path = f"{package}.it.It"
    if slot in INTERFACES:
        return lambda: target({"_target_": path}, slot, INTERFACES[slot][0], [package]), f"{slot}._target_"
    if slot == "hydra.sweeper.sampler":
        return lambda: own_class(f"{slot}._target_", path, [package], BaseSampler), f"{slot}._target_"
    if slot == "data.source.task":
        return lambda: import_task(slot, path, [package]), slot
    return lambda: resolve(NODES[slot], path, [package]), f"{NODES[slot]}._target_"


@pytest.mark.parametrize("kind", IMPORTS)
@pytest.mark.parametrize("slot", SLOTS)
def test_a_module_that_cannot_be_imported(slot: str, kind: str, package: str) -> None:
    text, said, line = IMPORTS[kind]
    look, key = looked_up(slot, package, text)
    with pytest.raises(ConfigError) as caught:
        look()
    assert caught.value.key == key
    assert said in caught.value.message
    assert f"({package}/{line}" in caught.value.message
    assert ("install nothing_installed" if kind == "package" else "mend the module") in caught.value.hint


@pytest.mark.parametrize("slot", SLOTS)
def test_a_name_that_is_not_there(slot: str, package: str) -> None:
    look, key = looked_up(slot, package, "class It2: pass")
    with pytest.raises(ConfigError, match=rf"{package}.it has no 'It'") as caught:
        look()
    assert caught.value.key == key
    assert caught.value.hint == "did you mean 'It2'?"


@pytest.mark.parametrize("slot", [slot for slot in SLOTS if slot not in (*_ANY_CALL, "inside")])
def test_a_class_of_another_kind(slot: str, package: str) -> None:
    look, key = looked_up(slot, package, "class It: pass")
    with pytest.raises(ConfigError, match=r"It' is not (a|Light)") as caught:
        look()
    assert caught.value.key == key
    assert "derive" in caught.value.hint


@pytest.mark.parametrize("slot", SLOTS)
def test_a_class_with_something_left_abstract(slot: str, package: str) -> None:
    bases = {**{name: one.bases[0] for name, one in _SLOTS.items() if one.bases}, "inside": "torch.nn.Module"}
    bases |= {name: f"{one.__module__}.{one.__qualname__}" for name, (one, _) in INTERFACES.items()}
    bases |= {
        "hydra.sweeper.sampler": "optuna.samplers.BaseSampler",
        "data.source.task": "assay.task.task.Task",
    }
    base = bases.get(slot, "builtins.object")
    text = f"import abc\nimport {base.rpartition('.')[0]}\nclass It({base}, metaclass=abc.ABCMeta):\n"
    look, key = looked_up(slot, package, text + "    @abc.abstractmethod\n    def left_out(self): ...\n")
    with pytest.raises(ConfigError, match=r"left_out") as caught:
        look()
    assert caught.value.key == key
    assert caught.value.hint == "define that in It"
    for name in INTERFACES[slot][1].split(", ") if slot in INTERFACES else ():
        assert name in caught.value.message


@pytest.mark.parametrize("slot", [*NODES, *INTERFACES])
def test_a_constructor_that_raises(slot: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = _SLOTS[slot].bases[0] if slot in _SLOTS and _SLOTS[slot].bases else "builtins.object"
    text = f"import {base.rpartition('.')[0]}\nclass It({base}):\n    def __init__(self):\n"
    whole = "It.__abstractmethods__ = frozenset()"
    Path(package, "it.py").write_text(
        f"{text}        raise RuntimeError('no luck')\n{whole}", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(".")
    importlib.invalidate_caches()
    kind = importlib.import_module(f"{package}.it").It
    key = NODES.get(slot, slot)
    with pytest.raises(ConfigError, match="cannot be made") as caught:
        made(kind, {}, slot) if slot in INTERFACES else build(job(key, f"{package}.it.It"), key)
    assert caught.value.key == key
    assert "no luck" in caught.value.message
    assert f"({package}/it.py:4, in __init__)" in caught.value.message


@pytest.mark.parametrize("slot", [slot for slot in _SLOTS if slot not in _ANY_CALL])
def test_a_function_that_makes_something_else(slot: str, package: str) -> None:
    key = NODES[slot]
    Path(package, "it.py").write_text("def it(): return 3", encoding="utf-8")
    with pytest.raises(ConfigError, match="is a int; ") as caught:
        build(job(key, f"{package}.it.it"), key)
    assert caught.value.key == key
    assert _SLOTS[slot].words in caught.value.message
