"""Calling what a config describes, against Hydra's own `instantiate`."""

from __future__ import annotations

import copy
import functools
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import hydra.utils
import pytest
import torch
from hydra.errors import InstantiationException
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, ListConfig, OmegaConf

from assay.errors import ConfigError
from assay.targets.annotation import NestedTarget, accepts
from assay.targets.resolve import CallError, instantiate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWN = "instantiated_by_assay"
SOURCE = """
from assay.errors import DataError

class Made:
    def __init__(self, *args, **named):
        self.args, self.named = args, named

def values(*args, **named):
    return [*args, named]

def fail(*args, **named):
    raise ValueError("too much")

def tell(*args, **named):
    raise DataError("told already")

def leave(*args, **named):
    raise SystemExit(3)
"""


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder: Path = tmp_path_factory.mktemp("own")
    (folder / f"{OWN}.py").write_text(SOURCE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop(OWN, None)


def form(value: Any) -> Any:
    """What was built, down to the kind of each container, so that it can be compared."""
    if type(value).__name__ in ("partial", "_DeferredTarget"):  # the latter is Hydra's
        return "partial", value.func.__name__, form(list(value.args)), form(dict(value.keywords))
    if type(value).__name__ == "Made":
        return "Made", form(list(value.args)), form(value.named)
    if isinstance(value, dict | DictConfig):
        return type(value).__name__, {name: form(inner) for name, inner in value.items()}
    if isinstance(value, list | ListConfig):
        return type(value).__name__, [form(inner) for inner in value]
    return type(value).__name__, value


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, "text", "1", ""])


def mappings(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(["a", "b", "c"]), children, max_size=3)


def nodes(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    words = st.fixed_dictionaries(
        {"_target_": st.sampled_from([f"{OWN}.Made", f"{OWN}.values"])},
        optional={
            "_args_": st.lists(children, max_size=3),
            "_partial_": st.booleans(),
            "_recursive_": st.booleans(),
            "_convert_": st.sampled_from(["none", "partial", "object", "all"]),
        },
    )
    return st.builds(lambda said, rest: {**rest, **said}, words, mappings(children))


TREES = st.recursive(
    SCALARS,
    lambda children: st.lists(children, max_size=3) | mappings(children) | nodes(children) | nodes(children),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(nodes(TREES) | mappings(TREES) | st.lists(TREES, max_size=3))
def test_it_builds_what_hydra_builds(tree: Any) -> None:
    before = copy.deepcopy(tree)
    convert = tree.get("_convert_", "all") if isinstance(tree, dict) else "all"  # Hydra's default is none
    assert form(instantiate(tree, "", [OWN])) == form(
        hydra.utils.instantiate(OmegaConf.create(tree), _convert_=convert)
    )
    assert tree == before


def called(tree: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Key and node of every target that a tree calls at once."""
    if isinstance(tree, list):
        for index, inner in enumerate(tree):
            yield from called(inner, f"{key}[{index}]")
    elif isinstance(tree, dict):
        if "_target_" in tree and not tree.get("_partial_"):
            yield key, tree
        if "_target_" not in tree or tree.get("_recursive_", True):
            for name, inner in tree.items():
                yield from called(inner, f"{key}.{name}")


@settings(max_examples=100, deadline=None)
@given(nodes(TREES))
def test_the_error_names_the_node_whose_call_failed(tree: dict[str, Any]) -> None:
    for number, (key, _) in enumerate(called(tree, "model")):
        broken = copy.deepcopy(tree)
        dict(called(broken, "model"))[key]["_target_"] = f"{OWN}.fail"
        with pytest.raises(CallError, match="too much") as caught:
            instantiate(broken, "model", [OWN])
        assert caught.value.key == key
        assert isinstance(caught.value.__cause__, ValueError)
        if number == 0:
            with pytest.raises((InstantiationException, ValueError), match="too much"):  # as Hydra 1.4 does
                hydra.utils.instantiate(OmegaConf.create(broken))


@pytest.mark.parametrize("partial", [False, True])
def test_finished_objects_reach_the_call_as_they_are(partial: bool) -> None:
    things = {"_target_": "os.system"}  # no config: nobody looks into it
    callbacks = [object()]
    node = {"_target_": f"{OWN}.Made", "_partial_": partial, "a": 1, "b": 2}
    built = instantiate(node, "x", [OWN], b=callbacks, things=things)
    named = built.keywords if partial else built.named
    assert named["b"] is callbacks
    assert named["things"] is things
    assert named["a"] == 1


@pytest.mark.parametrize(
    ("node", "key"),
    [
        ({"_target_": "os.system", "_args_": ["true"]}, "model._target_"),
        ({"_target_": f"{OWN}x.Made"}, "model._target_"),
        ({"_target_": {"_target_": f"{OWN}.Made"}}, "model._target_"),
        (
            {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "os.getcwd"}]},
            "model._args_[0]._target_",
        ),
        ({"_target_": f"{OWN}.Made", "_partial_": "yes"}, "model._partial_"),
        ({"_target_": f"{OWN}.Made", "_recursive_": 0}, "model._recursive_"),
        ({"_target_": f"{OWN}.Made", "_convert_": "some"}, "model._convert_"),
        ({"_target_": f"{OWN}.Made", "_args_": "abc"}, "model._args_"),
        ({"_target_": f"{OWN}.Made", "a": [{"_convert_": 1}]}, "model.a[0]._convert_"),
    ],
    ids=str,
)
def test_what_is_refused(node: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        instantiate(node, "model", [OWN])
    assert caught.value.key == key


MODULE, PARTIAL = NestedTarget(torch.nn.Linear), NestedTarget(functools.partial)
Name = typing.NewType("Name", str)
MADE_LATER: list[type] = [torch.optim.Optimizer, torch.optim.Adam, torch.optim.lr_scheduler.LRScheduler]


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (int, [0, -1], [1.0, True, "1", None, [1]]),
        (float, [0.5, 1], [True, "1", None, [1.0]]),
        (bool, [True, False], [0, 1, "true", None]),
        (str, ["", "a"], [1, None, ["a"]]),
        (type(None), [None], [0, "", False]),
        (int | None, [1, None], [1.5, "x"]),
        (typing.Optional[float], [1, 0.5, None], ["x"]),  # noqa: UP045 - Lightning writes it so
        (float | torch.Tensor, [0.1, 1], ["fast", None, [0.1]]),
        (Literal["min", "max"], ["min", "max"], ["best", None, 1]),
        (Literal[16, 32], [16], ["16", True]),
        (list[int], [[], [1, 2]], [1, [1, "a"], "12", {}]),
        (Sequence[float], [[0.5, 1]], ["text", [None]]),
        (tuple[float, float], [[0.9, 0.99]], [[0.9], [1, 2, 3], 3]),
        (tuple[int, ...], [[], [1, 2, 3]], [["a"], 3]),
        (dict[str, int], [{}, {"a": 1}], [[], "a", 1]),
        (Mapping[str, Any], [{}], [[1], "a"]),
        (Any, [None, 1, "a", [1], {}], []),
        (object, [None, 1, {}], []),
        (
            torch.nn.Module,
            [MODULE, NestedTarget()],
            ["a", 3, None, [1], {}, NestedTarget(torch.optim.SGD), PARTIAL],
        ),
        (
            torch.nn.Linear,
            [NestedTarget(torch.nn.Linear), MODULE],
            [3, NestedTarget(torch.utils.data.Dataset), PARTIAL],
        ),
        (torch.nn.Module | None, [None, MODULE], [True]),
        (torch.Tensor | None, [None, NestedTarget()], [[0.1], 3, MODULE, PARTIAL]),
        (
            torch.utils.data.Dataset[int],
            [NestedTarget(torch.utils.data.TensorDataset)],
            ["a", MODULE, PARTIAL],
        ),
        *((kind, [PARTIAL], [MODULE]) for kind in MADE_LATER),
        *((kind | None, [PARTIAL, None], [MODULE]) for kind in MADE_LATER),
        (int, [NestedTarget(), NestedTarget(int)], [MODULE, PARTIAL]),
        (list[torch.nn.Module], [[], [MODULE, NestedTarget()]], [[3], [MODULE, PARTIAL]]),
        (Callable[[int], int], [MODULE, NestedTarget(), PARTIAL], [3, "relu", None, [1], {}]),
        (Callable | None, [None], [3]),
        (Literal["a"], ["a", NestedTarget()], [MODULE]),
        (Name, ["a"], [3]),
        (list[list[float]], [[[1, 2.5]], []], [[1], [["a"]]]),
        ("NotKnown", [1, "a"], []),
    ],
    ids=str,
)
def test_accepts(annotation: object, good: list[object], bad: list[object]) -> None:
    assert all(accepts(annotation, value) for value in good)
    assert not any(accepts(annotation, value) for value in bad)
