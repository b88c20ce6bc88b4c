"""What is shown of predictions of classes, one or several per sample: curves, matrices, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from assay.figure.figure import Bars, Figure, Heatmap, Line
from assay.task.prediction.prediction_batch import is_on
from assay.task.score import bootstrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Predictions
    from assay.task.score import Score


NUM_BINS: Final = 15
"""Of equal width, as in Guo et al. 2017, "On Calibration of Modern Neural Networks"."""
_WHOLE: Final = (-0.02, 1.02)


_MOST_DECISIONS: Final = 100_000
"""Decisions whose order is asked of each draw; more take longer than a reader waits."""


@final
class Ranking:
    """AUROC and average precision of weighted samples, sorted once, for each of several decisions."""

    def __init__(self, scores: NDArray[Any], positive: NDArray[Any]) -> None:
        self._order = np.argsort(-scores.T, axis=1, kind="stable")
        self._positive = np.take_along_axis(positive.T, self._order, 1)
        values = np.take_along_axis(scores.T, self._order, 1)
        last_that_ties = np.ones(values.shape, bool)
        last_that_ties[:, :-1] = values[:, 1:] != values[:, :-1]
        self._ends = np.flatnonzero(last_that_ties)  # of samples that tie, one decision after the other
        self._begins = np.searchsorted(self._ends, np.arange(len(values)) * values.shape[1])

    def scores(self, weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """AUROC and average precision, as scikit-learn defines them; NaN without samples of both kinds."""
        ordered = weights[self._order]
        true = np.cumsum(ordered * self._positive, 1).ravel()[self._ends]
        both = np.cumsum(ordered, 1).ravel()[self._ends]
        false = both - true
        all_true, all_false = (sums[np.append(self._begins[1:], 0) - 1] for sums in (true, false))
        new_true, new_false = self._steps(true), self._steps(false)
        with np.errstate(divide="ignore", invalid="ignore"):
            areas = np.add.reduceat(new_false * (true - new_true / 2), self._begins) / (all_true * all_false)
            parts = np.where(both > 0, new_true * true / both, 0)
            return areas, np.add.reduceat(parts, self._begins) / all_true

    def _steps(self, sums: NDArray[Any]) -> NDArray[Any]:
        """By how much each sum is more than the one before it."""
        steps = np.diff(sums, prepend=0)
        steps[self._begins] = sums[self._begins]
        return steps


def mean_auroc(scores: NDArray[Any], positive: NDArray[Any]) -> Callable[[NDArray[Any]], float]:
    """Unweighted mean of the AUROC of several decisions, such as one class against the rest."""
    kinds = np.flatnonzero(positive.any(0) & ~positive.all(0))
    at_once = max(1, _MOST_DECISIONS // max(1, len(scores)))  # more take much memory
    some = [kinds[begin : begin + at_once] for begin in range(0, len(kinds), at_once)]
    rankings = [Ranking(scores[:, columns], positive[:, columns]) for columns in some]

    def mean(weights: NDArray[Any]) -> float:
        if not rankings or (positive.size > _MOST_DECISIONS and (weights != 1).any()):
            return float("nan")
        areas = np.concatenate([ranking.scores(weights)[0] for ranking in rankings])
        return float(np.nanmean(areas)) if np.isfinite(areas).any() else float("nan")

    return mean


def ranking_figures(
    decisions: Sequence[tuple[str, NDArray[Any], NDArray[Any]]], shown: str = ""
) -> list[Figure]:
    """ROC and precision-recall curves, by scikit-learn."""
    from sklearn.metrics import (  # type: ignore[import-untyped]  # it has no stubs
        auc,
        average_precision_score,
        precision_recall_curve,
        roc_curve,
    )

    roc, recall = [], []
    for name, truth, scores in decisions:
        if truth.all() or not truth.any():  # no curve is defined
            continue
        false, true, _ = roc_curve(truth, scores)
        roc.append(Line(f"{name} ({auc(false, true):.3f})", false, true))
        precision, hit, _ = precision_recall_curve(truth, scores)
        told = f"{name} ({average_precision_score(truth, scores):.3f})"
        recall.append(Line(told, hit, precision, is_step=True))
    left_out = len(decisions) - len(roc)
    captions = [f"Shown are {shown}."] if shown else []
    if left_out:
        captions.append(f"{left_out} without samples of both kinds are left out.")
    if not roc:
        return []
    return [
        Figure(
            "roc",
            "ROC",
            (Line("", [0, 1], [0, 1], is_reference=True), *roc),
            "false positive rate",
            "true positive rate",
            x_range=_WHOLE,
            y_range=_WHOLE,
            caption=" ".join([_in_brackets(roc, "area below the curve"), *captions]),
        ),
        Figure(
            "precision_recall",
            "Precision and recall",
            tuple(recall),
            "recall",
            "precision",
            x_range=_WHOLE,
            y_range=_WHOLE,
            caption=" ".join([_in_brackets(recall, "average precision"), *captions]),
        ),
    ]


def calibration_error(chances: NDArray[Any], truth: NDArray[Any], weights: NDArray[Any]) -> float:
    """Expected calibration error: mean distance of chance and frequency over bins, by their samples."""
    bins = _bins(chances)
    gap = np.bincount(bins, weights * (truth - chances), NUM_BINS)
    return float(np.abs(gap).sum() / weights.sum())


def calibration(
    chances: NDArray[Any], truth: NDArray[Any], what: str, kinds: tuple[str, str] = ("right", "wrong")
) -> list[Figure]:
    """Reliability diagram, and how sure the model was of what was so and of what was not."""
    bins = _bins(chances)
    count = np.bincount(bins, minlength=NUM_BINS)
    used = count > 0
    mean, share = (np.bincount(bins, of, NUM_BINS)[used] / count[used] for of in (chances, truth))
    error = calibration_error(chances, truth, np.ones(len(chances)))
    low, high = _wilson(share, count[used])
    ends = [f"{edge / NUM_BINS:.2f}" for edge in range(NUM_BINS + 1)]
    labels = [f"{begin}-{end}" for begin, end in zip(ends[:-1], ends[1:], strict=True)]  # noqa: RUF007 - equal
    so = np.asarray(truth, dtype=bool)
    groups = zip(kinds, (so, ~so), strict=True)
    return [
        Figure(
            "calibration",
            "Calibration",
            (
                Line("", [0, 1], [0, 1], is_reference=True),
                Line("model", mean, share, low=low, high=high),
            ),
            f"predicted probability {what}",
            "how often it was so",
            x_range=_WHOLE,
            y_range=_WHOLE,
            caption=f"Expected calibration error {error:.4f}, over {NUM_BINS} bins of equal width. The "
            "band is Wilson's 95 % interval of each bin.",
        ),
        Figure(
            "confidence",
            "How sure the model was",
            tuple(Bars(name, labels, np.bincount(bins[of], minlength=NUM_BINS)) for name, of in groups),
            f"predicted probability {what}",
            "samples",
        ),
    ]


def _bins(chances: NDArray[Any]) -> NDArray[Any]:
    bins: NDArray[Any] = np.clip((chances * NUM_BINS).astype(int), 0, NUM_BINS - 1)
    return bins


def _wilson(share: NDArray[Any], count: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Interval of a frequency (Wilson 1927), which holds for few samples and near 0 and 1."""
    z = 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return middle - half, middle + half


def _in_brackets(lines: Sequence[Line], what: str) -> str:
    """A line that is alone has no legend, so that its name and number stand here."""
    return f"{lines[0].name}, in brackets: the {what}." if len(lines) == 1 else f"In brackets: the {what}."


TRUE_CLASS: Final = "true class"
"""Label of the rows of a confusion matrix."""
_COUNTS: Final = "confusion_matrix"
_MOST_IN_MATRIX: Final = 50
_MOST_BARS: Final = 30
_MOST_CURVES: Final = 10
_MOST_CONFUSIONS: Final = 10


def class_scores(predictions: Predictions) -> list[Score]:
    """Accuracy, F1 and what goes with them."""
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
    """Confusion matrix, scores per class, ROC, precision and recall, calibration."""
    from sklearn.metrics import (
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
    """The confusion matrix, also as shares of each target, and the most frequent confusions."""
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


_MOST_LABEL_BARS: Final = 30
_MOST_LABEL_CURVES: Final = 8


def label_scores(predictions: Predictions) -> list[Score]:
    """F1, accuracy over all labels, exact matches and AUROC; see `is_on`."""
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
    """Scores and errors per label, ROC, precision and recall, calibration."""
    from sklearn.metrics import (
        precision_recall_fscore_support,
    )

    said, targets = _decided(predictions)
    names = predictions.class_names or tuple(str(label) for label in range(said.shape[1]))
    precision, recall, f1, support = precision_recall_fscore_support(targets, said, zero_division=0.0)
    worst = np.argsort(f1, kind="stable")
    shown = np.arange(len(names)) if len(names) <= _MOST_LABEL_BARS else worst[:_MOST_LABEL_BARS]
    some = len(shown) < len(names)
    caption = f"The {_MOST_LABEL_BARS} of {len(names)} labels with the lowest F1." if some else ""
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
    curves = np.sort(worst[:_MOST_LABEL_CURVES])
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
