from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.normalize import TargetScale

TARGETS = np.random.default_rng(0).normal([3e5, -2e-6, 1e6], [1e5, 1e-6, 1.0], (500, 3))
SCALER = StandardScaler().fit(TARGETS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_there_and_back_as_scikit_learn(dtype: torch.dtype) -> None:
    scale = TargetScale(SCALER.mean_.tolist(), SCALER.scale_.tolist())
    targets = torch.from_numpy(TARGETS).to(dtype)
    standard = scale.standardize(targets)
    assert standard.dtype == dtype
    exact = 1e-12 if dtype == torch.float64 else 0.07  # a million in 32 bits is known to 0.06
    np.testing.assert_allclose(standard.numpy(), SCALER.transform(TARGETS), atol=exact)
    back = scale.restore(standard)
    rounding = torch.finfo(dtype).eps * 4 * (np.abs(SCALER.mean_) + np.abs(TARGETS) + SCALER.scale_)
    assert (np.abs(back.numpy() - targets.numpy()) <= rounding).all()


def test_half_precision_is_widened() -> None:
    scale = TargetScale([3e5], [1e5])
    assert scale.restore(torch.zeros(2, 1, dtype=torch.bfloat16)).tolist() == [[3e5], [3e5]]
    assert scale.standardize(torch.zeros(1, 1, dtype=torch.float16)).dtype == torch.float32


def test_nothing_to_do_and_nothing_varying() -> None:
    outputs = torch.rand(3, 1)
    assert not TargetScale()
    assert TargetScale().restore(outputs) is outputs
    assert TargetScale([2.0], [0.0]).standardize(torch.tensor([[2.0], [3.0]])).tolist() == [[0.0], [1.0]]
