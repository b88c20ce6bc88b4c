"""Which parameters matter, where it is known."""

from __future__ import annotations

import numpy as np

from assay.report.sweep.columns import Column
from assay.report.sweep.importance import importance

DRAW = np.random.default_rng(0)
LR, NOISE = DRAW.uniform(-4, -1, 60), DRAW.uniform(0, 1, 60)
MODEL = DRAW.choice(["cnn", "mlp"], 60)
COLUMNS = [
    Column("noise", tuple(NOISE.tolist())),
    Column("model", tuple(MODEL.tolist())),
    Column("lr", tuple((10**LR).tolist()), is_log=True),
]


def test_what_the_score_depends_on_comes_first() -> None:
    scores = (LR + 2.5) ** 2 + 0.3 * (MODEL == "cnn")
    shares, told = importance(COLUMNS, scores.tolist())
    assert [key for key, _ in shares] == ["lr", "model", "noise"]
    assert shares[0][1] > 0.5
    assert shares[2][1] < 0.1
    assert "From 60 configurations, so rough" in told


def test_what_depends_on_nothing_is_not_explained() -> None:
    shares, told = importance(COLUMNS, np.random.default_rng(1).normal(size=60).tolist())
    assert shares == []
    assert "cannot tell the score of others" in told


def test_too_few_and_all_alike_are_said() -> None:
    shares, told = importance(COLUMNS, [0.1] * 9)
    assert (shares, told) == ([], "9 finished configurations are too few: at least 10 are needed.")
    assert importance(COLUMNS, [0.1] * 60) == ([], "All finished configurations have the same score.")
