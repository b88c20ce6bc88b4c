"""What is shown of predictions of several labels per sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Bars, Figure
from assay.task.figures.curve_figures import calibration, mean_auroc, ranking_figures
from assay.task.prediction.prediction import is_on
from assay.task.score import bootstrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Predictions
    from assay.task.score import Score

_MOST_BARS: Final = 30
_MOST_CURVES: Final = 8


def label_scores(predictions: Predictions) -> list[Score]:
    """F1, accuracy over all labels, exact matches and AUROC; see `is_on`.

    Args:
        predictions: One probability per label, with targets.
    """
    said, targets = _decided(predictions)
    right = said == targets
    whole, each = right.all(1), right.mean(1)
    true = (said & targets).astype(float)
    both = said.astype(float) + targets
    auroc = mean_auroc(predictions.outputs, targets)

    def statistic(weights: NDArray[Any]) -> Mapping[str, float]:
        total = weights.sum()
        hits, sizes = weights @ true, weights @ both
        with np.errstate(divide="ignore", invalid="ignore"):
            f1 = np.where(sizes > 0, 2 * hits / sizes, 0)
            micro = 2 * hits.sum() / sizes.sum()
        return {
            "f1 (macro)": float(f1.mean()),
            "f1 (micro)": float(micro),
            "accuracy": float(weights @ each / total),
            "exact match": float(weights @ whole / total),
            "auroc (macro)": auroc(weights),
        }

    return bootstrapped(statistic, len(targets))


def label_figures(predictions: Predictions) -> list[Figure]:
    """Scores and errors per label, ROC, precision and recall, calibration.

    Args:
        predictions: One probability per label, with targets.
    """
    from sklearn.metrics import (  # type: ignore[import-untyped]  # it has no stubs
        precision_recall_fscore_support,
    )

    said, targets = _decided(predictions)
    names = predictions.class_names or tuple(str(label) for label in range(said.shape[1]))
    precision, recall, f1, support = precision_recall_fscore_support(targets, said, zero_division=0.0)
    worst = np.argsort(f1, kind="stable")
    shown = np.arange(len(names)) if len(names) <= _MOST_BARS else worst[:_MOST_BARS]
    some = len(shown) < len(names)
    caption = f"The {_MOST_BARS} of {len(names)} labels with the lowest F1." if some else ""
    labels = [names[label] for label in shown]

    def bars(name: str, values: NDArray[Any]) -> Bars:
        written = [f"{100 * one:.2f} %" if values.dtype.kind == "f" else f"{one:,}" for one in values]
        texts = [f"{names[at]}: {name} {written[at]}, on in {support[at]:,} samples" for at in shown]
        return Bars(name, labels, values[shown], texts=texts)

    scores = tuple(bars(*one) for one in (("precision", precision), ("recall", recall), ("F1", f1)))
    errors = (
        bars("said, but is not", (said & ~targets).sum(0)),
        bars("is, but was not said", (~said & targets).sum(0)),
    )
    curves = np.sort(worst[:_MOST_CURVES])
    decisions = [(names[label], targets[:, label], predictions.outputs[:, label]) for label in curves]
    wide = len(labels) > 6
    return [
        Figure(
            "per_label",
            "Precision, recall and F1 per label",
            scores,
            shares="y",
            y_range=(0, 1.02),
            is_wide=wide,
            caption=caption,
        ),
        Figure("label_errors", "Errors per label", errors, y_label="samples", is_wide=wide, caption=caption),
        *ranking_figures(decisions, "" if len(curves) == len(names) else "the labels with the lowest F1"),
        *calibration(
            predictions.outputs.astype(float).ravel(),
            targets.ravel(),
            "of a label, all labels together",
            ("is on", "is off"),
        ),
    ]


def _decided(predictions: Predictions) -> tuple[NDArray[Any], NDArray[Any]]:
    if predictions.targets is None:
        raise ValueError("there are no targets to compare with")
    return is_on(predictions.outputs), predictions.targets.astype(bool)
