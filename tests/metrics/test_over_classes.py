"""Means over classes and labels of which a subset has some only, by metrics and by stored predictions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk  # type: ignore[import-untyped]  # scikit-learn ships no types
from torchmetrics import MetricCollection
from torchmetrics import classification as tm
from torchmetrics.functional.classification import multiclass_auroc

from assay.metrics.over_classes import score_of
from assay.metrics.tracker import Tracker
from assay.task.predictions import StoredPredictions
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from torch import Tensor

C = 4
ONE_CLASS = ("precision", "recall", "f1", "auroc", "average_precision")


def reference(true: np.ndarray, scores: np.ndarray, guess: np.ndarray) -> dict[str, float]:
    """Means over the columns with samples, each column by scikit-learn; NaN without any."""
    columns = [
        {
            "precision": sk.precision_score(is_true, is_guess, zero_division=0),
            "recall": sk.recall_score(is_true, is_guess),
            "f1": sk.f1_score(is_true, is_guess),
            "auroc": math.nan if is_true.all() else sk.roc_auc_score(is_true, score),
            "average_precision": sk.average_precision_score(is_true, score),
        }
        for is_true, score, is_guess in zip(true.T, scores.T, guess.T, strict=True)
        if is_true.any()
    ]
    values = {
        name: [column[name] for column in columns if not math.isnan(column[name])] for name in ONE_CLASS
    }
    return {name: float(np.mean(several)) if several else math.nan for name, several in values.items()}


def collection(kind: str, **options: Any) -> MetricCollection:
    names = dict(zip(ONE_CLASS, ("Precision", "Recall", "F1Score", "AUROC", "AveragePrecision"), strict=True))
    return MetricCollection({key: getattr(tm, f"{kind}{name}")(**options) for key, name in names.items()})


def track(metrics: MetricCollection, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    tracker = Tracker(metrics, "val")
    for rows in torch.tensor_split(torch.arange(len(targets)), 5):
        tracker.update(torch.zeros(()), outputs[rows], targets[rows])
    return {name.removeprefix("val/"): float(value) for name, value in tracker.compute().items()}


def stored(task: str, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    names = tuple("abcd"[: outputs.shape[1]])
    keys = tuple(map(str, range(len(targets))))
    predictions = StoredPredictions(task, "probabilities", keys, outputs.numpy(), targets.numpy(), names)
    return {score.metric: score.value for score in task_of(task).scores(predictions) if score.metric}


def expect(
    found: dict[str, float], of_stored: dict[str, float], metrics: MetricCollection, expected: Any
) -> None:
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-6, nan_ok=True), name
        score = score_of(metrics[name])
        if "AveragePrecision macro" not in score:
            assert of_stored[score] == pytest.approx(value, abs=1e-6, nan_ok=True), score


present = st.lists(st.integers(0, C - 1), min_size=1, max_size=C, unique=True)


@settings(max_examples=20, deadline=None)
@given(classes=present, num=st.integers(1, 40), seed=st.integers(0, 99), binned=st.sampled_from([None, 2000]))
def test_classes(classes: list[int], num: int, seed: int, binned: int | None) -> None:
    draw = torch.Generator().manual_seed(seed)
    targets = torch.tensor(classes)[torch.randint(len(classes), (num,), generator=draw)]
    # Of some thousandths, so that bins of a threshold each are as exact as none.
    outputs = torch.randint(1, 400, (num, C), generator=draw).float()
    outputs = (outputs + 300 * torch.nn.functional.one_hot(targets, C)) / 1000
    metrics = collection("Multiclass", num_classes=C, average="macro")
    if binned:
        for name in ("auroc", "average_precision"):
            kind: Any = type(metrics[name])
            metrics[name] = kind(
                num_classes=C, average="macro", thresholds=torch.linspace(0, 1, binned + 1).tolist()
            )
    true, guess = (np.eye(C)[of.numpy()] for of in (targets, outputs.argmax(1)))
    expected = reference(true, outputs.numpy(), guess)
    found, of_stored = track(metrics, outputs, targets), stored("multiclass", outputs, targets)
    if binned:
        assert found == pytest.approx({**expected, "loss": 0}, abs=1e-5, nan_ok=True)
        return
    expect(found, of_stored, metrics, expected)


@settings(max_examples=20, deadline=None)
@given(
    labels=st.lists(st.sampled_from([0, 0.3, 1]), min_size=C, max_size=C),
    num=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_labels(labels: list[float], num: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    targets = (torch.rand(num, C, generator=draw) < torch.tensor(labels)).long()
    outputs = (torch.rand(num, C, generator=draw) + targets) / 2
    metrics = collection("Multilabel", num_labels=C, average="macro")
    metrics["accuracy"] = tm.MultilabelAccuracy(C)
    guess = (outputs > 0.5).numpy()
    expected = reference(targets.numpy(), outputs.numpy(), guess)
    expected["accuracy"] = float((guess == targets.numpy()).mean())
    expect(track(metrics, outputs, targets), stored("multilabel", outputs, targets.char()), metrics, expected)


@pytest.mark.parametrize("positives", ["some", "none", "all"])
def test_two_classes(positives: str) -> None:
    chance = torch.rand(30, generator=torch.Generator().manual_seed(1))
    targets = {"some": torch.arange(30) % 2, "none": torch.zeros(30), "all": torch.ones(30)}[positives].long()
    metrics = collection("Binary")
    expected = reference(targets.numpy()[:, None], chance.numpy()[:, None], (chance > 0.5).numpy()[:, None])
    outputs = torch.stack([1 - chance, chance], 1)
    expect(track(metrics, chance, targets), stored("binary", outputs, targets), metrics, expected)


def test_weighted_means_and_others_stay_those_of_torchmetrics() -> None:
    draw = torch.Generator().manual_seed(0)
    outputs, targets = torch.rand(40, C, generator=draw), torch.randint(C - 1, (40,), generator=draw)
    metrics = {
        "weighted": tm.MulticlassF1Score(C, average="weighted"),
        "auroc": tm.MulticlassAUROC(C, average="weighted"),
        "micro": tm.MulticlassF1Score(C, average="micro"),
        "jaccard": tm.MulticlassJaccardIndex(C, average="macro"),
        "top": tm.MulticlassAccuracy(C, top_k=2, average="micro"),
        "specificity": tm.MulticlassSpecificity(C, average="macro"),
    }
    found = track(MetricCollection({**metrics}), outputs, targets)
    with pytest.warns(UserWarning, match="No positive samples"):
        area = multiclass_auroc(outputs, targets, C, average="none")
    shares = targets.bincount(minlength=C) / 40
    metrics.pop("auroc")
    for name, metric in metrics.items():
        assert found[name] == pytest.approx(float(metric(outputs, targets)), abs=1e-6), name
    assert found["auroc"] == pytest.approx(float((area * shares).sum()), abs=1e-6)
    assert score_of(metrics["top"]) == ""
