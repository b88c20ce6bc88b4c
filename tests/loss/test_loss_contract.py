"""What every loss of ours promises, one table for all."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from assay.loss.bce import BCE
from assay.loss.bce_with_logits import BCEWithLogits
from assay.loss.cross_entropy import CrossEntropy
from assay.loss.focal import Focal
from assay.loss.kl_div import KLDiv
from assay.loss.ldam import LDAM
from assay.loss.nt_xent import NTXent
from assay.loss.triplet import Triplet

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = [40, 7, 13]
B, C = 6, 3

MULTICLASS: dict[str, Callable[[], Any]] = {
    "cross_entropy": CrossEntropy,
    "cross_entropy smoothed": lambda: CrossEntropy(label_smoothing=0.1),
    "cross_entropy balanced": lambda: CrossEntropy(0.1, "balanced", COUNTS),
    "focal": Focal,
    "focal balanced": lambda: Focal(1.5, "balanced", COUNTS),
    "ldam": lambda: LDAM(COUNTS),
    "ldam balanced": lambda: LDAM(COUNTS, class_weight="balanced"),
    "kl_div": KLDiv,
}
OTHERS: dict[str, Callable[[], Any]] = {
    "bce_with_logits": BCEWithLogits,
    "bce_with_logits balanced": lambda: BCEWithLogits("balanced", COUNTS, num_train=100, task="multilabel"),
    "triplet": Triplet,
    "nt_xent": NTXent,
    "triplet normalized": lambda: Triplet(0.2, normalize=True),
}
EVERY = {**MULTICLASS, **OTHERS, "bce": BCE}


def targets_for(loss: Any, generator: torch.Generator) -> list[Tensor]:
    """Every sort of target the loss takes with outputs `[B, C]`."""
    if loss.kind == "views":
        return [torch.arange(B) % (B // 2)]
    if loss.kind == "binary":
        hot = torch.randint(2, (B, C), generator=generator)
        return [hot, hot.float()]
    hard = torch.randint(2 if loss.kind == "embedding" else C, (B,), generator=generator)
    soft = torch.rand(B, C, generator=generator)
    return [hard] if loss.kind == "embedding" else [hard, soft / soft.sum(1, keepdim=True)]


def outputs_for(loss: Any, outputs: Tensor) -> Tensor:
    return outputs.sigmoid() if isinstance(loss, BCE) else outputs


@pytest.mark.parametrize("name", MULTICLASS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), num_samples=st.integers(1, 9), size=st.sampled_from([0.1, 1.0, 10.0]))
def test_a_one_hot_row_is_its_class_index(name: str, seed: int, num_samples: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = size * torch.randn(num_samples, C, generator=generator, dtype=torch.float64)
    hard = torch.randint(C, (num_samples,), generator=generator)
    one_hot = F.one_hot(hard, C)
    loss = MULTICLASS[name]()
    torch.testing.assert_close(loss(logits, one_hot.double()), loss(logits, hard), rtol=1e-9, atol=1e-9)
    logits = logits.float()
    torch.testing.assert_close(loss(logits, one_hot.float()), loss(logits, hard), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_slopes_are_those_of_the_loss(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    loss = EVERY[name]().double()
    outputs = outputs_for(loss, torch.randn(B, C, generator=generator, dtype=torch.float64)).requires_grad_()
    for targets in targets_for(loss, generator):
        assert torch.autograd.gradcheck(lambda o, t=targets: loss(o, t), (outputs,))


@pytest.mark.parametrize("name", [*MULTICLASS, *OTHERS])
@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(
        st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, 1e6, -1e6]), min_size=B * C, max_size=B * C
    ),
    seed=st.integers(0, 2**32),
)
def test_large_outputs_give_finite_losses_and_slopes(name: str, values: list[float], seed: int) -> None:
    loss = EVERY[name]()
    for targets in targets_for(loss, torch.Generator().manual_seed(seed)):
        outputs = torch.tensor(values).reshape(B, C).requires_grad_()
        value = loss(outputs, targets)
        (slope,) = torch.autograd.grad(value, outputs)
        assert torch.isfinite(value)
        assert value.item() >= -1e-4
        assert torch.isfinite(slope).all()
        assert torch.isfinite(loss.probabilities(outputs)).all()


@pytest.mark.parametrize("name", EVERY)
def test_half_precision_is_widened(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    loss = EVERY[name]()
    wide = outputs_for(loss, torch.randn(B, C, generator=generator))
    for targets in targets_for(loss, generator):
        for dtype in (torch.bfloat16, torch.float16):
            half = wide.to(dtype).requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = loss(half, targets)
            value.backward()
            assert value.dtype == torch.float32
            assert half.grad is not None
            assert half.grad.dtype == dtype
            torch.testing.assert_close(value, loss(half.float(), targets))


@pytest.mark.parametrize("name", EVERY)
def test_a_loss_turned_to_bfloat16_or_double_still_works(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    single = EVERY[name]()
    outputs = outputs_for(single, torch.randn(B, C, generator=generator))
    for targets in targets_for(single, generator):
        expected = single(outputs, targets)
        double = EVERY[name]().double()(outputs.double(), targets)
        assert double.dtype == torch.float64
        torch.testing.assert_close(double.float(), expected, rtol=1e-4, atol=1e-5)
        half = EVERY[name]().bfloat16()(outputs.bfloat16(), targets)
        assert torch.isfinite(half)


@pytest.mark.parametrize("inside", [True, False], ids=["built inside", "built outside"])
@pytest.mark.parametrize("name", EVERY)
def test_fake_tensors_pass_forwards_and_backwards(name: str, inside: bool) -> None:
    loss = EVERY[name]()
    shapes = [(t.shape, t.dtype) for t in targets_for(loss, torch.Generator().manual_seed(0))]
    with FakeTensorMode(allow_non_fake_inputs=not inside):
        if inside:
            loss = EVERY[name]()
        for shape, dtype in shapes:
            outputs = torch.empty(B, C, requires_grad=True)
            value = loss(outputs, torch.empty(shape, dtype=dtype))
            value.backward()
            assert value.shape == ()
            assert outputs.grad is not None
            assert loss.probabilities(outputs).shape == (B, C)


@pytest.mark.parametrize("name", EVERY)
def test_a_loss_says_what_it_stands_for_and_saves_nothing(name: str) -> None:
    loss = EVERY[name]()
    assert loss.kind in {"multiclass", "binary", "embedding", "views"}
    assert loss.state_dict() == {}
    assert type(loss).__final__
    assert copy.deepcopy(loss).state_dict() == {}


@pytest.mark.parametrize("name", MULTICLASS)
@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.zeros(4, 1), torch.zeros(4).long(), "bce_with_logits"),
        (torch.zeros(4), torch.zeros(4).long(), "one logit per class"),
        (torch.zeros(4, 3), torch.zeros(4), "hard targets must be integers"),
        (torch.zeros(4, 3), torch.zeros(4, 2), "soft targets"),
        (torch.zeros(4, 3), torch.zeros(4, 3).long(), "one class index a sample"),
        (torch.zeros(4, 3), torch.zeros(5).long(), "one class index a sample"),
        (torch.zeros(4, 3).long(), torch.zeros(4).long(), "floats"),
    ],
)
def test_shapes_that_do_not_fit(name: str, outputs: Tensor, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MULTICLASS[name]()(outputs, targets)
