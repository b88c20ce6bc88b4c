"""Grids, against Hydra's basic sweeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from assay.compose.compose import loader
from assay.errors import ConfigError
from assay.record.outcome import Outcome
from assay.sweep.search.grid import GridSearch

if TYPE_CHECKING:
    from assay.sweep.search.search import Proposal


def every(search: GridSearch) -> list[Proposal]:
    found = []
    while (proposal := search.next()) is not None:
        found.append(proposal)
    return found


def jobs(search: GridSearch) -> list[list[str]]:
    return [list(proposal.overrides) for proposal in every(search)]


def hydras(lines: list[str]) -> list[list[str]]:
    parsed = OverridesParser.create().parse_overrides(lines)
    return [list(job) for job in BasicSweeper.split_arguments(parsed, None)[0]]


LINE = st.sampled_from(
    [
        "a=1,2",
        "a=3",
        "b=x,y,z",
        "+c=choice(1,2)",
        "d.e=range(3)",
        "f@g=u,v",
        "seed=1,2",
        "h='q q'",
        "a=[1,2],[3]",
    ]
)


@given(lines=st.lists(LINE, max_size=5))
def test_jobs_are_hydras(lines: list[str]) -> None:
    search = GridSearch(lines)
    assert search.total == len(hydras(lines))
    assert jobs(search) == hydras(lines)


def test_params_come_first_and_the_command_line_wins() -> None:
    search = GridSearch(["b=9", "c=5,6"], params={"a": "1,2", "b": "choice(3,4)"})
    assert jobs(search) == hydras(["a=1,2", "b=choice(3,4)", "b=9", "c=5,6"])


def test_a_deletion_stays_one() -> None:
    assert jobs(GridSearch(["~callbacks.ema", "a=1,2"])) == [
        ["~callbacks.ema", "a=1"],
        ["~callbacks.ema", "a=2"],
    ]


def test_glob_lists_the_options_of_a_group() -> None:
    with loader() as hydra:
        search = GridSearch(["augment=glob(mix*)"], config_loader=hydra.config_loader)
    assert jobs(search) == [["augment=mixup"], ["augment=mixup_or_cutmix"]]


def test_zipped_values_move_together() -> None:
    search = GridSearch(["lr=1,2,3", "seed=7,8", "width=x,y,z"], zip=[["lr", "width"]])
    assert jobs(search) == [
        ["lr=1", "seed=7", "width=x"],
        ["lr=1", "seed=8", "width=x"],
        ["lr=2", "seed=7", "width=y"],
        ["lr=2", "seed=8", "width=y"],
        ["lr=3", "seed=7", "width=z"],
        ["lr=3", "seed=8", "width=z"],
    ]


def test_zipped_keys_may_be_added_ones() -> None:
    assert jobs(GridSearch(["+a=1,2", "b=3,4"], zip=[["a", "b"]])) == [["+a=1", "b=3"], ["+a=2", "b=4"]]


@pytest.mark.parametrize(
    ("lines", "zipped", "says"),
    [
        (["lr=1,2", "width=1,2,3"], [["lr", "width"]], "lr has 2 and width has 3"),
        (["lr=1,2"], [["lr", "widht"]], "widht is not swept"),
        (["optimizer.lr=1,2", "b=1,2"], [["optimizer.rl", "b"]], "did you mean 'optimizer.lr'"),
        (["a=1,2", "b=1,2", "c=1,2"], [["a", "b"], ["b", "c"]], "b is zipped twice"),
        (["a=interval(0,1)"], [], "a: a grid cannot list every number from 0.0 to 1.0"),
    ],
)
def test_what_cannot_be_listed(lines: list[str], zipped: list[list[str]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        GridSearch(lines, zip=zipped)


def test_an_interval_says_what_to_type() -> None:
    with pytest.raises(ConfigError) as caught:
        GridSearch([], params={"lr": "interval(0, 1)"})
    assert "hydra/sweeper=random" in caught.value.hint


def test_a_resumed_grid_lists_what_is_missing() -> None:
    known: list[Any] = [
        (one.token, Outcome("finished"), None) for one in every(GridSearch(["a=1,2,3", "b=1,2"]))[:4]
    ]
    search = GridSearch(["a=1,2,3", "b=1,2"])
    search.restore(known)
    assert jobs(search) == [["a=3", "b=1"], ["a=3", "b=2"]]


def test_an_edited_grid_adds_its_new_jobs_alone() -> None:
    known: list[Any] = [(one.token, None, None) for one in every(GridSearch(["a=1,2", "b=1"]))]
    search = GridSearch(["a=2,3", "b=1"])
    search.restore(known)
    assert jobs(search) == [["a=3", "b=1"]]


def test_a_job_that_is_listed_twice_runs_twice() -> None:
    known: list[Any] = [(every(GridSearch(["a=1,1"]))[0].token, None, None)]
    search = GridSearch(["a=1,1"])
    search.restore(known)
    assert jobs(search) == [["a=1"]]
