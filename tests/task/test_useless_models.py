"""What gives away a model that has learnt nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import r2_score  # type: ignore[import-untyped]  # it has no stubs
from tests.task.made_predictions import of_classes, of_embeddings, of_labels, of_values

from assay.task.evaluator import class_warnings
from assay.task.predictions import StoredPredictions
from assay_serve.kept_predictions import warnings_of

N = 450
KEYS = tuple(map(str, range(20)))


def one_class(targets: np.ndarray | None = None) -> StoredPredictions:
    made = of_classes(3, N, ("cat", "dog", "owl"))
    outputs = np.eye(3, dtype=np.float32)[np.zeros(N, int)]
    return replace(made, outputs=outputs, targets=made.targets if targets is None else targets)


def tokens(bits: float) -> StoredPredictions:
    targets = np.random.default_rng(0).choice(4, (20, 30), p=[0.5, 0.25, 0.125, 0.125])
    outputs = np.full((20, 30), bits, np.float32)
    return StoredPredictions("language_modelling", "surprisals", KEYS, outputs, targets, ())


def masks(matrix: list[int]) -> StoredPredictions:
    outputs = np.tile(np.array(matrix, np.float32), (20, 1))
    return StoredPredictions("segmentation", "confusions", KEYS, outputs, outputs.sum(1), ("sky", "tree"))


def heads() -> StoredPredictions:
    generator = np.random.default_rng(9)
    targets = np.stack([generator.integers(0, 2, 20), generator.normal(size=20)], 1).astype(np.float32)
    outputs = np.stack([np.ones(20), np.zeros(20), targets[:, 1]], 1).astype(np.float32)
    return StoredPredictions("multitask", "values", KEYS, outputs, targets, ("kind=cat", "kind=dog", "size"))


def constant(made: StoredPredictions, row: object, targets: np.ndarray | None = None) -> StoredPredictions:
    outputs = np.broadcast_to(np.array(row, np.float32), made.outputs.shape)
    return replace(made, outputs=outputs, targets=made.targets if targets is None else targets)


def not_finite() -> StoredPredictions:
    made = of_classes(4)
    made.outputs[3] = np.nan
    return made


RARE = np.array([1, 1, *[0] * (N - 2)])
VALUES = of_values(1, 45)
ENTROPY = "the model needs 3.000 bits per token of the 20 test samples: not better than giving each token"


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        *((made, "") for made in (of_classes(), of_classes(2), of_labels(), of_values(), of_values(3))),
        *((made, "") for made in (of_embeddings(), tokens(1.2), masks([50, 10, 10, 30]))),
        (one_class(), "the model predicts 'cat' for each of the 450 test samples"),
        (one_class(np.zeros(N, np.int64)), ""),
        (one_class(RARE), ""),  # two samples of another class, which a good model may well miss
        (masks([60, 0, 40, 0]), "the model predicts 'sky' for each of the pixels of the 20 test samples"),
        (constant(VALUES, 1003.25), "the model predicts a value of 1,003.2 for each of the 45 test samples"),
        (constant(VALUES, 7, np.full((45, 1), 7, np.float32)), ""),
        (constant(of_labels(), 0), "the model predicts no label for each of the 300 test samples"),
        (constant(of_labels(), [1, 0, 1]), "the model predicts 'l0' + 'l2' for each of the 300 test samples"),
        (constant(of_embeddings(), 1), "the model gives each of the 200 test samples the same embedding"),
        (tokens(3), ENTROPY),
        (not_finite(), "the model's outputs are not finite for 1 of the 300 test samples"),
        (heads(), "kind: the model predicts 'cat' for each of the 20 test samples"),
    ],
)
def test_one_answer_for_all(predictions: StoredPredictions, expected: str) -> None:
    warnings = warnings_of(predictions)
    assert len(warnings) == bool(expected)
    assert "".join(warnings).startswith(expected)


def test_less_right_than_the_most_frequent_class() -> None:
    generator = np.random.default_rng(5)
    right, guessed = ((generator.random(N) < share).astype(int) for share in (0.2, 0.3))
    assert class_warnings(right, guessed, ("no", "yes"), "the 450 test samples") == [
        f"the model is right for {100 * (right == guessed).mean():.1f} % of the 450 test samples: not better "
        f"than always predicting 'no', the most frequent class ({100 * (right == 0).mean():.1f} %)"
    ]


def test_finding_rare_classes_at_the_price_of_false_alarms_is_worth_something() -> None:
    generator = np.random.default_rng(6)
    right = (generator.random(2000) < 0.02).astype(int)
    said = np.where(right == 1, generator.random(2000) < 0.9, generator.random(2000) < 0.1).astype(int)
    assert (said == right).mean() < (right == 0).mean()
    assert class_warnings(right, said, (), "samples") == []


def test_chance_is_told_from_knowledge_as_a_permutation_test_does() -> None:
    """The share of guesses without knowledge that pass for knowledge is the test's 5 %."""
    generator = np.random.default_rng(7)
    right = generator.choice(3, 400, p=[0.6, 0.3, 0.1])
    guesses = [generator.choice(3, 400, p=[0.4, 0.3, 0.3]) for _ in range(2000)]
    silent = [not class_warnings(right, one, (), "samples") for one in guesses]
    assert np.mean(silent) == pytest.approx(0.05, abs=0.015)


def test_a_target_whose_mean_would_be_better() -> None:
    generator = np.random.default_rng(8)
    right = generator.normal(size=(100, 2)).astype(np.float32)
    said = np.stack([right[:, 0] + 0.1, generator.normal(size=100)], 1).astype(np.float32)
    keys = tuple(map(str, range(100)))
    assert warnings_of(StoredPredictions("regression", "values", keys, said, right, ("a", "b"))) == [
        "always predicting the mean of 'b' would be at least as good as the model on the 100 test samples "
        f"(R² {r2_score(right[:, 1], said[:, 1]):.3g})"
    ]


def test_one_of_two_classes_for_all_says_what_to_type() -> None:
    targets = (np.arange(200) % 10 == 0).astype(np.int64)
    outputs = np.tile(np.array([0.9, 0.1], np.float32), (200, 1))
    keys = tuple(map(str, range(200)))
    rare = StoredPredictions("binary", "probabilities", keys, outputs, targets, ("no", "yes"))
    assert warnings_of(rare) == [
        "the model predicts 'no' for each of the 200 test samples; train with data.balance=weights, or try "
        "assay eval RUN --threshold f1"
    ]
