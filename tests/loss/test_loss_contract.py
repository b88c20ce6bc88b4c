"""What every loss promises, and every option of conf/loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from assay.loss.bce_with_logits import BCEWithLogits
from assay.loss.cross_entropy import CrossEntropy
from assay.loss.dice import Dice
from assay.loss.focal import Focal
from assay.loss.kl_div import KLDiv
from assay.loss.ldam import LDAM
from assay.loss.multitask import Multitask
from assay.loss.nt_xent import NTXent
from assay.loss.targets import is_mean_over_samples, loss_terms
from assay.loss.triplet import Triplet
from assay.metrics.tracker import Tracker
from assay.paths import CONF_DIR

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


EVERY = {**MULTICLASS, **OTHERS}


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
    outputs = torch.randn(B, C, generator=generator, dtype=torch.float64).requires_grad_()
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
    wide = torch.randn(B, C, generator=generator)
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


@pytest.mark.parametrize("name", MULTICLASS)
@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.zeros(4, 1), torch.zeros(4).long(), "bce_with_logits"),
        (torch.zeros(4), torch.zeros(4).long(), "one logit per class"),
        (torch.zeros(4, 3), torch.zeros(4), "expected class indices"),
        (torch.zeros(4, 3), torch.zeros(4, 2), "expected class indices"),
        (torch.zeros(4, 3), torch.zeros(4, 3).long(), "expected class indices"),
        (torch.zeros(4, 3), torch.zeros(5).long(), "expected class indices"),
        (torch.zeros(4, 3).long(), torch.zeros(4).long(), "floats"),
    ],
)
def test_shapes_that_do_not_fit(name: str, outputs: Tensor, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MULTICLASS[name]()(outputs, targets)


CLASSES = torch.tensor([0, 1, 2, 2, 0, 1, 1])


YES = torch.tensor([0, 1, 1, 0, 1, 1, 1])


MASKS = torch.randint(3, (7, 2, 4), generator=torch.Generator().manual_seed(2))


WEIGHT = [1.0, 2.0, 5.0]


LOSSES: dict[str, tuple[nn.Module, Tensor]] = {
    "bce_with_logits": (BCEWithLogits(3.0), YES),
    "cross_entropy": (CrossEntropy(label_smoothing=0.1), CLASSES),
    "focal": (Focal(), CLASSES),
    "kl_div": (KLDiv(), torch.rand(7, 3, generator=torch.Generator().manual_seed(1)).softmax(1)),
    "ldam": (LDAM([2, 3, 2]), CLASSES),
    "dice": (Dice(ignore_index=1), MASKS),
    "dice_cross_entropy": (Dice(ignore_index=1, cross_entropy=1.0), MASKS),
    "cross_entropy of masks": (CrossEntropy(ignore_index=1), MASKS),
    "weighted cross_entropy of masks": (CrossEntropy(class_weight=WEIGHT, ignore_index=1), MASKS),
    "focal of masks": (Focal(ignore_index=1), MASKS),
    "triplet": (Triplet(), CLASSES),
    "multitask": (
        Multitask(["kind=a", "kind=b", "size"], weights={"size": 0.5}),
        torch.tensor([[0.0, 1], [1, 2], [1, 3], [0, 4], [1, 5], [0, 6], [1, 7]]),
    ),
    "weighted multitask": (
        Multitask(["kind=a", "kind=b", "size"], {"kind": CrossEntropy(class_weight=[1.0, 4.0])}),
        torch.tensor([[0.0, 1], [1, 2], [1, 3], [0, 4], [1, 5], [0, 6], [1, 7]]),
    ),
    "nt_xent": (NTXent(), CLASSES),
    "mse": (nn.MSELoss(), torch.arange(7.0)),
    "l1": (nn.L1Loss(), torch.arange(7.0)),
    "huber": (nn.HuberLoss(), torch.arange(7.0)),
    "weighted cross_entropy": (CrossEntropy(class_weight=WEIGHT), CLASSES),
    "weighted focal": (Focal(class_weight=WEIGHT), CLASSES),
    "weighted ldam": (LDAM([2, 3, 2], class_weight=WEIGHT), CLASSES),
    "sum": (nn.MSELoss(reduction="sum"), torch.arange(7.0)),
    "torch's weighted": (nn.CrossEntropyLoss(torch.tensor(WEIGHT)), CLASSES),
    "torch's": (nn.CrossEntropyLoss(), CLASSES),
}


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in ("triplet", "nt_xent", "sum")])
@pytest.mark.parametrize("sizes", [(7,), (1, 6), (4, 3), (1,) * 7], ids=str)
def test_the_loss_of_a_subset_is_that_of_any_batches_of_it(name: str, sizes: tuple[int, ...]) -> None:
    loss, targets = LOSSES[name]
    width = () if targets.ndim == 1 and (targets is YES or targets.is_floating_point()) else (3,)
    width = (3, *targets.shape[1:]) if targets is MASKS else width
    outputs = torch.rand(7, *width, generator=torch.Generator().manual_seed(0))
    tracker = Tracker(MetricCollection({}), "val", num_terms=getattr(loss, "num_terms", 1))
    for rows in torch.split(torch.arange(7), list(sizes)):
        value, weight = loss_terms(loss, outputs[rows], targets[rows])
        tracker.update(value, outputs[rows], targets[rows], weight)
    torch.testing.assert_close(tracker.compute()["val/loss"], loss(outputs, targets))


def test_each_loss_that_is_shipped_is_here() -> None:
    assert {path.stem for path in (CONF_DIR / "loss").glob("*.yaml")} <= LOSSES.keys()


@pytest.mark.parametrize("name", LOSSES)
def test_pieces_add_up_where_the_loss_says_so(name: str) -> None:
    loss, targets = LOSSES[name]
    width = () if targets.ndim == 1 and (targets is YES or targets.is_floating_point()) else (3,)
    width = (3, *targets.shape[1:]) if targets is MASKS else width
    outputs = torch.rand(7, *width, generator=torch.Generator().manual_seed(0))
    parts = (slice(4), 4 / 7), (slice(4, 7), 3 / 7)
    pieces = sum(loss(outputs[part], targets[part]) * share for part, share in parts)
    adds_up = torch.isclose(torch.as_tensor(pieces), loss(outputs, targets), rtol=1e-5)
    assert bool(adds_up) is is_mean_over_samples(loss)
