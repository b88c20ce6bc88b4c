from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.loss.cross_entropy import CrossEntropy
from assay.loss.focal import Focal
from assay.loss.ldam import LDAM
from assay.loss.targets import ClassWeight

COUNTS = [40, 7, 13]


def test_balanced_is_scikit_learns() -> None:
    labels = np.repeat(np.arange(3), COUNTS)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(ClassWeight("balanced", COUNTS).value.numpy(), expected, rtol=1e-6)


def test_an_empty_class_cannot_be_balanced() -> None:
    with pytest.raises(ValueError, match=r"class 1.*no training sample.*list of numbers"):
        ClassWeight("balanced", [3, 0, 2])


def test_balanced_needs_counts() -> None:
    with pytest.raises(ValueError, match="needs class_counts"):
        ClassWeight("balanced")


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("balance", "got 'balance'"),
        ([1.0, -1.0, 1.0], "at least 0"),
        ([0.0, 0.0, 0.0], "above 0"),
        ([1.0, float("nan"), 1.0], "at least 0"),
        ([1.0, 2.0], "one number per class"),
    ],
)
def test_weights_that_cannot_be_used(class_weight: str | list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassWeight(class_weight, COUNTS)


def test_more_weights_than_logits() -> None:
    with pytest.raises(ValueError, match="3 numbers, the model returns 2 logits"):
        CrossEntropy(class_weight=[1.0, 2.0, 3.0])(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("make", [CrossEntropy, Focal, LDAM])
def test_a_weight_set_late_is_a_weight_given_at_the_start(make: type[CrossEntropy | Focal | LDAM]) -> None:
    weight = torch.tensor([0.5, 2.0, 0.5])
    late, start = make(class_counts=COUNTS), make(class_counts=COUNTS, class_weight=weight.tolist())
    logits, targets = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    before = late(logits, targets)
    late.set_class_weight(weight)
    assert not torch.allclose(late(logits, targets), before, rtol=1e-3)
    torch.testing.assert_close(late(logits, targets), start(logits, targets))
    late.set_class_weight(None)
    torch.testing.assert_close(late(logits, targets), before)


@pytest.mark.parametrize("make", [CrossEntropy, Focal, LDAM])
def test_weights_never_stand_in_the_way_of_a_checkpoint(make: type[CrossEntropy | Focal | LDAM]) -> None:
    plain, weighted = make(class_counts=COUNTS), make(class_counts=COUNTS)
    weighted.set_class_weight(torch.tensor([1.0, 2.0, 3.0]))
    assert weighted.state_dict() == {}
    plain.load_state_dict(weighted.state_dict(), strict=True)
    weighted.load_state_dict(plain.state_dict(), strict=True)


@pytest.mark.parametrize("make", [CrossEntropy, Focal, LDAM])
def test_weights_follow_the_loss_to_its_device(make: type[CrossEntropy | Focal | LDAM]) -> None:
    loss = make(class_counts=COUNTS, class_weight="balanced").to("meta")
    assert {buffer.device.type for buffer in loss.buffers()} == {"meta"}
    for weight in (None, torch.tensor([1.0, 2.0, 3.0])):
        loss.set_class_weight(weight)
        assert {buffer.device.type for buffer in loss.buffers()} == {"meta"}
    soft = torch.rand(4, 3, device="meta")
    assert loss(torch.rand(4, 3, device="meta"), soft).shape == ()


@pytest.mark.parametrize("weight", [torch.ones(2), torch.ones(3, 1), torch.ones(())])
def test_a_late_weight_of_the_wrong_shape(weight: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="one number per class"):
        CrossEntropy(class_counts=COUNTS).set_class_weight(weight)


def test_a_batch_of_weightless_classes_has_no_loss() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = CrossEntropy(class_weight=[0.0, 1.0, 1.0])(logits, torch.zeros(4, dtype=torch.long))
    (slope,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert not slope.any()
