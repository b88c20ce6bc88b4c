"""Single predictions: what a user asks them, and what is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from assay.task.prediction.prediction_batch import (
    ClassPredictions,
    EmbeddingPredictions,
    LabelPredictions,
    ValuePredictions,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAMES = ("a", "b\x1b[31m", "c")


def numbers(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def test_a_class() -> None:
    one = ClassPredictions(numbers(0.1, 0.7, 0.2), NAMES)
    assert (one.index, one.label) == (1, "b\x1b[31m")
    assert one.probability == pytest.approx(0.7)
    assert [name for name, _ in one.top_k(2)] == ["b\x1b[31m", "c"]
    assert len(one.top_k(9)) == 3
    assert str(one) == "b\\x1b[31m 0.7000, c 0.2000, a 0.1000"


def test_labels() -> None:
    one = LabelPredictions(numbers(0.6, 0.5, 0.9), NAMES)
    assert one.labels == ("a", "c"), "above 0.5, not at it"
    assert str(one) == "a 0.6000, b\\x1b[31m 0.5000, c 0.9000"


def test_values_and_embeddings() -> None:
    assert float(ValuePredictions(numbers(2.5), ("price",))) == 2.5
    two = ValuePredictions(numbers(2.5, 3), ("price", "rooms"))
    assert str(two) == "price 2.5, rooms 3"
    with pytest.raises(ValueError, match="size 1"):
        two.value  # noqa: B018 - the point
    assert str(EmbeddingPredictions(numbers(1, 2))) == "[1. 2.]"
