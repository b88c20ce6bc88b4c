from __future__ import annotations

import pytest
import torch

from assay.loss.targets import class_targets

LOGITS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.bool])
def test_hard_targets_become_what_cross_entropy_takes(dtype: torch.dtype) -> None:
    hard = torch.tensor([0, 1, 1, 0]).to(dtype)
    logits, targets = class_targets(LOGITS, hard)
    assert torch.equal(logits, LOGITS)
    assert targets.dtype == torch.int64
    assert targets.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_soft_targets_take_the_precision_of_the_logits(dtype: torch.dtype) -> None:
    logits, targets = class_targets(LOGITS.to(dtype), LOGITS.double().softmax(1))
    assert logits.dtype == targets.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize(
    ("outputs", "targets", "says"),
    [
        (torch.zeros(4, 1), torch.zeros(4).long(), "loss=bce_with_logits"),
        (torch.zeros(4), torch.zeros(4).long(), "one logit per class"),
        (torch.zeros(4, 3), torch.zeros(4), "loss=mse"),
        (torch.zeros(4, 3), torch.zeros(4, 2), "soft targets"),
        (torch.zeros(4, 3), torch.zeros(3).long(), "one class index a sample"),
        (torch.zeros(4, 3), torch.zeros(4, 3).long(), "for several labels a sample"),
        (torch.zeros(4, 3).long(), torch.zeros(4).long(), "as floats"),
    ],
)
def test_what_does_not_fit_says_what_would(outputs: torch.Tensor, targets: torch.Tensor, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        class_targets(outputs, targets)
