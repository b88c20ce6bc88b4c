from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.check.signature import accepts, check_signatures, example, in_words
from assay.errors import ConfigError


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
        (Path, ["a", None, 3], []),
        (torch.nn.Module, ["a", 3], []),
        ("NotKnown", [1, "a"], []),
    ],
    ids=str,
)
def test_accepts(annotation: object, good: list[object], bad: list[object]) -> None:
    assert all(accepts(annotation, value) for value in good)
    assert not any(accepts(annotation, value) for value in bad)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_a_union_accepts_what_a_part_accepts(value: object) -> None:
    for one, two in ((int, str), (float, type(None)), (list[int], bool)):
        assert accepts(one | two, value) == (accepts(one, value) or accepts(two, value))


@given(st.lists(st.integers() | st.text()))
def test_a_list_is_judged_by_its_members(values: list[object]) -> None:
    assert accepts(list[int], values) == all(isinstance(value, int) for value in values)


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
        (dict[str, int], "a mapping"),
        (Path, "Path"),
    ],
    ids=str,
)
def test_in_words(annotation: object, words: str) -> None:
    assert in_words(annotation) == words


def refused(node: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_signatures(OmegaConf.create({"part": node}))
    return caught.value


@pytest.mark.parametrize(
    ("node", "key", "message", "hint"),
    [
        ({"_target_": "torch.optim.SGD", "lrr": 1}, "part.lrr", "did you mean 'lr'?", "it takes: params, lr"),
        ({"_target_": "torch.optim.SGD", "lr": "x"}, "part.lr", "a number was expected", "part.lr=0.001"),
        (
            {"_target_": "torch.optim.Adam", "betas": [0.9]},
            "part.betas",
            "a list of 2 numbers",
            "[0.9, 0.999]",
        ),
        ({"_target_": "torch.nn.Dropout", "p": None}, "part.p", "null was given", "part.p=0.5"),
        ({"_target_": "assay.model.mlp.MLP", "hidden": "x"}, "part.hidden", "whole numbers", "[256, 256]"),
        ({"_target_": "torch.nn.Lineer"}, "part._target_", "torch.nn has no 'Lineer'", "'Linear'"),
        ({"_target_": "nowhere.at.All"}, "part._target_", "no module 'nowhere'", "install"),
        ({"_target_": "torch.nn.Linear.x"}, "part._target_", "torch.nn.Linear has no 'x'", ""),
    ],
    ids=str,
)
def test_refused(node: dict[str, Any], key: str, message: str, hint: str) -> None:
    error = refused(node)
    assert error.key == key
    assert message in error.message
    assert hint in error.hint


def test_a_module_that_fails_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "falls_over.py").write_text("import no_such_package\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    error = refused({"_target_": "falls_over.Net"})
    assert "No module named 'no_such_package'" in error.message
    assert "--debug" in error.hint


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    refused({"_target_": "nowhere.at.All"})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1},
        {"_target_": "builtins.dict", "anything": 1},
        {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "torch.nn.Flatten"}]},
        {"_target_": "torch.nn.Linear", "in_features": "${spec.num_features}", "out_features": 1},
        {"_target_": "torch.nn.CrossEntropyLoss", "weight": {"_target_": "torch.ones", "size": [3]}},
        {"inner": [{"_target_": "torch.nn.Dropout", "p": 0.1}]},
        {"_target_": None},
    ],
    ids=str,
)
def test_fine(node: dict[str, Any]) -> None:
    if node.get("_target_", "") is not None:
        check_signatures(OmegaConf.create({"part": node}))


def test_a_default_of_none_is_taken_whatever_the_annotation_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def build(size: int = None, depth: int = 3): ...\n"
    (tmp_path / "careless.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    check_signatures(OmegaConf.create({"part": {"_target_": "careless.build", "size": None}}))
    assert refused({"_target_": "careless.build", "depth": None}).key == "part.depth"


def test_nested_targets_are_named_by_their_full_key() -> None:
    nodes = {"list": [{"_target_": "torch.nn.Dropout", "q": 0.1}]}
    assert refused(nodes).key == "part.list[0].q"


def test_what_assemble_takes_off_a_node_is_no_argument() -> None:
    scheduler = {"_target_": "torch.optim.lr_scheduler.StepLR", "interval": "epoch", "step_size": 3}
    trainer = {"_target_": "lightning.Trainer", "compile": False, "max_epochs": 3}
    check_signatures(OmegaConf.create({"scheduler": scheduler, "trainer": trainer}))
    with pytest.raises(ConfigError, match="interval"):
        check_signatures(OmegaConf.create({"other": scheduler}))


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("optimizer.lr", "for example optimizer.lr=0.001"),
        ("optimizer.nothing", ""),
        ("optimizer", ""),
        ("nowhere.lr", ""),
    ],
)
def test_example(key: str, told: str) -> None:
    config = OmegaConf.create({"optimizer": {"_target_": "torch.optim.AdamW", "lr": "x"}})
    assert example(config, key) == told
