from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # scipy ships no types

from assay.errors import ConfigError
from assay.sweep.search.random import RandomSearch, draw
from assay.sweep.search.space import Choice, Numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

SPACE = {"lr": "tag(log, interval(1e-5, 1e-1))", "width": "range(8,65,8)", "opt": "sgd,adamw"}
MANY = 4000


def jobs(search: RandomSearch) -> list[tuple[str, ...]]:
    found = []
    while (proposal := search.next()) is not None:
        found.append(proposal.overrides)
    return found


def values(search: RandomSearch, key: str) -> list[str]:
    return [one.removeprefix(f"{key}=") for job in jobs(search) for one in job if one.startswith(f"{key}=")]


def p_value(dimension: Numbers, distribution: str, arguments: Sequence[float]) -> float:
    drawn = [draw(dimension, 3, n) for n in range(MANY)]
    return float(stats.kstest(drawn, distribution, arguments).pvalue)


@given(seed=st.integers(0, 10**6), number=st.integers(0, 10**6))
def test_a_sample_is_a_function_of_seed_and_number(seed: int, number: int) -> None:
    one = Numbers("lr", 1e-5, 1e-1, log=True)
    assert draw(one, seed, number) == draw(one, seed, number)
    assert draw(one, seed, number) != draw(one, seed, number + 1)
    assert draw(one, seed, number) != draw(one, seed + 1, number)


def test_a_longer_sweep_begins_as_the_shorter_one() -> None:
    assert (
        jobs(RandomSearch([], params=SPACE, num_samples=5))
        == jobs(RandomSearch([], params=SPACE, num_samples=9))[:5]
    )


def test_a_further_parameter_leaves_the_others_as_they_were() -> None:
    more = RandomSearch([], params={"first": "interval(0,1)", **SPACE}, num_samples=5)
    assert values(more, "lr") == values(RandomSearch([], params=SPACE, num_samples=5), "lr")


def test_numbers_are_pinned() -> None:
    """They are the same in every version, or a sweep could not be resumed after an update."""
    drawn = [draw(Numbers("lr", 0.0, 1.0), 0, n) for n in range(3)]
    assert drawn == pytest.approx(PINNED, abs=1e-15)


PINNED = [0.3989582531343857, 0.3672359278073576, 0.07392656685771148]


def test_the_logarithm_of_a_log_interval_is_uniform() -> None:
    low, high = 1e-5, 1e-1
    assert p_value(Numbers("lr", low, high, log=True), "loguniform", (low, high)) > 0.01
    assert p_value(Numbers("lr", low, high), "loguniform", (low, high)) < 1e-9, "the test can tell"


def test_an_interval_is_uniform() -> None:
    assert p_value(Numbers("x", -3.0, 5.0), "uniform", (-3.0, 8.0)) > 0.01


@pytest.mark.parametrize(
    "dimension",
    [Choice("c", ("a", "b", "c")), Numbers("n", 8, 64, 8, integer=True), Numbers("i", 0, 4, 1, integer=True)],
)
def test_each_value_is_as_likely(dimension: Choice | Numbers) -> None:
    counts = Counter(draw(dimension, 1, n) for n in range(MANY))
    expected = (
        3 if isinstance(dimension, Choice) else round((dimension.high - dimension.low) / dimension.step) + 1
    )
    assert len(counts) == expected
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_whole_numbers_on_a_logarithmic_scale() -> None:
    drawn = [draw(Numbers("n", 1, 4, log=True, integer=True), 1, n) for n in range(MANY)]
    share = Counter(drawn)
    whole = math.log(4.5 / 0.5)
    for number in (1, 2, 3, 4):
        expected = math.log((number + 0.5) / (number - 0.5)) / whole
        assert share[number] / MANY == pytest.approx(expected, abs=0.03)


def test_each_sample_runs_once_a_seed() -> None:
    found = jobs(RandomSearch(["seed=1,2"], params=SPACE, num_samples=3))
    assert len(found) == 6
    assert [job[:3] for job in found[::2]] == [job[:3] for job in found[1::2]]
    assert [job[3] for job in found[:2]] == ["seed=1", "seed=2"]


def test_a_resumed_search_gives_what_is_missing() -> None:
    whole = RandomSearch(["seed=1,2"], params=SPACE, num_samples=4)
    proposals = [proposal for _ in range(8) if (proposal := whole.next()) is not None]
    known: list[Any] = [(one.token, None, None) for one in proposals[:3] + proposals[4:]]
    search = RandomSearch(["seed=1,2"], params=SPACE, num_samples=4)
    search.restore(known)
    assert jobs(search) == [proposals[3].overrides]


@pytest.mark.parametrize(
    ("overrides", "samples", "says"), [(["a=1"], 5, "nothing to search"), (["a=1,2"], 0, "at least 1")]
)
def test_what_cannot_be_drawn(overrides: list[str], samples: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RandomSearch(overrides, num_samples=samples)
