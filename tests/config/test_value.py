from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.config.serialize import check_choice, check_whole_number, is_number, is_whole, shown, value_of
from assay.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "whole", "number"),
    [(3, True, True), (-1, True, True), (3.0, False, True), (float("nan"), False, True)]
    + [(wrong, False, False) for wrong in (True, False, None, "3", [3])],
)
def test_numbers(value: Any, whole: bool, number: bool) -> None:
    assert is_whole(value) is whole
    assert is_number(value) is number


@pytest.mark.parametrize(("value", "least", "most"), [(0, 0, None), (7, 1, 7), (10**9, 1, None), (-1, -1, 5)])
def test_a_whole_number_in_its_range(value: int, least: int, most: int | None) -> None:
    check_whole_number("seed", value, least, most)


@pytest.mark.parametrize("value", [-1, 8, 1.0, True, "1", None, [1]])
def test_anything_else(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        check_whole_number("seed", value, 0, 7)
    assert (refused.value.key, refused.value.hint) == ("seed", "seed=0")
    assert refused.value.message.endswith(
        f"{'null' if value is None else value} was given; a whole number from 0 to 7 was expected"
    )
    with pytest.raises(ConfigError, match="of at least 0 was expected"):
        check_whole_number("seed", -1, 0)


@pytest.mark.parametrize("value", [None, "min", True, 1])
def test_one_of_the_choices(value: Any) -> None:
    check_choice("mode", value, ("min", "max", True, 1))


@pytest.mark.parametrize(("value", "choices"), [(1, (True,)), (True, (1, "min")), ("mim", ("min", "max"))])
def test_another_word(value: Any, choices: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        check_choice("mode", value, choices)
    assert f"{value!r} is not one of" in refused.value.message
    assert value != "mim" or "did you mean 'min'?" in refused.value.message


def test_the_value_of_a_key() -> None:
    config = OmegaConf.create(
        {"a": {"b": "${c}", "d": [1, "${c}"]}, "c": 5, "late": "${spec.n}", "not": "???"}
    )
    assert value_of(config, "a.b") == 5
    assert value_of(config, "a") == {"b": 5, "d": [1, 5]}
    for key in ("late", "no", "nothing", "nothing.at.all"):
        assert value_of(config, key) is None


def test_as_a_message_names_it() -> None:
    assert [shown(value) for value in (None, 1.5, "x", True)] == ["null", "1.5", "x", "True"]
