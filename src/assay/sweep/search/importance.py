"""Which parameters of a study matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

_LEAST = 10
"""Trials below which a forest over them says nothing."""


def importance(study: optuna.Study, objective: int = 0) -> tuple[list[tuple[str, float]], str]:
    """Share of the score's variance that each parameter explains, by fANOVA (Hutter et al., ICML 2014).

    Returns:
        Parameters and their shares, the largest first; and why there are none, where there are none.
    """
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    from assay.callbacks.optuna_study import no_news

    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(done) < _LEAST:
        return [], f"{len(done)} finished trials are too few: at least {_LEAST} are needed"
    if len({trial.values[objective] for trial in done}) < 2:
        return [], "all finished trials have the same score"
    with no_news():
        try:
            shares = get_param_importances(
                study,
                evaluator=FanovaImportanceEvaluator(seed=0),
                target=lambda trial: float(trial.values[objective]),
            )
        except (ValueError, RuntimeError) as error:
            return [], str(error)
    shares = {name: float(share) for name, share in shares.items()}
    return sorted(shares.items(), key=lambda item: (-item[1], item[0])), ""
