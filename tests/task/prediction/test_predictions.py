"""Predictions whose parts do not go together are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.task.prediction.predictions import Predictions


def predictions(**changed: Any) -> Predictions:
    values: dict[str, Any] = {
        "task": "multiclass",
        "kind": "probabilities",
        "keys": ("0", "1"),
        "outputs": np.full((2, 3), 1 / 3, np.float32),
        "targets": np.array([0, 2]),
        "class_names": ("a", "b", "c"),
    }
    return Predictions(**values | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "logits"}, "one of probabilities"),
        ({"outputs": np.zeros((2, 3))}, r"float64 \[2, 3\]"),
        ({"outputs": np.zeros(2, np.float32)}, r"float32 \[2\]"),
        ({"keys": ("0",)}, "1 keys"),
        ({"class_names": ("a", "b")}, "2 class names for 3 outputs"),
        ({"targets": np.array([0, 3])}, "0 to 2 was expected"),
        ({"targets": np.array([-1, 0])}, "0 to 2 was expected"),
        ({"targets": np.array([0, 3]), "class_names": ()}, "0 to 2 was expected"),
        ({"targets": np.array([0.0, 1.0])}, "int64"),
        ({"targets": np.array([0])}, "of 2 samples"),
        ({"task": "multilabel", "targets": np.array([[0, 1, 2], [0, 0, 0]], np.int8)}, "0 to 1"),
        ({"task": "multilabel", "targets": np.zeros((2, 2), np.int8)}, "2 targets for 3 outputs"),
        ({"task": "regression", "kind": "values", "targets": np.array([0, 1])}, "float32"),
        ({"num_evaluated": 1}, "2 of 1"),
    ],
)
def test_what_does_not_go_together_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predictions(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"targets": None},
        {
            "task": "binary",
            "outputs": np.zeros((2, 2), np.float32),
            "class_names": ("no", "yes"),
            "targets": None,
        },
        {"task": "multilabel", "targets": np.zeros((2, 3), np.int8)},
        {"task": "regression", "kind": "values", "targets": np.zeros((2, 3), np.float32), "class_names": ()},
        {"kind": "embeddings", "outputs": np.zeros((2, 64), np.float32)},
        {"keys": (), "outputs": np.zeros((0, 3), np.float32), "targets": np.zeros(0, np.int64)},
        {"num_evaluated": 5},
    ],
)
def test_what_goes_together_is_taken(changed: dict[str, Any]) -> None:
    predictions(**changed)
