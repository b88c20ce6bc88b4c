from __future__ import annotations

import numpy as np
import pytest

from assay.task.prediction.prediction_batch import (
    ClassPredictions,
    MultitaskPredictions,
    ValuePredictions,
)

NAMES = ("kind=a", "kind=b", "size")
OUTPUTS = np.array([[0.75, 0.25, 1.5], [0.1, 0.9, 2.5], [0.5, 0.5, -1]], np.float32)


@pytest.fixture
def predictions() -> MultitaskPredictions:
    return MultitaskPredictions(OUTPUTS, NAMES)


def test_each_target_is_predicted_in_its_own_form(predictions: MultitaskPredictions) -> None:
    kind, size = predictions.of("kind"), predictions.of("size")
    assert isinstance(kind, ClassPredictions)
    assert isinstance(size, ValuePredictions)
    assert kind.labels == ["a", "b", "a"]
    assert size.values[:, 0].tolist() == [1.5, 2.5, -1.0]
    with pytest.raises(KeyError):
        predictions.of("colour")


def test_of_one_sample(predictions: MultitaskPredictions) -> None:
    assert len(predictions) == 3
    one = predictions[1]
    kind, size = one["kind"], one["size"]
    assert isinstance(kind, ClassPredictions)
    assert isinstance(size, ValuePredictions)
    assert (kind.label, float(size)) == ("b", 2.5)
    assert str(one) == "kind: b 0.9000, a 0.1000; size 2.5"
    assert [str(sample) for sample in predictions[:2]] == [str(predictions[0]), str(one)]


def test_columns_of_a_table(predictions: MultitaskPredictions) -> None:
    frame = predictions.to_frame(top_k=1)
    assert list(frame) == ["kind", "kind probability", "kind probability a", "kind probability b", "size"]
    assert frame["kind"].tolist() == ["a", "b", "a"]
    np.testing.assert_array_equal(frame["size"], OUTPUTS[:, 2])
