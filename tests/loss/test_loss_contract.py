"""What every loss promises, and every option of conf/loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
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
from assay.testing import check_loss

if TYPE_CHECKING:
    from collections.abc import Callable

N, C = 7, 3
COUNTS = [40, 7, 13]
WEIGHT = [1.0, 2.0, 5.0]
HEADS = ["kind=a", "kind=b", "size"]
LOSSES: dict[str, Callable[[], Any]] = {
    "bce_with_logits": lambda: BCEWithLogits(3.0),
    "bce_with_logits balanced": lambda: BCEWithLogits("balanced", COUNTS, num_train=100, task="multilabel"),
    "cross_entropy": CrossEntropy,
    "cross_entropy smoothed": lambda: CrossEntropy(label_smoothing=0.1),
    "cross_entropy weighted": lambda: CrossEntropy(0.1, WEIGHT),
    "cross_entropy of masks": lambda: CrossEntropy(ignore_index=1),
    "cross_entropy of masks, weighted": lambda: CrossEntropy(class_weight=WEIGHT, ignore_index=1),
    "focal": Focal,
    "focal balanced": lambda: Focal(1.5, "balanced", COUNTS),
    "focal of masks": lambda: Focal(ignore_index=1),
    "ldam": lambda: LDAM(COUNTS),
    "ldam balanced": lambda: LDAM(COUNTS, class_weight="balanced"),
    "kl_div": KLDiv,
    "dice": lambda: Dice(ignore_index=1),
    "dice_cross_entropy": lambda: Dice(ignore_index=1, cross_entropy=1.0),
    "dice_nnunet": lambda: Dice(
        1e-5, ignore_index=1, cross_entropy=1.0, batch=True, background=False, squares=False
    ),
    "triplet": Triplet,
    "triplet normalized": lambda: Triplet(0.2, normalize=True),
    "nt_xent": NTXent,
    "multitask": lambda: Multitask(HEADS, weights={"size": 0.5}),
    "multitask weighted": lambda: Multitask(HEADS, {"kind": CrossEntropy(class_weight=[1.0, 4.0])}),
    "mse": nn.MSELoss,
    "l1": nn.L1Loss,
    "huber": nn.HuberLoss,
    "torch's sum": lambda: nn.MSELoss(reduction="sum"),
    "torch's": nn.CrossEntropyLoss,
    "torch's weighted": lambda: nn.CrossEntropyLoss(torch.tensor(WEIGHT)),
}
MULTICLASS = [name for name, make in LOSSES.items() if getattr(make(), "kind", "") == "multiclass"]
OF_CLASSES = [name for name in MULTICLASS if "mask" not in name and "dice" not in name]

OVER_BATCHES = [
    name for name in LOSSES if not name.startswith(("dice_nnunet", "triplet", "nt_xent", "torch's sum"))
]


def draw(name: str, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and each form of targets that a loss takes with them."""
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(N, C, generator=generator)
    classes = torch.randint(C, (N,), generator=generator)
    soft = torch.rand(N, C, generator=generator).softmax(1)
    kind = getattr(LOSSES[name](), "kind", "")
    if "dice" in name or "masks" in name:
        masks = torch.randint(C, (N, 2, 4), generator=generator)
        return torch.randn(N, C, 2, 4, generator=generator), [masks]
    if kind == "binary":
        hot = torch.randint(2, (N, C), generator=generator)
        return outputs, [hot, hot.float()]
    if kind == "multitask":
        return outputs, [torch.stack([classes % 2, classes], 1).float()]
    if name in OF_CLASSES:
        return outputs, [classes, soft]
    return outputs, [classes if kind or ("torch's" in name and "sum" not in name) else soft]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_keeps_what_training_relies_on(name: str) -> None:
    outputs, forms = draw(name)
    for targets in forms:
        check_loss(LOSSES[name](), outputs, targets)


def test_each_loss_that_is_shipped_is_here() -> None:
    assert {path.stem for path in (CONF_DIR / "loss").glob("*.yaml")} <= LOSSES.keys()


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=20, deadline=None)
@given(
    values=st.lists(
        st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, 1e6, -1e6]), min_size=N * C, max_size=N * C
    ),
    seed=st.integers(0, 2**32),
)
def test_losses_and_slopes_of_any_outputs_are_finite(name: str, values: list[float], seed: int) -> None:
    loss = LOSSES[name]()
    outputs, forms = draw(name, seed)
    drawn = torch.tensor(values).reshape(N, C, *[1] * (outputs.ndim - 2)).expand_as(outputs).clone()
    for targets in forms:
        leaf = drawn.requires_grad_()
        value = loss(leaf, targets)
        (slope,) = torch.autograd.grad(value, leaf)
        assert torch.isfinite(value)
        assert value.item() >= -1e-4
        assert torch.isfinite(slope).all()


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_is_a_mean_over_samples_says_so(name: str) -> None:
    """Micro-batches of another loss are refused."""
    loss = LOSSES[name]()
    outputs, forms = draw(name)
    rows = torch.split(torch.arange(N), [4, N - 4])
    pieces = [loss(outputs[of], forms[0][of]) * len(of) / N for of in rows]
    adds_up = torch.isclose(sum(pieces), loss(outputs, forms[0]), rtol=1e-5)
    assert bool(adds_up) is is_mean_over_samples(loss)


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_are_those_of_finite_differences(name: str) -> None:
    outputs, forms = draw(name)
    leaf = outputs.double().requires_grad_()
    loss = LOSSES[name]().double()
    for targets in forms:
        wide = targets.double() if targets.is_floating_point() else targets
        assert torch.autograd.gradcheck(lambda values, wide=wide: loss(values, wide), (leaf,))


@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_one_hot_row_is_its_class(name: str) -> None:
    outputs, (classes, _) = draw(name)
    loss = LOSSES[name]()
    one_hot = nn.functional.one_hot(classes, C).float()
    torch.testing.assert_close(loss(outputs, one_hot), loss(outputs, classes), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OVER_BATCHES)
@pytest.mark.parametrize("sizes", [(7,), (1, 6), (4, 3), (1,) * 7], ids=str)
def test_the_loss_of_a_subset_is_that_of_any_batches_of_it(name: str, sizes: tuple[int, ...]) -> None:
    outputs, (targets, *_) = draw(name)
    loss = LOSSES[name]()
    tracker = Tracker(MetricCollection({}), "val", num_terms=getattr(loss, "num_terms", 1))
    for rows in torch.split(torch.arange(N), [*sizes]):
        value, weight = loss_terms(loss, outputs[rows], targets[rows])
        tracker.update(value, outputs[rows], targets[rows], weight)
    torch.testing.assert_close(tracker.compute()["val/loss"], loss(outputs, targets))


@pytest.mark.parametrize("name", OF_CLASSES)
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
        LOSSES[name]()(outputs, targets)
