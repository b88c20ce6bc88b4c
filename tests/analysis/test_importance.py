"""Which parameters matter, where it is known."""

from __future__ import annotations

import numpy as np

from assay.analysis.statistics import importance

DRAW = np.random.default_rng(0)
LR, NOISE = DRAW.uniform(-4, -1, 60), DRAW.uniform(0, 1, 60)
MODEL = DRAW.choice(["cnn", "mlp"], 60)
CONFIGURATIONS = [
    {"noise": str(noise), "model": str(model), "lr": str(10**lr), "data": "digits"}
    for noise, model, lr in zip(NOISE, MODEL, LR, strict=True)
]


def test_what_the_score_depends_on_comes_first() -> None:
    scores = (LR + 2.5) ** 2 + 0.3 * (MODEL == "cnn")
    shares, told = importance(CONFIGURATIONS, scores.tolist())
    assert [key for key, _ in shares] == ["lr", "model", "noise"]
    assert shares[0][1] > 0.5
    assert shares[2][1] < 0.1
    assert "From 60 configurations, so rough" in told


def test_what_depends_on_nothing_is_not_explained() -> None:
    shares, told = importance(CONFIGURATIONS, np.random.default_rng(1).normal(size=60).tolist())
    assert shares == []
    assert "cannot tell the score of others" in told


def test_too_few_and_all_alike_are_said() -> None:
    shares, told = importance(CONFIGURATIONS[:9], [0.1] * 9)
    assert (shares, told) == ([], "9 finished configurations are too few: at least 10 are needed.")
    assert importance(CONFIGURATIONS, [0.1] * 60) == ([], "All finished configurations have the same score.")


def test_no_order_of_configurations_or_keys_changes_it() -> None:
    scores = ((LR + 2.5) ** 2).tolist()
    order = np.random.default_rng(2).permutation(60)
    again = [dict(reversed(CONFIGURATIONS[place].items())) for place in order]
    assert importance(again, [scores[place] for place in order]) == importance(CONFIGURATIONS, scores)
