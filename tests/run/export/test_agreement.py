"""What counts as the same, against scikit-learn and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import (  # type: ignore[import-untyped]  # ships no types
    accuracy_score,
    root_mean_squared_error,
)

from assay.errors import AssayError
from assay.run.export.agreement import LABELS, TOLERANCE, compare
from assay.task.task_of import task_of

CLASSES, LABELLED = task_of("multiclass").labels, task_of("multilabel").labels
DRAW = np.random.default_rng(0)
SHARES = DRAW.dirichlet([1, 1, 1], 2000).astype(np.float32)
SHARES.sort(axis=1)


def test_scores_of_classes() -> None:
    targets = DRAW.integers(0, 3, 2000)
    measured = compare(SHARES, SHARES + 5e-5, targets, kind="probabilities", labels=CLASSES)
    assert measured.largest_difference == pytest.approx(5e-5, rel=1e-2)
    assert (measured.tolerance, measured.same_labels) == (TOLERANCE, 1)
    assert measured.accuracy == measured.exported_accuracy == accuracy_score(targets, SHARES.argmax(1))


def test_errors_of_values_and_a_tolerance_in_their_unit() -> None:
    prices = DRAW.normal(300_000, 50_000, (500, 2)).astype(np.float32)
    targets = prices + DRAW.normal(0, 1000, prices.shape).astype(np.float32)
    measured = compare(prices, prices + 10, targets, kind="values", labels=LABELLED)
    assert measured.error == pytest.approx(root_mean_squared_error(targets.ravel(), prices.ravel()), rel=1e-5)
    assert measured.tolerance == pytest.approx(TOLERANCE * prices.max())
    with pytest.raises(AssayError, match="differs from the original's by 100"):
        compare(prices, prices + 100, targets, kind="values", labels=LABELLED)


def test_labels_that_differ() -> None:
    other = SHARES.copy()
    changed = int(len(other) * (1 - LABELS)) + 1
    other[:changed] = other[:changed, ::-1]
    with pytest.raises(AssayError, match=r"same label for 99\.85 % of 2000 samples"):
        compare(SHARES, other, None, kind="probabilities", labels=CLASSES)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_is_no_small_difference(wrong: float) -> None:
    other = SHARES.copy()
    other[7, 1] = wrong
    with pytest.raises(AssayError, match="not finite where the original's are"):
        compare(SHARES, other, None, kind="probabilities", labels=CLASSES)
