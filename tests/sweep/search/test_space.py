"""Search spaces, against what Hydra's own parser and sweep iterator say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigError
from assay.sweep.search.optuna import distribution
from assay.sweep.search.space import Choice, Numbers, read_space

WHOLE = st.integers(-50, 50)


def hydras(line: str) -> list[str]:
    """What Hydra's sweeper would put on each job's command line."""
    return list(OverridesParser.create().parse_override(line).sweep_string_iterator())


def only(text: str) -> Any:
    return read_space([], {"x": text}).dimensions[0]


def points(dimension: Numbers) -> list[str]:
    count = round((dimension.high - dimension.low) / dimension.step) + 1
    return [dimension.text(dimension.low + n * dimension.step) for n in range(count)]


@pytest.mark.parametrize(
    "text",
    [
        "choice(1,2,3)",
        "a,b",
        "choice(true,false)",
        "shuffle(1,2)",
        "sort(3,1,2)",
        "choice('q q',[1,2],{a:1})",
    ],
)
def test_choices_are_as_hydra_writes_them(text: str) -> None:
    assert sorted(only(text).values) == sorted(hydras(f"x={text}"))


@given(start=WHOLE, length=st.integers(1, 30), step=st.integers(1, 7))
def test_a_whole_range_is_hydras(start: int, length: int, step: int) -> None:
    text = f"range({start},{start + length},{step})"
    assert points(only(text)) == hydras(f"x={text}")


@given(start=WHOLE, length=st.integers(1, 30), step=st.integers(1, 7))
def test_a_falling_range_has_the_same_values(start: int, length: int, step: int) -> None:
    text = f"range({start},{start - length},{-step})"
    assert points(only(text)) == sorted(hydras(f"x={text}"), key=int)


@given(start=st.integers(-20, 20), count=st.integers(2, 40), digits=st.integers(1, 3))
def test_a_range_of_fractions_is_hydras(start: int, count: int, digits: int) -> None:
    step = 10.0**-digits
    text = f"range({float(start)},{start + (count - 0.5) * step},{step})"
    ours, theirs = [float(x) for x in points(only(text))], [float(x) for x in hydras(f"x={text}")]
    assert len(ours) == len(theirs)
    assert all(math.isclose(a, b, abs_tol=1e-9) for a, b in zip(ours, theirs, strict=True))


@given(low=st.floats(-1e6, 1e6), size=st.floats(0, 1e6))
def test_an_interval_has_hydras_ends(low: float, size: float) -> None:
    assert only(f"interval({low!r},{low + size!r})") == Numbers("x", low, low + size)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval(0, 1)", Numbers("x", 0.0, 1.0)),  # numbers with a point, as Hydra reads it
        ("tag(log, interval(1e-5, 1e-1))", Numbers("x", 1e-5, 1e-1, log=True)),
        ("int(interval(1, 9))", Numbers("x", 1, 9, 1.0, integer=True)),
        ("tag(int, interval(0.5, 9.5))", Numbers("x", 1, 9, 1.0, integer=True)),
        ("int(tag(log, interval(1, 100)))", Numbers("x", 1, 100, log=True, integer=True)),
        ("tag(log, range(1, 65))", Numbers("x", 1, 64, log=True, integer=True)),
        ("float(range(1, 3))", Numbers("x", 1.0, 2.0, 1.0)),
        ("shuffle(range(4))", Numbers("x", 0, 3, 1.0, integer=True)),
    ],
)
def test_numbers(text: str, expected: Numbers) -> None:
    assert only(text) == expected


def test_the_command_line_wins_over_the_node() -> None:
    space = read_space(["a=1", "b=x,y"], {"a": "interval(0,1)", "b": "1,2", "c": "3,4"})
    assert space.entries == ("a=1", Choice("b", ("x", "y")), Choice("c", ("3", "4")))


def test_values_that_are_no_sweep_are_fixed() -> None:
    space = read_space(["~f"], {"a": 5, "b": None, "c": [1, 2], "d": True, "e": "two words", "g.h": 0.5})
    parsed = OverridesParser.create().parse_overrides(list(space.job({})))
    values = {one.key_or_group: one.value() for one in parsed if not one.is_delete()}
    assert values == {"a": 5, "b": None, "c": [1, 2], "d": True, "e": "two words", "g.h": 0.5}
    assert space.job({})[-1] == "~f"


def test_a_nested_node_means_its_dotted_key() -> None:
    assert read_space([], {"optimizer": {"lr": "1,2"}}).dimensions[0].key == "optimizer.lr"


def test_the_seed_is_no_parameter() -> None:
    space = read_space(["lr=interval(0,1)", "seed=range(3)"], None)
    assert [one.key for one in space.dimensions] == ["lr"]
    assert space.seeds == ("0", "1", "2")
    assert space.job({"lr": 0.5}, "2") == ("lr=0.5", "seed=2")


def test_what_a_job_is_given_parses_back_to_the_same_number() -> None:
    for value in (1e-05, 1e-12, 0.1, 12345.678, 1e20, 0.30000000000000004):
        text = Numbers("x", 0, 1).text(value)
        assert OverridesParser.create().parse_override(f"x={text}").value() == value


@pytest.mark.parametrize(
    ("params", "overrides", "says"),
    [
        ({"x": "interval(1,0)"}, [], "x: there is no number from 1.0 to 0.0"),
        ({"x": "tag(int, interval(1.2,1.8))"}, [], "x: there is no number from 1.2 to 1.8"),
        ({"x": "tag(log, interval(0,1))"}, [], "logarithmic scale cannot begin at 0"),
        ({"x": "tag(lgo, interval(1,2))"}, [], "no tag 'lgo'; did you mean 'log'"),
        ({"x": "interval(1)"}, [], r"hydra.sweeper.params.x: x=interval\(1\) cannot be parsed"),
        ({"x": "range(3,3)"}, [], "has no values"),
        ({"x": "tag(log, range(0,3))"}, [], "whole numbers above 0"),
        ({"x": "1,range(3)"}, [], "a sweep among values"),
        ({"x": "glob(*)"}, [], "glob"),
        ({}, ["seed=interval(0,1)"], "a seed is not a number to search for"),
        ({}, ["x=("], "cannot be parsed"),
    ],
)
def test_what_is_no_space(params: dict[str, Any], overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_space(overrides, params)


@given(low=st.integers(1, 100), size=st.integers(0, 100), log=st.booleans())
def test_optuna_gets_the_same_whole_numbers(low: int, size: int, log: bool) -> None:
    text = f"int(interval({low},{low + size}))"
    got: Any = distribution(only(f"tag(log,{text})" if log else text))
    assert (type(got).__name__, got.low, got.high, got.log) == ("IntDistribution", low, low + size, log)


def test_optuna_gets_the_same_steps() -> None:
    got: Any = distribution(only("range(0, 1, 0.1)"))
    assert (got.low, got.high, got.step) == (0.0, 0.9, 0.1)
    assert distribution(only("a,b")).choices == ("a", "b")  # type: ignore[attr-defined]  # a categorical one
