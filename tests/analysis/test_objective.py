"""What a sweep is after, and a job's score for it."""

from __future__ import annotations

from assay.analysis.objective import Objective, objectives, scores_of
from assay.record.outcome import Outcome

LOSS = Objective("val/loss", "minimize")
ACCURACY = Objective("val/accuracy", "maximize")


def test_the_best_checkpoint_counts_where_the_objective_is_what_it_is_kept_by() -> None:
    outcome = Outcome(
        "finished", metrics={"val/loss": 0.5}, best={"monitor": "val/loss", "value": 0.3, "epoch": 1}
    )
    assert LOSS.score(outcome) == 0.3
    assert ACCURACY.score(outcome) is None
    assert scores_of(outcome, [LOSS]) == [0.3]
    assert scores_of(outcome, [LOSS, ACCURACY]) is None
    assert LOSS.score(Outcome("finished", metrics={"val/loss": float("nan")})) is None


def test_what_is_best_is_known_from_the_name() -> None:
    aims = objectives({"objective": ["val/loss", "val/accuracy", "train/mae"]}, {})
    assert [aim.direction for aim in aims] == ["minimize", "maximize", "minimize"]
    assert objectives({"objective": "x", "direction": "minimize"}, {}) == [Objective("x", "minimize")]
