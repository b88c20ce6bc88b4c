"""What is shown of predictions of one class per sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Bars, Figure, Heatmap
from assay.task.figures.curve_figures import (
    Ranking,
    calibration,
    calibration_error,
    mean_auroc,
    ranking_figures,
)
from assay.task.score import bootstrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Predictions
    from assay.task.score import Score

TRUE_CLASS: Final = "true class"
"""Label of the rows of a confusion matrix."""
_COUNTS: Final = "confusion_matrix"
_MOST_IN_MATRIX: Final = 50
_MOST_BARS: Final = 30
_MOST_CURVES: Final = 10
_MOST_CONFUSIONS: Final = 10


def class_scores(predictions: Predictions) -> list[Score]:
    """Accuracy, F1 and what goes with them.

    Of two classes, precision, recall, F1 and average precision are those of the second, which their names
    say: a metric `f1` may be a mean over both. Of more, F1 and recall are means over the classes that occur
    in targets or predictions (as in scikit-learn), and AUROC that over the classes of some but not all
    targets, each against the rest; see `mean_auroc`.

    Args:
        predictions: One column per class, with targets.
    """
    outputs, targets = predictions.outputs.astype(float), _targets(predictions)
    said, num_classes = outputs.argmax(1), outputs.shape[1]
    hit = np.where(said == targets, targets, -1)
    chances = predictions.kind == "probabilities"
    loss = -np.log(np.clip(outputs[np.arange(len(targets)), targets], np.finfo(np.float32).eps, 1))
    order = Ranking(outputs[:, 1:], targets[:, None] == 1) if num_classes == 2 else None
    auroc = mean_auroc(outputs, targets[:, None] == np.arange(num_classes))
    second = f" of {predictions.class_names[1]}" if order is not None else ""

    def statistic(weights: NDArray[Any]) -> Mapping[str, float]:
        true = np.bincount(hit[hit >= 0], weights[hit >= 0], num_classes)
        are, claimed = (np.bincount(of, weights, num_classes) for of in (targets, said))
        with np.errstate(divide="ignore", invalid="ignore"):
            recall, precision = true / are, true / claimed
            f1 = 2 * true / (are + claimed)
        scores = {"accuracy": true.sum() / weights.sum()}
        if order is not None:
            [area], [average_precision] = order.scores(weights)
            scores |= {f"f1{second}": f1[1], f"precision{second}": precision[1], f"recall{second}": recall[1]}
            scores |= {"auroc": area, f"average precision{second}": average_precision}
        else:
            scores |= {"f1 (macro)": np.nanmean(f1), "balanced accuracy": np.nanmean(recall)}
            scores |= {"auroc (macro)": auroc(weights)}
        if chances:
            scores["log loss"] = (loss * weights).sum() / weights.sum()
            scores["calibration error"] = calibration_error(*_calibrated(outputs, targets), weights)
        return {name: float(value) for name, value in scores.items()}

    return bootstrapped(statistic, len(targets))


def class_figures(predictions: Predictions) -> list[Figure]:
    """Confusion matrix, scores per class, ROC, precision and recall, calibration.

    Args:
        predictions: One column per class, with targets.
    """
    from sklearn.metrics import (  # type: ignore[import-untyped]  # it has no stubs
        confusion_matrix,
        precision_recall_fscore_support,
    )

    outputs, targets = predictions.outputs, _targets(predictions)
    said, num_classes = outputs.argmax(1), outputs.shape[1]
    names = predictions.class_names or tuple(str(label) for label in range(num_classes))
    labels = np.arange(num_classes)
    matrix = confusion_matrix(targets, said, labels=labels)
    precision, recall, f1, support = precision_recall_fscore_support(
        targets, said, labels=labels, zero_division=0.0
    )
    worst = np.argsort(np.where(support > 0, f1, np.inf), kind="stable")
    figures = [
        *confusion_figures(matrix, names),
        _per_class({"precision": precision, "recall": recall, "F1": f1}, support, names, worst),
    ]
    curves = labels[1:] if num_classes == 2 else np.sort(worst[:_MOST_CURVES])
    hits = [(names[label], targets == label, outputs[:, label]) for label in curves]
    figures += ranking_figures(
        hits, "the classes with the lowest F1" if len(curves) < num_classes - 1 else ""
    )
    if predictions.kind == "probabilities":
        chances, truth = _calibrated(outputs.astype(float), targets)
        if num_classes == 2:
            figures += calibration(chances, truth, f"of {names[1]}", (names[1], names[0]))
        else:
            figures += calibration(chances, truth, "of the class that was said")
    return figures


def confusion_figures(matrix: NDArray[Any], names: tuple[str, ...], unit: str = "samples") -> list[Figure]:
    """The confusion matrix, also as shares of each target, and the most frequent confusions.

    Args:
        matrix: Counts `[C, C]`, a row per target.
        names: Of the classes.
        unit: What is counted.
    """
    return [*_matrices(matrix, names), *_confusions(matrix, names, unit)]


def _targets(predictions: Predictions) -> NDArray[Any]:
    if predictions.targets is None:
        raise ValueError("there are no targets to compare with")
    return predictions.targets


def _calibrated(outputs: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """How sure the model was, and whether it was so: of two classes of the second, else of the one said."""
    if outputs.shape[1] == 2:
        return outputs[:, 1], targets == 1
    return outputs.max(1), outputs.argmax(1) == targets


def _matrices(matrix: NDArray[Any], names: tuple[str, ...]) -> list[Figure]:
    errors = matrix.sum(0) + matrix.sum(1) - 2 * matrix.diagonal()
    caption = "Rows are what was right, columns what the model said."
    if len(names) > _MOST_IN_MATRIX:
        shown = np.sort(np.argsort(-errors, kind="stable")[:_MOST_IN_MATRIX])
        caption += f" The {_MOST_IN_MATRIX} of {len(names)} classes with the most errors."
    else:
        shown = np.arange(len(names))
    with np.errstate(invalid="ignore"):
        shares = matrix / matrix.sum(1, keepdims=True)
    chosen = tuple(names[label] for label in shown)
    wide = len(chosen) > 12
    return [
        Figure(
            name,
            title,
            (
                Heatmap(
                    values[np.ix_(shown, shown)], chosen, chosen, len(chosen) <= 16, is_share=name != _COUNTS
                ),
            ),
            "predicted class",
            TRUE_CLASS,
            is_wide=wide,
            caption=told,
        )
        for name, title, values, told in (
            (_COUNTS, "Confusion matrix", matrix, caption),
            (
                "confusion_matrix_normalised",
                "Confusion matrix, share of each true class",
                shares,
                f"{caption} Each row adds up to 100 %: the diagonal is the recall.",
            ),
        )
    ]


def _confusions(matrix: NDArray[Any], names: tuple[str, ...], unit: str) -> list[Figure]:
    """What is taken for what, where there are more than two classes to confuse."""
    wrong = matrix * (1 - np.eye(len(names), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    pairs = [divmod(int(cell), len(names)) for cell in order if wrong.flat[cell] > 0]
    if len(names) < 3 or not pairs:
        return []
    bars = Bars(
        "",
        [f"{names[target]} → {names[said]}" for target, said in pairs],
        [int(wrong[pair]) for pair in pairs],
        texts=[
            f"{names[t]} taken for {names[s]}: {wrong[t, s]:,.0f} of {matrix[t].sum():,.0f}" for t, s in pairs
        ],
    )
    return [Figure("confusions", "Most frequent confusions", (bars,), "true → predicted", unit)]


def _per_class(
    scores: dict[str, NDArray[Any]], support: NDArray[Any], names: tuple[str, ...], worst: NDArray[Any]
) -> Figure:
    shown, caption = np.arange(len(names)), ""
    if len(names) > _MOST_BARS:
        shown = worst[:_MOST_BARS]
        caption = f"The {_MOST_BARS} of {len(names)} classes with the lowest F1."
    labels = [names[label] for label in shown]
    bars = tuple(
        Bars(
            name,
            labels,
            values[shown],
            texts=[f"{names[at]}: {name} {100 * values[at]:.2f} %, {support[at]:,} samples" for at in shown],
        )
        for name, values in scores.items()
    )
    return Figure(
        "per_class",
        "Precision, recall and F1 per class",
        bars,
        shares="y",
        y_range=(0, 1.02),
        is_wide=len(labels) > 6,
        caption=caption,
    )
