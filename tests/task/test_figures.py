"""Scores and figures of each kind of predictions against scikit-learn, torchmetrics and numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torchmetrics.classification as tm
from scipy import stats  # type: ignore[import-untyped]  # it has no stubs
from sklearn import metrics  # type: ignore[import-untyped]  # it has no stubs
from sklearn.decomposition import PCA  # type: ignore[import-untyped]  # as above
from tests.task.made_predictions import of_classes, of_embeddings, of_labels, of_values

from assay.metrics.recall_at_k import RecallAtK
from assay.task.evaluator import bootstrapped, num_draws
from assay.task.predictions import StoredPredictions
from assay.task.segmentation import IGNORED
from assay.task.task_of import task_of
from assay_report.draw import to_plotly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.figure import Figure


def figures(made: StoredPredictions) -> dict[str, Figure]:
    drawn = task_of(made.task).figures(made)
    for figure in drawn:
        to_plotly(figure)
    return {figure.name: figure for figure in drawn}


def marks(made: StoredPredictions, name: str) -> Any:
    return figures(made)[name].marks


def scores(made: StoredPredictions) -> dict[str, float]:
    return {score.name: score.value for score in task_of(made.task).scores(made)}


def expect_scores(made: StoredPredictions, expected: Mapping[str, float], rel: float = 1e-5) -> None:
    found = scores(made)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=rel)
    for score in task_of(made.task).scores(made):
        assert score.low <= score.value <= score.high


def test_scores_of_classes() -> None:
    said = of_classes()
    targets, labels = said.targets, said.outputs.argmax(1)
    expect_scores(
        said,
        {
            "accuracy": metrics.accuracy_score(targets, labels),
            "f1 (macro)": metrics.f1_score(targets, labels, average="macro"),
            "balanced accuracy": metrics.balanced_accuracy_score(targets, labels),
            "auroc (macro)": metrics.roc_auc_score(np.eye(4, dtype=int)[targets], said.outputs),
            "log loss": -np.log(said.outputs[np.arange(300), targets].astype(float)).mean(),
        },
    )
    raw = replace(said, kind="scores")
    assert "calibration" not in figures(raw)
    assert "log loss" not in scores(raw)


def test_scores_of_two_classes_where_samples_tie() -> None:
    said = of_classes(2)
    said = replace(said, outputs=said.outputs.round(1).astype(np.float32))
    targets, labels, chances = said.targets, said.outputs.argmax(1), said.outputs[:, 1]
    expected = {
        "f1 of c1": metrics.f1_score(targets, labels),
        "precision of c1": metrics.precision_score(targets, labels),
        "recall of c1": metrics.recall_score(targets, labels),
        "auroc": metrics.roc_auc_score(targets, chances),
        "average precision of c1": metrics.average_precision_score(targets, chances),
    }
    found = scores(said)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_intervals_are_those_of_resampled_data() -> None:
    said = of_classes(2)
    assert said.targets is not None
    drawn = np.random.default_rng(7).integers(0, 300, (1000, 300))
    is_second, ranks = said.targets[drawn] == 1, stats.rankdata(said.outputs[drawn, 1], axis=1)
    num = is_second.sum(1)
    areas = ((ranks * is_second).sum(1) - num * (num + 1) / 2) / (num * (300 - num))  # Mann and Whitney's U
    first = metrics.roc_auc_score(said.targets[drawn[0]], said.outputs[drawn[0], 1])
    assert areas[0] == pytest.approx(first)
    (auroc,) = (score for score in task_of("binary").scores(said) if score.name == "auroc")
    assert [auroc.low, auroc.high] == pytest.approx(np.quantile(areas, [0.025, 0.975]), abs=0.004)


def test_figures_of_classes() -> None:
    said = of_classes()
    targets, labels = said.targets, said.outputs.argmax(1)
    assert (marks(said, "confusion_matrix")[0].values == metrics.confusion_matrix(targets, labels)).all()
    shares = metrics.confusion_matrix(targets, labels, normalize="true")
    assert marks(said, "confusion_matrix_normalised")[0].values == pytest.approx(shares)
    rates = metrics.precision_recall_fscore_support(targets, labels)[:3]
    for bars, values in zip(marks(said, "per_class"), rates, strict=True):
        assert bars.values == pytest.approx(values)
    curves = marks(said, "roc")[1:]
    assert len(curves) == 4
    for label, curve in enumerate(curves):
        false, true, _ = metrics.roc_curve(targets == label, said.outputs[:, label])
        assert np.array_equal([curve.x, curve.y], [false, true])
        assert curve.name == f"c{label} ({metrics.auc(false, true):.3f})"


@pytest.mark.parametrize("num_classes", [2, 4])
def test_calibration_error(num_classes: int) -> None:
    said = of_classes(num_classes)
    metric = (
        tm.BinaryCalibrationError(15) if num_classes == 2 else tm.MulticlassCalibrationError(num_classes, 15)
    )
    outputs = torch.from_numpy(said.outputs[:, 1] if num_classes == 2 else said.outputs)
    expected = float(metric(outputs, torch.from_numpy(said.targets)))
    assert scores(said)["calibration error"] == pytest.approx(expected, abs=1e-6)


def test_labels() -> None:
    made = of_labels()
    said, targets = made.outputs >= 0.5, made.targets
    expect_scores(
        made,
        {
            "f1 (macro)": metrics.f1_score(targets, said, average="macro"),
            "f1 (micro)": metrics.f1_score(targets, said, average="micro"),
            "accuracy": (said == targets).mean(),
            "exact match": metrics.accuracy_score(targets, said),
            "auroc (macro)": metrics.roc_auc_score(targets, made.outputs, average="macro"),
        },
    )
    rates = metrics.precision_recall_fscore_support(targets, said)[:3]
    for bars, values in zip(marks(made, "per_label"), rates, strict=True):
        assert bars.values == pytest.approx(values)


def test_values() -> None:
    made = of_values(2)
    assert made.targets is not None
    outputs, targets = made.outputs.astype(float), made.targets.astype(float)
    expect_scores(
        made,
        {
            "r2 (mean)": metrics.r2_score(targets, outputs),
            "r2 of t1": metrics.r2_score(targets[:, 1], outputs[:, 1]),
            "mae of t0": metrics.mean_absolute_error(targets[:, 0], outputs[:, 0]),
            "rmse of t0": metrics.root_mean_squared_error(targets[:, 0], outputs[:, 0]),
        },
    )
    parity, residuals = (marks(made, f"{name}_0")[1] for name in ("parity", "residuals"))
    assert np.array_equal([parity.x, parity.y], [targets[:, 0], outputs[:, 0]])
    assert residuals.y == pytest.approx(outputs[:, 0] - targets[:, 0])
    outputs = made.outputs.copy()
    outputs[:3] = np.nan
    bad = replace(made, outputs=outputs)
    assert figures(bad)["parity_0"].caption.startswith("3 predictions are not finite")
    assert np.isnan(task_of("regression").scores(bad)[0].value)


def test_embeddings() -> None:
    made = of_embeddings()
    assert made.targets is not None
    metric = RecallAtK(k=1)
    metric.update(torch.from_numpy(made.outputs), torch.from_numpy(made.targets))
    assert scores(made) == {"recall@1": pytest.approx(float(metric.compute()))}
    places = PCA(2, random_state=0).fit_transform(made.outputs.astype(float))
    clouds = marks(made, "embeddings")
    assert len(clouds) == 3
    for label, cloud in enumerate(clouds):
        assert cloud.name == "abc"[label]
        assert cloud.x == pytest.approx(places[made.targets == label, 0])
    assert figures(replace(made, outputs=np.ones_like(made.outputs))) == {}


def test_masks() -> None:
    num, generator = 4, torch.Generator().manual_seed(0)
    targets = torch.randint(3, (12, 9, 8), generator=generator)  # class 3 is only ever predicted
    targets[:, :2] = IGNORED
    hot = torch.nn.functional.one_hot(targets.clamp(max=num - 1), num).movedim(-1, 1)
    outputs, task = torch.randn(12, num, 9, 8, generator=generator) + 2 * hot, task_of("segmentation")
    confusions, pixels = task.kept(outputs, targets, "probabilities")
    keys = tuple(map(str, range(12)))
    kept = confusions.float().numpy()
    made = StoredPredictions("segmentation", "confusions", keys, kept, pixels.numpy(), tuple("abcd"))
    options: dict[str, Any] = {"num_classes": num, "ignore_index": IGNORED}
    references: dict[str, Any] = {
        "mean iou": tm.MulticlassJaccardIndex(average="macro", **options),
        "mean dice": tm.MulticlassF1Score(average="macro", **options),
        "pixel accuracy": tm.MulticlassAccuracy(average="micro", **options),
    }
    expect_scores(made, {name: float(metric(outputs, targets)) for name, metric in references.items()})
    each = [
        float(tm.MulticlassJaccardIndex(average="macro", **options)(one[None], mask[None]))
        for one, mask in zip(outputs, targets, strict=True)
    ]
    np.testing.assert_allclose(1 - task.error_scores(made), each, rtol=1e-5)
    worst = int(np.argmin(each))
    assert task.predicted_label(made, worst).startswith(f"mean IoU {each[worst]:.2f}: d 0.00")
    assert figures(made)["confusions"].y_label == "pixels"
    bars: Any = figures(made)["iou_per_class"].marks[0]
    of_class = tm.MulticlassJaccardIndex(average=None, **options)
    np.testing.assert_allclose(bars.values, of_class(outputs, targets), rtol=1e-5)
    for label in range(3):
        ends = stats.bootstrap(
            (np.arange(12),),
            lambda drawn, label=label: float(of_class(outputs[drawn], targets[drawn])[label]),
            vectorized=False, n_resamples=300, method="percentile", random_state=1,
        ).confidence_interval  # fmt: skip
        assert (bars.low[label], bars.high[label]) == pytest.approx(tuple(ends), abs=0.02)
        interval = f"{100 * bars.low[label]:.2f} to {100 * bars.high[label]:.2f}"
        assert bars.texts[label].startswith(
            f"{'abc'[label]}: IoU {100 * bars.values[label]:.2f} % ({interval}), "
        )
    # a class that no mask has scores 0 in each draw
    assert np.isnan(bars.low[3])
    assert bars.texts[3] == "d: IoU 0.00 %, 0 pixels"


def reconstructions(errors: np.ndarray, *, latent: int = 3, labels: bool = True) -> StoredPredictions:
    generator = np.random.default_rng(0)
    outputs = np.concatenate([errors[:, None], generator.normal(size=(len(errors), latent))], 1)
    targets, names = (np.arange(len(errors)) % 2, ("cat", "dog")) if labels else (None, ())
    keys = tuple(map(str, range(len(errors))))
    return StoredPredictions(
        "reconstruction", "reconstructions", keys, outputs.astype(np.float32), targets, names
    )


def test_reconstructions() -> None:
    errors = np.random.default_rng(1).exponential(size=101)
    median, high = np.quantile(errors, [0.5, 0.95])
    made = reconstructions(errors)
    expect_scores(made, {"error": errors.mean(), "error, median": median, "error, 95 %": high})
    assert sum(marks(made, "reconstruction_errors")[0].values) == 101
    assert {one.name for one in marks(made, "latent")} == {"cat", "dog"}
    assert len(marks(reconstructions(errors, labels=False), "latent")) == 1
    lost = figures(reconstructions(np.array([1.0, np.nan, 2.0]), latent=0))
    assert [*lost] == ["reconstruction_errors"]
    assert "1 errors are not finite" in lost["reconstruction_errors"].caption


def test_tokens() -> None:
    bits = np.random.default_rng(0).exponential(2.0, (40, 6)).astype(np.float32)
    keys = tuple(map(str, range(40)))
    made = StoredPredictions("language_modelling", "surprisals", keys, bits, bits.astype(np.int64), ())
    expect_scores(made, {"perplexity": 2 ** bits.mean(), "bits_per_token": bits.mean()})
    assert np.allclose(marks(made, "surprisal_by_position")[0].y, bits.mean(0), rtol=1e-6)
    for one in (made, replace(made, outputs=bits * 0)):
        assert sum(marks(one, "surprisal")[0].values) == bits.size


def test_the_interval_of_a_mean_is_scipys_bootstrap() -> None:
    values = np.random.default_rng(0).gamma(2, size=400)
    (score,) = bootstrapped(lambda weights: {"mean": float(weights @ values / weights.sum())}, len(values))
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, rng=1)
    assert score.value == values.mean()
    spread = theirs.standard_error
    assert abs(score.low - theirs.confidence_interval.low) < 0.2 * spread
    assert abs(score.high - theirs.confidence_interval.high) < 0.2 * spread


def test_an_interval_that_does_not_hold_the_score_is_none() -> None:
    """Each draw leaves samples out, so the number of different ones is always smaller than of all."""
    (score,) = bootstrapped(lambda weights: {"different": float((weights > 0).sum())}, 50)
    assert score.value == 50
    assert np.isnan([score.low, score.high]).all()


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_intervals_of_shares_cover_the_share(share: float) -> None:
    """At 0.99 nearly two of three samples are right throughout; a bootstrap of these is a point."""
    draw = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        targets = (draw.random(50) < 0.5).astype(int)
        labels = np.where(draw.random(50) < share, targets, 1 - targets)
        outputs = np.eye(2, dtype=np.float32)[labels] * 0.8 + 0.1
        keys = tuple(map(str, range(50)))
        made = StoredPredictions("binary", "probabilities", keys, outputs, targets, ("no", "yes"))
        accuracy = task_of("binary").scores(made)[0]
        covered.append(accuracy.low <= share <= accuracy.high)
    assert np.mean(covered) > 0.88


def test_perfect_scores_have_an_interval_of_wilson_or_none() -> None:
    targets = np.arange(80) % 2
    outputs = np.eye(2, dtype=np.float32)[targets]
    keys = tuple(map(str, range(80)))
    made = StoredPredictions("binary", "probabilities", keys, outputs, targets, ("no", "yes"))
    found = {score.name: score for score in task_of("binary").scores(made)}
    for name, number in {"accuracy": 80, "precision of yes": 40, "recall of yes": 40}.items():
        ends = found[name].low, found[name].high
        assert ends == pytest.approx(wilson(number, number)), name
    for name in ("f1 of yes", "auroc", "average precision of yes"):
        assert found[name].value == 1
        assert np.isnan([found[name].low, found[name].high]).all(), name


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Wilson 1927, by hand."""
    z, share = stats.norm.ppf(0.975), hits / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return middle - half, middle + half


def test_it_says_the_same_each_time_and_draws_less_often_of_many() -> None:
    def first(weights: np.ndarray) -> dict[str, float]:
        return {"first": float(weights[0])}

    (once,), (again,) = bootstrapped(first, 30), bootstrapped(first, 30)
    assert (once.low, once.high) == (again.low, again.high)
    assert num_draws(10) == 1000
    assert num_draws(10**6) == 200
