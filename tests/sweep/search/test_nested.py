"""A nested search asks for inner jobs, chooses by their mean, and goes on from wherever it was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.analysis.objective import Objective
from assay.errors import ConfigError
from assay.record.outcome import Outcome
from assay.sweep.search.grid import GridSearch, NestedSearch
from assay.sweep.search.random import RandomSearch

if TYPE_CHECKING:
    from assay.sweep.search.search import Proposal, Search

TYPED = [
    "data=iris",
    "fold=range(2)",
    "inner_fold=range(3)",
    "data.split.folds=2",
    "data.split.inner_folds=3",
]
LOSS = Objective("val/loss", "minimize")
DONE = Outcome("finished")


def nested(*words: str, place: str = "hydra.sweep.dir=sweep", random: bool = False) -> NestedSearch:
    def make(overrides: list[str]) -> Search:
        return RandomSearch(overrides, num_samples=4) if random else GridSearch(overrides)

    return NestedSearch([*TYPED, *words, place], make, LOSS)  # type: ignore[arg-type]  # a list is a sequence


def score(job: tuple[str, ...]) -> float:
    """Fold 0 is best at lr=0.2 on average, though 0.1 is best in one inner fold; fold 1 at 0.1."""
    values = dict(line.split("=", 1) for line in job)
    lr, fold, inner = values["lr"], values["fold"], values["inner_fold"]
    if fold == "0":
        return {"0.1": 0.0 if inner == "0" else 9.0, "0.2": 1.0, "0.3": 2.0}[lr]
    return {"0.1": 0.5, "0.2": 0.6, "0.3": 0.7}[lr]


def drive(search: NestedSearch, most: int = 99) -> list[Proposal]:
    found: list[Proposal] = []
    while len(found) < most and (proposal := search.next()):
        found.append(proposal)
        inner = "inner_fold=null" not in proposal.overrides
        search.tell(proposal.token, DONE, [score(proposal.overrides) if inner else 0.3])
    return found


def finals(found: list[Proposal]) -> list[list[str]]:
    kept = ("lr", "fold", "seed", "inner_fold", "data.split.inner_folds")
    return [
        [line for line in one.overrides if line.partition("=")[0] in kept]
        for one in found
        if "inner_fold=null" in one.overrides
    ]


def test_inner_folds_choose_and_the_outer_fold_tests() -> None:
    search = nested("lr=0.1,0.2,0.3", "seed=4,5")
    found = drive(search)
    assert len(found) == search.total == 2 * (3 * 3 * 2 + 2)
    nothing = ["inner_fold=null", "data.split.inner_folds=null"]
    assert [sorted(one) for one in finals(found)] == [
        sorted([f"lr={lr}", f"seed={seed}", f"fold={fold}", *nothing])
        for fold, lr in ((0, "0.2"), (1, "0.1"))
        for seed in (4, 5)
    ]


@pytest.mark.parametrize("killed_after", [0, 1, 8, 9, 10, 15, 19])
def test_it_goes_on_from_where_it_was(killed_after: int) -> None:
    """Resumed from another folder, with its words in another order."""
    whole = [one.token for one in drive(nested("lr=0.1,0.2,0.3"))]
    first = nested("lr=0.1,0.2,0.3")
    before = drive(first, killed_after)
    known = [
        (one.token, DONE, [score(one.overrides)] if "inner_fold=null" not in one.overrides else [0.3])
        for one in before
    ]
    running = first.next()  # one that has not ended: the sweep runs it again itself
    again = nested("lr=0.1,0.2,0.3", place="hydra.sweep.dir=/elsewhere/sweep")
    again.restore([*known, *([(running.token, None, None)] if running else [])])
    if running:
        again.tell(
            running.token,
            DONE,
            [score(running.overrides)] if "inner_fold=null" not in running.overrides else [0.3],
        )
    after = drive(again)
    assert [one.token for one in [*before, *([running] if running else []), *after]] == whole


def test_a_configuration_with_a_failed_job_is_not_chosen() -> None:
    search = nested("lr=0.1,0.2,0.3")
    found = []
    while proposal := search.next():
        found.append(proposal)
        failed = "lr=0.2" in proposal.overrides and "inner_fold=1" in proposal.overrides
        inner = "inner_fold=null" not in proposal.overrides
        search.tell(
            proposal.token,
            Outcome("failed") if failed else DONE,
            None if failed else [score(proposal.overrides) if inner else 0.3],
        )
    assert [[line for line in one if line.startswith("lr")] for one in finals(found)] == [
        ["lr=0.3"],
        ["lr=0.1"],
    ]


def test_random_configurations_are_the_same_in_each_fold() -> None:
    search = nested("optimizer.lr=interval(0.1,1)", random=True)
    jobs = []
    while proposal := search.next():
        jobs.append(proposal.overrides)
    assert len(jobs) == 2 * 4 * 3
    rates = [{line for line in job if line.startswith("optimizer.lr")}.pop() for job in jobs]
    assert len(set(rates)) == 4
    assert set(rates[:12]) == set(rates[12:])


def test_the_jobs_that_are_checked_stand_for_all() -> None:
    samples = nested("lr=0.1,0.2,0.3").samples()
    pairs = {tuple(line for line in job if line.startswith(("fold=", "inner_fold="))) for job in samples}
    assert len(pairs) == 2 * 3 + 2
    assert {line for job in samples for line in job if line.startswith("lr=")} == {
        "lr=0.1",
        "lr=0.2",
        "lr=0.3",
    }


def test_an_objective_of_the_test_is_refused() -> None:
    with pytest.raises(ConfigError, match="inner folds choose by the validation"):
        NestedSearch(TYPED, GridSearch, Objective("test/accuracy", "maximize"))
