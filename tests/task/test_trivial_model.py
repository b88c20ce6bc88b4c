"""What gives away a model that has learnt nothing, against scikit-learn's dummies and simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import r2_score  # type: ignore[import-untyped]  # it has no stubs
from tests.task.made_predictions import of_classes, of_embeddings, of_labels, of_values

from assay.run.kept_predictions import warnings_of
from assay.task.prediction.predictions import Predictions
from assay.task.trivial_model import class_warnings, value_warnings

N = 450


def warnings(predictions: Predictions) -> list[str]:
    return warnings_of(predictions)


def one_class(label: int) -> Predictions:
    made = of_classes(3, N, ("cat", "dog", "owl"))
    return replace(made, outputs=np.eye(3, dtype=np.float32)[np.full(N, label)])


def tokens(bits: float) -> Predictions:
    generator = np.random.default_rng(0)
    targets = generator.choice(4, (20, 30), p=[0.5, 0.25, 0.125, 0.125])
    outputs = np.full((20, 30), bits, np.float32)
    return Predictions("language_modelling", "surprisals", tuple(map(str, range(20))), outputs, targets, ())


def masks(matrix: list[int]) -> Predictions:
    outputs = np.tile(np.array(matrix, np.float32), (20, 1))
    keys = tuple(map(str, range(20)))
    return Predictions("segmentation", "confusions", keys, outputs, outputs.sum(1), ("sky", "tree"))


@pytest.mark.parametrize(
    "predictions",
    [of_classes(), of_classes(2), of_labels(), of_values(), of_values(3), of_embeddings(), tokens(1.2)],
    ids=lambda one: f"{one.task}-{one.kind}",
)
def test_a_model_that_knows_something_is_not_told_of(predictions: Predictions) -> None:
    assert warnings(predictions) == []


def test_masks_that_show_something_are_not_told_of() -> None:
    assert warnings(masks([50, 10, 10, 30])) == []


def test_one_class_for_all() -> None:
    assert warnings(one_class(0)) == ["the model predicts 'cat' for each of the 450 test samples"]


def test_of_samples_that_are_all_of_one_class_nothing_is_said() -> None:
    right = replace(one_class(1), targets=np.ones(N, np.int64))
    assert warnings(right) == []
    rare = np.ones(N, np.int64)
    rare[:2] = 0  # which a good model may well miss
    assert warnings(replace(right, targets=rare)) == []


def test_one_class_for_all_pixels() -> None:
    assert warnings(masks([60, 0, 40, 0])) == [
        "the model predicts 'sky' for each of the pixels of the 20 test samples"
    ]


def test_less_right_than_the_most_frequent_class() -> None:
    generator = np.random.default_rng(5)
    right = (generator.random(N) < 0.2).astype(int)
    guessed = (generator.random(N) < 0.3).astype(int)
    told = class_warnings(right, guessed, ("no", "yes"), "the 450 test samples")
    assert told == [
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
    assert max((one == right).mean() for one in guesses) < (right == 0).mean()
    assert np.mean(silent) == pytest.approx(0.05, abs=0.015)


def test_one_number_for_all() -> None:
    made = of_values(1, 45)
    assert warnings(replace(made, outputs=np.full((45, 1), 1003.25, np.float32))) == [
        "the model predicts a value of 1,003.2 for each of the 45 test samples"
    ]
    same = replace(made, outputs=made.outputs * 0 + 7, targets=np.full((45, 1), 7, np.float32))
    assert warnings(same) == []


def test_a_target_whose_mean_would_be_better() -> None:
    generator = np.random.default_rng(8)
    right = generator.normal(size=(100, 2))
    said = np.stack([right[:, 0] + 0.1, generator.normal(size=100)], 1)
    r2 = r2_score(right[:, 1], said[:, 1])
    assert value_warnings(right, said, ("a", "b"), "the 100 test samples") == [
        "always predicting the mean of 'b' would be at least as good as the model on the 100 test samples "
        f"(R² {r2:.3g})"
    ]


def test_the_same_labels_for_all() -> None:
    made = of_labels()
    none = replace(made, outputs=made.outputs * 0)
    assert warnings(none) == ["the model predicts no label for each of the 300 test samples"]
    two = replace(made, outputs=np.tile(np.array([1, 0, 1], np.float32), (300, 1)))
    assert warnings(two) == ["the model predicts 'l0' + 'l2' for each of the 300 test samples"]


def test_one_embedding_for_all() -> None:
    made = of_embeddings()
    assert warnings(replace(made, outputs=np.ones_like(made.outputs))) == [
        "the model gives each of the 200 test samples the same embedding"
    ]


def test_tokens_as_surprising_as_without_what_comes_before() -> None:
    targets = tokens(0).targets
    assert targets is not None
    counts = np.bincount(targets.ravel())
    entropy = float(-(counts / 600 @ np.log2(counts / 600)))
    (told,) = warnings(tokens(entropy + 0.01))
    assert told.startswith(f"the model needs {entropy + 0.01:.3f} bits per token of the 20 test samples: not")


def test_outputs_that_are_not_finite() -> None:
    made = of_classes(4)
    outputs = made.outputs.copy()
    outputs[3] = np.nan
    assert warnings(replace(made, outputs=outputs)) == [
        "the model's outputs are not finite for 1 of the 300 test samples"
    ]


def test_each_target_of_several() -> None:
    generator = np.random.default_rng(9)
    right = np.stack([generator.integers(0, 2, 60), generator.normal(size=60)], 1).astype(np.float32)
    outputs = np.stack([np.ones(60), np.zeros(60), right[:, 1]], 1).astype(np.float32)
    names = ("kind=cat", "kind=dog", "size")
    made = Predictions("multitask", "values", tuple(map(str, range(60))), outputs, right, names)
    assert warnings(made) == ["kind: the model predicts 'cat' for each of the 60 test samples"]
