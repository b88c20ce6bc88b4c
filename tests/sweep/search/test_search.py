"""Grids, random draws and search spaces, against Hydra's own sweeper and scipy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # scipy ships no types

from assay.compose.compose import loader
from assay.errors import ConfigError
from assay_sweep.search.grid import GridSearch
from assay_sweep.search.random import RandomSearch, draw
from assay_sweep.search.search import Choice, Numbers, read_space

if TYPE_CHECKING:
    from assay_sweep.search.search import Proposal, Search


def every(search: Search) -> list[Proposal]:
    return list(iter(search.next, None))


def jobs(search: Search) -> list[list[str]]:
    return [list(proposal.overrides) for proposal in every(search)]


def hydras(lines: list[str]) -> list[list[str]]:
    parsed = OverridesParser.create().parse_overrides(lines)
    return [list(job) for job in BasicSweeper.split_arguments(parsed, None)[0]]


LINE = st.sampled_from(
    [
        "h='q q'",
        *["a=1,2", "a=3", "b=x,y,z", "+c=choice(1,2)", "d.e=range(3)", "f@g=u,v", "seed=1,2", "a=[1,2],[3]"],
    ]
)


@given(lines=st.lists(LINE, max_size=5, unique_by=lambda line: line.partition("=")[0].lstrip("+")))
def test_jobs_are_hydras(lines: list[str]) -> None:
    search = GridSearch(lines)
    assert search.total == len(hydras(lines))
    assert jobs(search) == hydras(lines)


def test_params_come_first_and_the_command_line_wins() -> None:
    search = GridSearch(["b=9", "c=5,6"], params={"a": "1,2", "b": "choice(3,4)"})
    assert jobs(search) == hydras(["a=1,2", "b=choice(3,4)", "b=9", "c=5,6"])


def test_what_is_typed_replaces_a_stored_sweep_however_it_is_typed() -> None:
    assert jobs(GridSearch(["++a=1,2"], params={"a": "3,4", "b": "5"})) == [
        ["b=5", "++a=1"],
        ["b=5", "++a=2"],
    ]


@pytest.mark.parametrize(
    "lines", [["a=1,2", "a=3"], ["a=1,2", "a=2,3"], ["a=1,2", "+a=range(3)"], ["a=1,2", "~a"]]
)
def test_a_sweep_is_not_dropped_for_another_word_of_its_key(lines: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"a: {lines[0]} would have no effect, as this key is typed again"):
        GridSearch(lines)


def test_values_that_are_typed_twice_are_hydras() -> None:
    assert jobs(GridSearch(["a=1", "b=9", "a=2", "b=1,2"])) == hydras(["a=1", "b=9", "a=2", "b=1,2"])
    assert jobs(GridSearch(["~c", "+c=3"])) == [["~c", "+c=3"]]


def test_a_deletion_stays_one() -> None:
    assert jobs(GridSearch(["~callbacks.ema", "a=1,2"])) == [
        ["~callbacks.ema", "a=1"],
        ["~callbacks.ema", "a=2"],
    ]


def test_glob_lists_the_options_of_a_group() -> None:
    with loader() as hydra:
        search = GridSearch(["augment=glob(mix*)"], config_loader=hydra.config_loader)
    assert jobs(search) == [["augment=mixup"], ["augment=mixup_or_cutmix"]]


DRAWN = {"lr": "tag(log, interval(1e-5, 1e-1))", "width": "range(8,65,8)", "opt": "sgd,adamw"}
MANY = 4000


def values(search: RandomSearch, key: str) -> list[str]:
    return [one.removeprefix(f"{key}=") for job in jobs(search) for one in job if one.startswith(f"{key}=")]


def test_a_further_parameter_leaves_the_others_as_they_were() -> None:
    more = RandomSearch([], params={"first": "interval(0,1)", **DRAWN}, num_samples=9)
    fewer = values(RandomSearch([], params=DRAWN, num_samples=5), "lr")
    assert values(more, "lr")[:5] == fewer, "so does a longer sweep"


def test_numbers_are_pinned() -> None:
    """They are the same in every version, or a sweep could not be resumed after an update."""
    drawn = [draw(Numbers("lr", 0.0, 1.0), 0, n) for n in range(3)]
    assert drawn == pytest.approx([0.3989582531343857, 0.3672359278073576, 0.07392656685771148], abs=1e-15)


def test_the_logarithm_of_a_log_interval_is_uniform() -> None:
    low, high = 1e-5, 1e-1
    p_values = []
    for log in (True, False):
        drawn = [draw(Numbers("lr", low, high, log=log), 3, n) for n in range(MANY)]
        p_values.append(stats.kstest(drawn, "loguniform", (low, high)).pvalue)
    assert p_values[0] > 0.01
    assert p_values[1] < 1e-9, "the test can tell"


@pytest.mark.parametrize(
    ("dimension", "options"),
    [(Choice("c", ("a", "b", "c")), 3), (Numbers("n", 8, 64, 8, integer=True), 8)],
)
def test_each_value_is_as_likely(dimension: Choice | Numbers, options: int) -> None:
    counts = Counter(draw(dimension, 1, n) for n in range(MANY))
    assert len(counts) == options
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_each_sample_runs_once_a_seed() -> None:
    found = jobs(RandomSearch(["seed=1,2"], params=DRAWN, num_samples=3))
    assert len(found) == 6
    assert [job[:3] for job in found[::2]] == [job[:3] for job in found[1::2]]
    assert [job[3] for job in found[:2]] == ["seed=1", "seed=2"]


def test_one_point_cannot_be_drawn() -> None:
    with pytest.raises(ConfigError, match="nothing to search"):
        RandomSearch(["a=1"])


WHOLE = st.integers(-50, 50)


def listed(line: str) -> list[str]:
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
    assert sorted(only(text).values) == sorted(listed(f"x={text}"))


@given(start=WHOLE, length=st.integers(1, 30), step=st.integers(1, 7))
def test_a_whole_range_is_hydras(start: int, length: int, step: int) -> None:
    text = f"range({start},{start + length},{step})"
    assert points(only(text)) == listed(f"x={text}")


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
    fixed = {"a": 5, "b": None, "c": [1, 2], "d": True, "e": "two words", "g.h": 0.5}
    job = read_space(["x=1,2", "~f"], fixed).job({"x": 1})
    parsed = OverridesParser.create().parse_overrides(list(job))
    values = {one.key_or_group: one.value() for one in parsed if not one.is_delete()}
    assert values == {**fixed, "x": 1}
    assert job[-1] == "~f"


@pytest.mark.parametrize(
    ("params", "overrides", "says"),
    [
        ({"x": "interval(1,0)"}, [], "x: there is no number from 1.0 to 0.0"),
        ({"x": "tag(int, interval(1.2,1.8))"}, [], "x: there is no number from 1.2 to 1.8"),
        ({"x": "tag(log, interval(0,1))"}, [], "logarithmic scale cannot start at 0"),
        ({"x": "tag(lgo, interval(1,2))"}, [], "no tag 'lgo'; did you mean 'log'"),
        ({"x": "interval(1)"}, [], r"hydra.sweeper.params.x: x=interval\(1\) cannot be parsed: missing"),
        ({"x": "uniform(0,1)"}, [], r"cannot be parsed: Unknown function 'uniform'\n.*interval\(0.1,1\)"),
        ({"x": "range(3,3)"}, [], "has no values"),
        ({"x": "range(0,1,0)"}, [], "has no values"),
        ({"x": "tag(log, range(0,3))"}, [], "whole numbers above 0"),
        ({"x": "1,range(3)"}, [], "a sweep among values"),
        ({}, ["seed=interval(0,1)"], "a seed is not a number to search for"),
        ({}, ["x=("], "cannot be parsed"),
    ],
)
def test_what_is_no_space(params: dict[str, Any], overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_space(overrides, params)
