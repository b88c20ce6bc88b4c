from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.digits import Digits


def test_what_scikit_learn_has() -> None:
    source = Digits()
    samples, table = source.read()["all"], load_digits()
    assert (samples.inputs.shape, samples.inputs.dtype) == ((1797, 1, 8, 8), torch.float32)
    np.testing.assert_array_equal(samples.inputs[:, 0].numpy(), table.images)
    assert samples.targets.tolist() == table.target.tolist()
    assert source.class_names == tuple("0123456789")
