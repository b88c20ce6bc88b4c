from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.errors import DataError
from assay.task.prediction.predictions import Predictions
from assay.task.task_of import task_of

REGRESSION = task_of("regression")
PROGRESSION = load_diabetes().target


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (221, 2), (17, 2, 13)], ids=str)
def test_numbers_of_any_shape(shape: tuple[int, ...]) -> None:
    values = PROGRESSION.reshape(shape)
    targets = REGRESSION.as_targets(torch.from_numpy(values))
    assert targets.dtype == torch.float32
    np.testing.assert_allclose(targets.numpy(), values.reshape(len(values), -1), rtol=1e-6)
    REGRESSION.check("all", targets, ())
    assert REGRESSION.sizes(targets, ()) == {"num_targets": values.size // len(values)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_batch_has_the_type_that_is_asked_for(dtype: torch.dtype) -> None:
    targets = REGRESSION.batch_targets(torch.from_numpy(PROGRESSION[:5]), dtype)
    assert (targets.dtype, targets.shape) == (dtype, (5, 1))
    assert REGRESSION.hard_targets(targets) is targets


@pytest.mark.parametrize(("constant", "named"), [(0, " number 0"), (1, " number 1")])
def test_a_target_that_never_varies(constant: int, named: str) -> None:
    targets = torch.rand(9, 2)
    REGRESSION.check_subsets({"train": targets, "val": torch.zeros(9, 2)}, ())
    targets[:, constant] = 2.5
    with pytest.raises(DataError, match=f"the target{named} is 2.5 in all training samples"):
        REGRESSION.check_subsets({"train": targets}, ())


def test_fake_numbers_could_be_probabilities_or_counts() -> None:
    targets = REGRESSION.fake_targets(1000, 3)
    assert targets.shape == (1000, 3)
    assert 0 < targets.min() < targets.max() < 1
    assert len(np.unique(targets.numpy(), axis=0)) == 1000


def test_in_words() -> None:
    assert [REGRESSION.in_words({"num_targets": size}) for size in (1, 2)] == [
        "1 real-valued target",
        "2 real-valued targets",
    ]


def test_the_most_wrong_of_targets_of_other_units_is_measured_in_deviations() -> None:
    targets = np.stack([np.linspace(1e5, 9e5, 9), np.linspace(1, 9, 9)], 1).astype(np.float32)
    outputs = targets.copy()
    outputs[2, 0] += 1e4  # a small part of a price
    outputs[5, 1] += 5  # days off
    keys = tuple(map(str, range(9)))
    predictions = Predictions("regression", "values", keys, outputs, targets, ("price", "days"))
    badness = REGRESSION.badness(predictions)
    assert badness.argmax() == 5
    assert badness[5] == pytest.approx(5 / targets[:, 1].std())
    assert REGRESSION.said(predictions, 5) == "price 600,000 (is 600,000); days 11 (is 6)"
    one = Predictions("regression", "values", keys, outputs[:, :1], targets[:, :1], ("price",))
    assert REGRESSION.badness(one)[2] == pytest.approx(1e4), "of one target in its own unit"
