from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from assay.targets.annotation import Made, accepts, example_of, in_words

MODULE, PARTIAL = Made(torch.nn.Linear), Made(functools.partial)
Name = typing.NewType("Name", str)


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
        (torch.nn.Module, [MODULE, Made()], ["a", 3, None, [1], {}, Made(torch.optim.SGD), PARTIAL]),
        (torch.nn.Linear, [Made(torch.nn.Linear), MODULE], [3, Made(torch.utils.data.Dataset)]),
        (torch.nn.Module | None, [None, MODULE], [True]),
        (torch.Tensor | None, [None, Made()], [[0.1], 3, MODULE]),
        (torch.utils.data.Dataset[int], [Made(torch.utils.data.TensorDataset)], ["a", MODULE]),
        (int, [Made(), Made(int)], [MODULE, PARTIAL]),
        (list[torch.nn.Module], [[], [MODULE, Made()]], [[3], [MODULE, PARTIAL]]),
        (Callable[[int], int], [MODULE, Made(), PARTIAL], [3, "relu", None, [1], {}]),
        (Callable | None, [None], [3]),
        (Literal["a"], ["a", Made()], [MODULE]),
        (Name, ["a"], [3]),
        (list[list[float]], [[[1, 2.5]], []], [[1], [["a"]]]),
        ("NotKnown", [1, "a"], []),
    ],
    ids=str,
)
def test_accepts(annotation: object, good: list[object], bad: list[object]) -> None:
    assert all(accepts(annotation, value) for value in good)
    assert not any(accepts(annotation, value) for value in bad)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "a whole number"),
        (float | int | None, "a number or null"),
        (float | torch.Tensor, "a number"),
        (bool, "true or false"),
        (Literal["min", "max"], "min or max"),
        (Literal[16, 32] | Literal["16", "bf16"] | None, "16 or 32 or bf16 or null"),
        (Sequence[int], "a list of whole numbers"),
        (tuple[float, float], "a list of 2 numbers"),
        (list, "a list of values"),
        (dict, "a mapping"),
        (list[str], "a list of texts"),
        (torch.Tensor | None, "a Tensor (a node with a _target_) or null"),
        (torch.nn.Module, "a Module (a node with a _target_)"),
        (Callable[..., int], "a function (a node with _target_ and _partial_: true)"),
        (Path, "Path"),
    ],
    ids=str,
)
def test_in_words(annotation: object, words: str) -> None:
    assert in_words(annotation) == words


@pytest.mark.parametrize(
    ("annotation", "default", "told"),
    [
        (float, 0.1, "0.1"),
        (tuple[float, float], (0.9, 0.999), "[0.9, 0.999]"),
        (bool, False, "false"),
        (int | None, None, "1"),
        (Literal["min", "max"], None, "max"),
        (torch.nn.Module, None, ""),
    ],
    ids=str,
)
def test_example(annotation: object, default: object, told: str) -> None:
    assert example_of(annotation, default) == told


@pytest.mark.parametrize(
    "kind", [torch.optim.Optimizer, torch.optim.Adam, torch.optim.lr_scheduler.LRScheduler]
)
def test_a_partial_stands_for_an_optimizer_or_scheduler_that_is_made_later(kind: type) -> None:
    assert accepts(kind, PARTIAL)
    assert accepts(kind | None, PARTIAL)
    assert not accepts(kind, MODULE)


@pytest.mark.parametrize("kind", [torch.nn.Module, torch.nn.Linear, torch.Tensor, torch.utils.data.Dataset])
def test_a_partial_stands_for_nothing_that_a_config_can_make(kind: type) -> None:
    assert not accepts(kind, PARTIAL)
