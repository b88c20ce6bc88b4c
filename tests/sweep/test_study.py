"""A study over a launcher: pruning saves steps, a killed study ends with as many trials, seeds are one."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
import pytest

from assay.errors import ConfigError
from assay_sweep.pruning import open_storage
from assay_sweep.session import resume_sweep, start_sweep

if TYPE_CHECKING:
    from assay_sweep.summary import SweepResult
    from assay_sweep.worker.fork_client import ForkServer

CHEAP = (
    *("data=digits", "model=linear", "optimizer=sgd", "scheduler=none", "device=cpu"),
    "callbacks=[checkpoint]",
    *("trainer.max_epochs=8", "trainer.limit_train_batches=5", "trainer.limit_test_batches=0"),
    "optimizer.lr=tag(log, interval(1e-4, 10))",
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def search(name: str, trials: int, pruner: str, *more: str) -> list[str]:
    sweeper = ("hydra/sweeper=optuna", f"hydra.sweeper.num_trials={trials}", f"hydra/sweeper/pruner={pruner}")
    return [*CHEAP, *sweeper, f"hydra.sweep.dir={name}", *more]


def steps(sweep: Path) -> int:
    """Optimizer steps of all runs."""
    total = 0
    for path in sweep.glob("*/metrics.csv"):
        with path.open(newline="") as file:
            total += max(int(row["step"]) for row in csv.DictReader(file))
    return total


def best(result: SweepResult) -> float:
    scores = [
        result.objectives[0].score(one.outcome)
        for one in result.jobs
        if one.outcome and one.status == "finished"
    ]
    return min(score for score in scores if score is not None)


def trials_of(sweep: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="sweep", storage=open_storage(f"{sweep}/study.log")).trials


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_pruning_takes_fewer_steps_to_the_same_best(fork_server: ForkServer) -> None:
    trials = 20
    every = start_sweep(search("every", trials, "none"))
    pruned = start_sweep(search("pruned", trials, "median"))
    states = [entry.status for entry in pruned.jobs]
    assert states.count("pruned") >= trials // 10
    assert states.count("finished") + states.count("pruned") == trials == len(trials_of("pruned"))
    assert steps(Path("pruned")) < 0.9 * steps(Path("every"))
    # The noise is what trials of nearly the best learning rate differ by.
    scores = sorted(
        score
        for one in every.jobs
        if one.outcome and (score := every.objectives[0].score(one.outcome)) is not None
    )
    noise = statistics.pstdev(scores[: max(3, trials // 5)])
    assert best(pruned) <= best(every) + 2 * noise + 0.01


def test_the_value_of_a_trial_is_the_mean_over_its_seeds_also_once_the_study_was_made_longer(
    fork_server: ForkServer,
) -> None:
    start_sweep(search("study", 2, "none", "seed=1,2", "trainer.max_epochs=2"))
    assert len(trials_of("study")) == 2
    result = resume_sweep(Path("study"), ["hydra.sweeper.num_trials=3"])
    assert [entry.status for entry in result.jobs] == ["finished"] * 6
    assert len(trials_of("study")) == 3
    assert sorted(entry.seed for entry in result.jobs) == [1, 1, 1, 2, 2, 2]
    by_number = {entry.number: entry for entry in result.jobs}
    for trial in trials_of("study"):
        jobs = [one for one in by_number.values() if one.token.startswith(f"{trial.number}/")]
        scores = [one.outcome.best["value"] for one in jobs if one.outcome]
        assert len(scores) == 2
        assert trial.value == pytest.approx(statistics.fmean(scores), rel=1e-12)
    with Path("study/groups.csv").open(newline="") as file:
        assert [row["finished"] for row in csv.DictReader(file)] == ["2", "2", "2"]


def test_an_objective_that_nobody_measures_is_refused_before_the_first_trial(fork_server: ForkServer) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.objective: unknown metric 'val/acc'"):
        start_sweep(search("study", 3, "none", "hydra.sweeper.objective=val/acc"))
    with pytest.raises(ConfigError, match=r"model\.hiden"):
        start_sweep(search("study", 3, "none", "model.hiden=1"))
    assert not Path("study").exists()
