from __future__ import annotations

import optuna
import pytest

from assay.callbacks.optuna_study import no_news
from assay.sweep.search.importance import importance


def study(trials: int, *, flat: bool = False, directions: int = 1) -> optuna.Study:
    with no_news():
        made = optuna.create_study(
            directions=["minimize"] * directions, sampler=optuna.samplers.RandomSampler(0)
        )
    for _ in range(trials):
        trial = made.ask()
        much, little = trial.suggest_float("much", 0, 1), trial.suggest_float("little", 0, 1)
        value = 0.0 if flat else (much - 0.4) ** 2 + 0.01 * little
        made.tell(trial, [value, little][:directions])
    return made


def test_the_parameter_that_matters_comes_first() -> None:
    shares = importance(study(40))
    assert [name for name, _ in shares] == ["much", "little"]
    assert shares[0][1] > 0.8
    assert sum(share for _, share in shares) == pytest.approx(1)
    assert importance(study(40)) == shares, "the same study says the same"


def test_of_several_objectives_the_first_counts() -> None:
    assert importance(study(40, directions=2))[0][0] == "much"


def test_there_is_none() -> None:
    assert importance(study(9)) == []
    assert importance(study(12, flat=True)) == []
