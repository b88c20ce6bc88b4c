"""Studies over a plain function."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from optuna.trial import TrialState

from assay.record.run_record import Outcome
from assay_sweep.search.optuna import OptunaSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import optuna

    from assay.record.run_record import Status

SPACE = {"lr": "tag(log, interval(1e-5, 1))", "width": "range(1, 65)", "opt": "sgd,adamw"}
SAMPLERS = ("TPESampler", "NSGAIISampler", "QMCSampler", "RandomSampler")
Line = list[Any]
"""Of a journal: a proposal's token and overrides; its outcome and scores, or None."""


def sampler(name: str) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {
        "TPESampler": {"n_startup_trials": 4, "multivariate": True},
        "QMCSampler": {"warn_independent_sampling": False},
        "NSGAIISampler": {"population_size": 4},
    }
    return {"_target_": f"optuna.samplers.{name}", **more.get(name, {})}


def search(folder: Path, overrides: Sequence[str] = (), **arguments: Any) -> OptunaSearch:
    return OptunaSearch(overrides, folder, **{"params": SPACE, "num_trials": 8, **arguments})


def loss(overrides: Sequence[str]) -> float:
    given = dict(one.split("=") for one in overrides)
    seed = int(given.get("seed", 0))
    lr, width = math.log10(float(given["lr"])), int(given["width"])
    return (lr + 2) ** 2 + abs(width - 37) / 30 + (given["opt"] == "sgd") + 0.1 * seed


def done(overrides: Sequence[str]) -> tuple[Outcome, list[float] | None]:
    return Outcome("finished"), [loss(overrides)]


def ended(status: Status, **more: Any) -> Outcome:
    return Outcome(status, **more)


class Killed(BaseException):
    """The driver's end, wherever it was."""


def drive(
    one: OptunaSearch,
    journal: list[Line],
    end: Callable[[Sequence[str]], tuple[Outcome, list[float] | None]] = done,
    *,
    at_once: int = 1,
    calls: float = math.inf,
) -> None:
    """Runs a sweep as a driver would, and dies after so many calls."""
    left = calls

    def alive() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    one.restore([(token, outcome, scores) for token, _, outcome, scores in journal])
    running = [entry for entry in journal if entry[2] is None]
    shuffled = random.Random(0)
    while True:
        while len(running) < at_once:
            alive()
            proposal = one.next()
            if proposal is None:
                break
            alive()
            journal.append([proposal.token, proposal.overrides, None, None])
            running.append(journal[-1])
        if not running:
            return
        entry = running.pop(shuffled.randrange(len(running)))
        outcome, scores = end(entry[1])
        alive()
        entry[2:] = [outcome, scores]
        alive()
        one.tell(entry[0], outcome, scores)


def run(folder: Path, journal: list[Line] | None = None, at_once: int = 1, **arguments: Any) -> OptunaSearch:
    one = search(folder, **arguments)
    drive(one, [] if journal is None else journal, at_once=at_once)
    return one


def counted(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """All but those that a kill left half asked for."""
    return [one for one in study.get_trials() if len(one.params) == len(SPACE)]


def check_whole(one: OptunaSearch, journal: list[Line]) -> None:
    trials = counted(one.study)
    seeds = max(1, len(one._space.seeds))
    assert len(trials) == one._limit
    assert len(journal) == len({entry[0] for entry in journal}) == one.total == len(trials) * seeds
    assert all(trial.state == TrialState.COMPLETE for trial in trials)
    for trial in one.study.get_trials():
        assert trial.state.is_finished()
