"""Scores and figures of predicted classes, labels and masks: curves, matrices, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
from typing_extensions import override

from assay.figure import Bars, Figure, Heatmap, Line
from assay.task.evaluator import (
    FEWEST,
    FEWEST_OTHERS,
    LEVEL,
    Evaluator,
    bootstrapped,
    class_name,
    class_warnings,
    count_warnings,
    quote_class,
)
from assay.task.predictions import choose_classes, labels_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.figure import Array
    from assay.task.evaluator import Score


NUM_BINS = 15
"""Of equal width, as in Guo et al. 2017, "On Calibration of Modern Neural Networks"."""
_WHOLE: dict[str, Any] = dict.fromkeys(("x_range", "y_range"), (-0.02, 1.02))
_DIAGONAL = Line("", [0, 1], [0, 1], is_reference=True)


_MOST_DECISIONS = 100_000
"""Most decisions that are ranked in each bootstrap draw; more take too long."""


def rank_samples(scores: Array, positive: Array) -> Callable[[Array], tuple[float, float]]:
    """Return a function of weights: AUROC and average precision of a decision; NaN without both kinds."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    ranked_positive = positive[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # of ties

    def areas(weights: Array) -> tuple[float, float]:
        ordered = weights[order]
        true, total = (np.cumsum(of)[ends] for of in (ordered * ranked_positive, ordered))
        false = total - true
        new_true, new_false = (np.diff(sums, prepend=0) for sums in (true, false))
        with np.errstate(divide="ignore", invalid="ignore"):
            area = new_false @ (true - new_true / 2) / (true[-1] * false[-1])
            precision = np.where(total > 0, true / total, 0)
            return float(area), float(new_true @ precision / true[-1])

    return areas


def mean_over_present(scores: Array) -> float:
    """Average the scores of the classes or labels that have samples, others being NaN; NaN without any."""
    present = np.isfinite(scores)
    if present.any():
        return float(scores[present].mean())
    return float("nan")


def mean_auroc(scores: Array, positive: Array) -> Callable[[Array], float]:
    """Return a function of weights: the unweighted mean AUROC of several decisions."""
    kinds = np.flatnonzero(positive.any(0) & ~positive.all(0))
    rankings = [rank_samples(scores[:, kind], positive[:, kind]) for kind in kinds]
    is_large = positive.size > _MOST_DECISIONS

    def mean(weights: Array) -> float:
        if not rankings or (is_large and (weights != 1).any()):
            return float("nan")
        return mean_over_present(np.array([areas(weights)[0] for areas in rankings]))

    return mean


def ranking_figures(
    names: Sequence[str],
    truth: Array,
    scores: Array,
    worst: Array,
    unit: str,
) -> list[Figure]:
    """Draw ROC and precision-recall curves, by scikit-learn, of the first decisions in `worst`."""
    from sklearn import metrics  # type: ignore[import-untyped]  # it has no stubs

    roc = []
    recall = []
    shown = np.sort(worst[:_MOST_CURVES])
    for name, is_true, score in (
        (names[index], truth[:, index], scores[:, index]) for index in shown
    ):
        if is_true.all() or not is_true.any():  # no curve is defined
            continue
        false, true, _ = metrics.roc_curve(is_true, score)
        roc.append(Line(f"{name} ({metrics.auc(false, true):.3f})", false, true))
        precision, hit, _ = metrics.precision_recall_curve(is_true, score)
        legend = f"{name} ({metrics.average_precision_score(is_true, score):.3f})"
        recall.append(Line(legend, hit, precision, is_step=True))
    captions = []
    if len(worst) > len(shown):
        captions = [f"Only the {unit} with the lowest F1 are shown."]
    if left_out := len(shown) - len(roc):
        captions.append(f"{left_out} without samples of both kinds are left out.")
    if not roc:
        return []
    area = " ".join([_legend_caption(roc, "area below the curve"), *captions])
    mean = " ".join([_legend_caption(recall, "average precision"), *captions])
    rates = ("false positive rate", "true positive rate")
    title = "Precision and recall"
    return [
        Figure("roc", "ROC", (_DIAGONAL, *roc), *rates, caption=area, **_WHOLE),
        Figure(
            "precision_recall",
            title,
            tuple(recall),
            "recall",
            "precision",
            caption=mean,
            **_WHOLE,
        ),
    ]


def calibration_error(chances: Array, truth: Array, weights: Array) -> float:
    """Return the expected calibration error: mean distance of chance and frequency, weighted by bin."""
    bins = _bin_indices(chances)
    gap = np.bincount(bins, weights * (truth - chances), NUM_BINS)
    return float(np.abs(gap).sum() / weights.sum())


def calibration_figures(
    chances: Array, truth: Array, event: str, kinds: tuple[str, str]
) -> list[Figure]:
    """Draw the reliability diagram and the confidence for true and false cases."""
    from scipy.stats import binomtest  # type: ignore[import-untyped]  # it has no stubs

    bins = _bin_indices(chances)
    count = np.bincount(bins, minlength=NUM_BINS)
    used = count > 0
    hits = np.bincount(bins, truth, NUM_BINS)[used]
    mean = np.bincount(bins, chances, NUM_BINS)[used] / count[used]
    share = hits / count[used]
    error = calibration_error(chances, truth, np.ones(len(chances)))
    tests = (binomtest(int(k), int(n)) for k, n in zip(hits, count[used], strict=True))
    low, high = np.transpose([test.proportion_ci(method="wilson") for test in tests])
    labels = [f"{index / NUM_BINS:.2f}-{(index + 1) / NUM_BINS:.2f}" for index in range(NUM_BINS)]
    is_true = np.asarray(truth, dtype=bool)
    groups = zip(kinds, (is_true, ~is_true), strict=True)
    bars = tuple(
        Bars(name, labels, np.bincount(bins[of], minlength=NUM_BINS)) for name, of in groups
    )
    lines = (_DIAGONAL, Line("model", mean, share, low=low, high=high))
    chance = f"predicted probability {event}"
    caption = f"Expected calibration error {error:.4f}, over {NUM_BINS} bins of equal width."
    caption += " The band is Wilson's 95 % interval of each bin."
    return [
        Figure(
            "calibration",
            "Calibration",
            lines,
            chance,
            "observed frequency",
            caption=caption,
            **_WHOLE,
        ),
        Figure("confidence", "Confidence of the model", bars, chance, "samples"),
    ]


def _bin_indices(chances: Array) -> Array:
    return np.asarray(np.clip((chances * NUM_BINS).astype(int), 0, NUM_BINS - 1))


def _legend_caption(lines: Sequence[Line], score: str) -> str:
    """Explain the numbers in the legend; a single line has none, so that this names it."""
    if len(lines) == 1:
        return f"{lines[0].name}, in brackets: the {score}."
    return f"In brackets: the {score}."


TRUE_CLASS = "true class"
"""Label of the rows of a confusion matrix."""
_MOST_IN_MATRIX = 50
_MOST_BARS = 30
_MOST_CURVES = 10
_MOST_CONFUSIONS = 10


def _rates(hits: Array, actual: Array, predicted: Array) -> dict[str, Array]:
    """Return the rates of each class or label, from counts of samples; NaN for those without samples.

    The precision of a class that is never predicted is 0, as in scikit-learn.
    """
    hits = np.where(actual > 0, hits, np.nan)
    totals = {"precision": predicted, "recall": actual, "F1": (actual + predicted) / 2}
    return {name: hits / np.where(total > 0, total, 1) for name, total in totals.items()}


def scores_at(threshold: float, probabilities: Array, is_second: Array) -> dict[str, float]:
    """Return precision, recall and F1 of the second of two classes."""
    predicted = probabilities >= threshold
    rates = _rates(
        *(np.array(of.sum(), float) for of in (predicted & is_second, is_second, predicted))
    )
    return {name.lower(): float(rate) for name, rate in rates.items()}


def _rate_bars(
    kind: str,
    hits: Array,
    actual: Array,
    predicted: Array,
    names: Sequence[str],
) -> tuple[Figure, Array]:
    """Draw the rates of each class or label; also return their order, lowest F1 first."""
    scores = _rates(hits, actual, predicted)
    worst = np.argsort(scores["F1"], kind="stable")[: (actual > 0).sum()]  # NaN comes last
    absent = len(names) - len(worst)
    caption = ""
    if absent:
        caption = f"{absent} without samples are left out."
    title = f"Precision, recall and F1 per {kind}"
    return score_bars(
        f"per_{kind}", title, scores, names, worst, support=actual, caption=caption
    ), worst


def _confidence_and_truth(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Return the probability of the second of two classes, else the predicted one, and whether it is true."""
    if outputs.shape[1] == 2:
        return outputs[:, 1], targets == 1
    return outputs.max(1), outputs.argmax(1) == targets


def confusion_figures(
    matrix: Array, names: tuple[str, ...], unit: str = "samples"
) -> list[Figure]:
    """Draw the confusion matrix, also as shares of each target, and the most frequent confusions."""
    caption = "Rows: true class; columns: predicted class."
    shown = np.arange(len(names))
    if len(names) > _MOST_IN_MATRIX:
        errors = matrix.sum(0) + matrix.sum(1) - 2 * matrix.diagonal()
        shown = np.sort(np.argsort(-errors, kind="stable")[:_MOST_IN_MATRIX])
        caption += f" The {_MOST_IN_MATRIX} of {len(names)} classes with the most errors."
    with np.errstate(invalid="ignore"):
        shares = matrix / matrix.sum(1, keepdims=True)
    chosen = tuple(names[label] for label in shown)
    add_up = f"{caption} Each row adds up to 100 %: the diagonal is the recall."
    figures = [
        Figure(
            name,
            title,
            (
                Heatmap(
                    of[np.ix_(shown, shown)],
                    chosen,
                    chosen,
                    len(chosen) <= 16,
                    is_share=of is shares,
                ),
            ),
            "predicted class",
            TRUE_CLASS,
            is_wide=len(chosen) > 12,
            caption=figure_caption,
        )
        for name, title, of, figure_caption in (
            ("confusion_matrix", "Confusion matrix", matrix, caption),
            (
                "confusion_matrix_normalised",
                "Confusion matrix, share of each true class",
                shares,
                add_up,
            ),
        )
    ]
    return figures + _confusion_bars(matrix, names, unit)


def _confusion_bars(matrix: Array, names: tuple[str, ...], unit: str) -> list[Figure]:
    """Draw the most frequent confusions, if there are more than two classes."""
    wrong = matrix * (1 - np.eye(len(names), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    pairs = [divmod(int(cell), len(names)) for cell in order if wrong.flat[cell] > 0]
    if len(names) < 3 or not pairs:
        return []
    bars = Bars(
        "",
        [f"{names[target]} → {names[predicted]}" for target, predicted in pairs],
        [int(wrong[pair]) for pair in pairs],
        texts=[
            f"{names[t]} taken for {names[s]}: {wrong[t, s]:,.0f} of {matrix[t].sum():,.0f}"
            for t, s in pairs
        ],
    )
    return [Figure("confusions", "Most frequent confusions", (bars,), "true → predicted", unit)]


def score_bars(
    name: str,
    title: str,
    scores: Mapping[str, Array],
    names: Sequence[str],
    worst: Array,
    *,
    support: Array,
    unit: str = "samples",
    caption: str = "",
    intervals: Array | None = None,
) -> Figure:
    """Draw the scores of classes or labels; `worst` holds their indices, lowest score first.

    `intervals` are the ends of those of a single score, `[C, 2]`.
    """
    shown = np.sort(worst)
    if len(worst) > _MOST_BARS:
        shown = worst[:_MOST_BARS]
        caption = f"The {_MOST_BARS} of {len(worst)} with the lowest {list(scores)[-1]}. {caption}".strip()
    labels = [names[i] for i in shown]
    lows: Array | None = None
    highs: Array | None = None
    within = [""] * len(names)
    if intervals is not None:
        lows, highs = intervals[shown].T
        for label in np.flatnonzero(np.isfinite(intervals).all(1)):
            low, high = 100 * intervals[label]
            within[label] = f" ({low:.2f} to {high:.2f})"
    bars = tuple(
        Bars(
            score,
            labels,
            values[shown],
            lows,
            highs,
            texts=[
                f"{names[i]}: {score} {100 * values[i]:.2f} %{within[i]}, {support[i]:,.0f} {unit}"
                for i in shown
            ],
        )
        for score, values in scores.items()
    )
    is_wide = len(labels) > 6
    return Figure(
        name, title, bars, shares="y", y_range=(0, 1.02), is_wide=is_wide, caption=caption
    )


_CLASS_METRICS = {
    "accuracy": "Accuracy",
    "f1": "F1Score",
    "precision": "Precision",
    "recall": "Recall",
    "auroc": "AUROC",
    "average precision": "AveragePrecision",
    "f1 (macro)": "F1Score macro",
    "f1 (micro)": "F1Score micro",
    "precision (macro)": "Precision macro",
    "recall (macro)": "Recall macro",
    "balanced accuracy": "Recall macro",
    "auroc (macro)": "AUROC macro",
    "exact match": "ExactMatch",
}
"""`Score.metric` of each score."""


@final
class Classes(Evaluator):
    """Evaluates one class per sample."""

    caption = "Lowest score of the true class first, where the loss is highest; these may still be right."

    @override
    def scores(self) -> list[Score]:
        """Return accuracy, F1 and related scores."""
        outputs = self.outputs.astype(float)
        targets = self.targets
        preds = self.predictions.classes
        num_classes = outputs.shape[1]
        is_right = preds == targets
        chances = self.predictions.kind == "probabilities"
        loss = -np.log(
            np.clip(outputs[np.arange(len(targets)), targets], np.finfo(np.float32).eps, 1)
        )
        areas = None
        second = ""
        if num_classes == 2:
            areas = rank_samples(outputs[:, 1], targets == 1)
            second = f" of {self.names[1]}"
        auroc = mean_auroc(outputs, targets[:, None] == np.arange(num_classes))
        at = ""
        if self.predictions.threshold != 0.5:
            at = f" at {self.predictions.threshold:.4g}"
        confidence = _confidence_and_truth(outputs, targets)
        metrics = _CLASS_METRICS | {
            f"{name}{second}": metric for name, metric in _CLASS_METRICS.items()
        }
        shares = {
            f"accuracy{at}": is_right,
            f"precision{second}{at}": is_right[preds == 1],
            f"recall{second}{at}": is_right[targets == 1],
        }

        def statistic(weights: Array) -> Mapping[str, float]:
            hits = np.bincount(targets[is_right], weights[is_right], num_classes)
            rates = _rates(
                hits, *(np.bincount(of, weights, num_classes) for of in (targets, preds))
            )
            scores = {f"accuracy{at}": hits.sum() / weights.sum()}
            if areas is not None:
                for name in ("F1", "precision", "recall"):
                    scores[f"{name.lower()}{second}{at}"] = rates[name][1]
                scores["auroc"], scores[f"average precision{second}"] = areas(weights)
            else:
                scores["f1 (macro)"] = mean_over_present(rates["F1"])
                scores["precision (macro)"] = mean_over_present(rates["precision"])
                scores["balanced accuracy"] = mean_over_present(rates["recall"])
                scores["auroc (macro)"] = auroc(weights)
            if chances:
                scores["log loss"] = (loss * weights).sum() / weights.sum()
                scores["calibration error"] = calibration_error(*confidence, weights)
            return {name: float(value) for name, value in scores.items()}

        return bootstrapped(statistic, len(targets), metrics, shares)

    @override
    def figures(self) -> list[Figure]:
        """Draw confusion matrix, scores per class, ROC, precision and recall, calibration."""
        outputs = self.outputs
        targets = self.targets
        preds = self.predictions.classes
        num_classes = outputs.shape[1]
        names = self.names or tuple(str(label) for label in range(num_classes))
        cells = np.bincount(targets * num_classes + preds, minlength=num_classes**2)
        matrix = cells.reshape(num_classes, num_classes)
        bars, worst = _rate_bars("class", matrix.diagonal(), matrix.sum(1), matrix.sum(0), names)
        truth = targets[:, None] == np.arange(num_classes)
        shown = worst
        event = "of the predicted class"
        kinds = ("right", "wrong")
        if num_classes == 2:
            shown = np.array([1])
            event = f"of {names[1]}"
            kinds = (names[1], names[0])
        figures = [*confusion_figures(matrix, names), bars]
        figures += ranking_figures(names, truth, outputs, shown, "classes")
        if self.predictions.kind == "probabilities":
            figures += calibration_figures(
                *_confidence_and_truth(outputs.astype(float), targets), event, kinds
            )
        return figures

    @override
    def error_scores(self) -> Array:
        outputs = self.outputs
        targets = self.targets
        of_target: Array = outputs[np.arange(len(targets)), targets]
        return outputs.max(1) - of_target if self.predictions.kind == "scores" else 1 - of_target

    @override
    def is_right(self) -> Array:
        return np.asarray(self.predictions.classes == self.predictions.targets)

    @override
    def baseline_warnings(self) -> list[str]:
        preds = self.predictions.classes
        threshold = self.predictions.threshold
        who = "the model"
        if threshold != 0.5:
            who = f"the model at its threshold {threshold:.4g}"
        warnings = class_warnings(self.targets, preds, self.names, self.samples, who)
        is_binary = self.predictions.kind == "probabilities" and len(self.names) == 2
        if is_binary and warnings and (preds == preds[0]).all():
            return [
                f"{warnings[0]}; train with data.balance=weights, or try assay eval RUN --threshold f1"
            ]
        return warnings

    @override
    def predicted_label(self, index: int) -> str:
        outputs = self.outputs[index]
        targets = self.predictions.targets
        label = int(choose_classes(outputs, self.predictions.threshold))
        prediction = f"{class_name(self.predictions, label)}, {outputs[label]:.2f}"
        if targets is None or label == targets[index]:
            return prediction
        return f"{prediction}; is {class_name(self.predictions, int(targets[index]))}"


@final
class Labels(Evaluator):
    """Evaluates several labels per sample, each on or off."""

    caption = "Largest error of any label's probability first."

    @override
    def scores(self) -> list[Score]:
        """Return F1, accuracy over all labels, exact matches and AUROC; see `labels_on`."""
        preds = labels_on(self.outputs)
        targets = self.targets.astype(bool)
        correct = preds == targets
        exact = self.is_right()
        share = correct.mean(1)
        of_labels = [of.astype(float) for of in (preds & targets, targets, preds)]
        auroc = mean_auroc(self.outputs, targets)

        def statistic(weights: Array) -> Mapping[str, float]:
            total = weights.sum()
            counts = [weights @ of for of in of_labels]
            rates = _rates(*counts)
            return {
                "f1 (macro)": mean_over_present(rates["F1"]),
                "precision (macro)": mean_over_present(rates["precision"]),
                "recall (macro)": mean_over_present(rates["recall"]),
                "f1 (micro)": float(_rates(*(count.sum() for count in counts))["F1"]),
                "accuracy": float(weights @ share / total),
                "exact match": float(weights @ exact / total),
                "auroc (macro)": auroc(weights),
            }

        return bootstrapped(statistic, len(targets), _CLASS_METRICS, {"exact match": exact})

    @override
    def figures(self) -> list[Figure]:
        """Draw scores per label, ROC, precision and recall, calibration."""
        preds = labels_on(self.outputs)
        targets = self.targets.astype(bool)
        names = self.names or tuple(str(label) for label in range(preds.shape[1]))
        bars, worst = _rate_bars(
            "label", (preds & targets).sum(0), targets.sum(0), preds.sum(0), names
        )
        chances = self.outputs.astype(float).ravel()
        event = "of a label, all labels together"
        return [
            bars,
            *ranking_figures(names, targets, self.outputs, worst, "labels"),
            *calibration_figures(chances, targets.ravel(), event, ("is on", "is off")),
        ]

    @override
    def error_scores(self) -> Array:
        return np.asarray(np.abs(self.outputs - self.targets).max(1))

    @override
    def is_right(self) -> Array:
        alike = labels_on(self.outputs) == (self.targets > 0)
        return np.asarray(alike.all(1))

    @override
    def baseline_warnings(self) -> list[str]:
        """Warn if the same labels are predicted for all samples, or constant labels would score as well."""
        preds = labels_on(self.outputs)
        true = self.targets > 0
        usual = true.mean(0) > 0.5
        if not true.size or (true != usual).any(1).sum() < FEWEST_OTHERS:
            return []
        if (preds == preds[0]).all():
            chosen = (
                " + ".join(quote_class(self.names, label) for label in preds[0].nonzero()[0])
                or "no label"
            )
            return [f"the model predicts {chosen} for each of {self.samples}"]
        accuracy = (preds == true).mean()
        of_usual = (usual == true).mean()
        f1 = 2 * (preds & true).sum() / (preds.sum() + true.sum())
        if (
            len(true) < FEWEST
            or accuracy > of_usual
            or f1 > 2 * true.sum() / (true.size + true.sum())
        ):
            return []
        return [
            f"the model is right for {100 * accuracy:.1f} % of all labels of {self.samples}: not better than "
            f"always predicting the more frequent answer to each label ({100 * of_usual:.1f} %)"
        ]

    @override
    def predicted_label(self, index: int) -> str:
        rows = [labels_on(self.outputs[index])]
        if self.predictions.targets is not None:
            rows.append(self.predictions.targets[index] > 0)
        names = [
            " + ".join(class_name(self.predictions, int(i)) for i in row.nonzero()[0]) or "none"
            for row in rows
        ]
        return "; is ".join(dict.fromkeys(names))


_MOST_SAID = 4
_MASK_METRICS = {
    "mean iou": "JaccardIndex macro",
    "mean dice": "F1Score macro",
    "pixel accuracy": "Accuracy",
}
"""`Score.metric` of each score."""


def class_iou(confusions: Array, num_classes: int) -> Array:
    """Return the IoU of each class `[N, C]`, from confusions of N sets of pixels; NaN without a pixel."""
    matrices = confusions.reshape(-1, num_classes, num_classes).astype(float)
    hit = np.diagonal(matrices, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(hit / (matrices.sum(1) + matrices.sum(2) - hit))


@final
class Masks(Evaluator):
    """Evaluates the confusions of the pixels of each picture."""

    caption = (
        "Lowest mean IoU first. Left: the picture; middle: its mask; right: the predicted mask. Ignored "
        "pixels are white."
    )

    @override
    def scores(self) -> list[Score]:
        """Return mean IoU and Dice over the classes in masks or predictions, and the pixel accuracy."""
        confusions = self.outputs.astype(float)
        num_classes = len(self.names)

        def statistic(weights: Array) -> Mapping[str, float]:
            matrix = (weights @ confusions).reshape(num_classes, num_classes)
            iou = class_iou(matrix, num_classes)[0]
            total = matrix.sum()
            return {
                "mean iou": mean_over_present(iou),
                "mean dice": mean_over_present(2 * iou / (1 + iou)),
                "pixel accuracy": float(matrix.trace() / total) if total else float("nan"),
            }

        return bootstrapped(statistic, len(confusions), _MASK_METRICS)

    @override
    def figures(self) -> list[Figure]:
        """Draw the IoU of each class with its interval, and the confusions."""
        names = self.names
        confusions = self.outputs.astype(float)
        matrix = confusions.sum(0).reshape(len(names), len(names))

        def statistic(weights: Array) -> Mapping[str, float]:
            ious = class_iou(weights @ confusions, len(names))[0]
            return {str(label): float(iou) for label, iou in enumerate(ious)}

        scores = bootstrapped(statistic, len(confusions))
        iou = np.array([score.value for score in scores])
        worst = np.argsort(iou, kind="stable")[: np.isfinite(iou).sum()]  # NaN comes last
        absent = len(names) - len(worst)
        caption = f"With the {100 * LEVEL:.0f} % interval of the percentile bootstrap over the pictures."
        if absent:
            caption += f" {absent} classes without a pixel, true or predicted, are left out."
        true = matrix.sum(1)
        title = "Intersection over union per class"
        bars = score_bars(
            "iou_per_class",
            title,
            {"IoU": iou},
            names,
            worst,
            support=true,
            unit="pixels",
            caption=caption,
            intervals=np.array([score.interval() for score in scores]),
        )
        return [bars, *confusion_figures(matrix, names, "pixels")]

    @override
    def error_scores(self) -> Array:
        """Return 1 - mean IoU of each sample, over the classes in its mask or prediction."""
        iou = class_iou(self.outputs, len(self.names))
        present = np.isfinite(iou)
        with np.errstate(invalid="ignore"):
            mean: Array = np.where(present, iou, 0).sum(1) / present.sum(1)
        return 1 - mean

    @override
    def baseline_warnings(self) -> list[str]:
        names = self.names
        matrix = self.outputs.sum(0, dtype=float).reshape(len(names), len(names))
        samples = f"the pixels of {self.samples}"
        counts = matrix.sum(1), matrix.sum(0), matrix.diagonal()
        return count_warnings(*counts, names, samples, num_independent=len(self.predictions.keys))

    @override
    def predicted_label(self, index: int) -> str:
        """Return the mean IoU of a sample, and the classes with the lowest."""
        iou = class_iou(self.outputs[index : index + 1], len(self.names))[0]
        present = np.flatnonzero(np.isfinite(iou))
        if not len(present):
            return "all pixels are ignored"
        lowest = present[np.argsort(iou[present], kind="stable")]
        details = ", ".join(
            f"{self.names[label]} {iou[label]:.2f}" for label in lowest[:_MOST_SAID]
        )
        return f"mean IoU {iou[present].mean():.2f}: {details}{', …' if len(lowest) > _MOST_SAID else ''}"
