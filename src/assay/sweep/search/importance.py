"""Which parameters of a study matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

_LEAST = 10
"""Trials below which a forest over them says nothing."""


def importance(study: optuna.Study) -> list[tuple[str, float]]:
    """Share of the first score's variance that each parameter explains, by fANOVA (Hutter et al., ICML 2014).

    The largest first; none of fewer than ten trials, or where all have the same score.
    """
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    from assay.callbacks.optuna_study import no_news

    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(done) < _LEAST or len({trial.values[0] for trial in done}) < 2:
        return []
    with no_news():
        try:
            shares = get_param_importances(
                study,
                evaluator=FanovaImportanceEvaluator(seed=0),
                target=lambda trial: float(trial.values[0]),
            )
        except (ValueError, RuntimeError):
            return []
    return sorted(((name, float(share)) for name, share in shares.items()), key=lambda one: (-one[1], one[0]))
