"""Each loss against scikit-learn, torch, or its formula written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]  # scipy ships no types
from sklearn.metrics import log_loss  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.utils.class_weight import compute_class_weight  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch import nn
from torch.nn import functional as F
from torchvision.ops import sigmoid_focal_loss  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import ConfigError
from assay.loss.bce_with_logits import BCEWithLogits
from assay.loss.cross_entropy import CrossEntropy
from assay.loss.dice import Dice
from assay.loss.focal import Focal
from assay.loss.kl_div import KLDiv
from assay.loss.ldam import LDAM
from assay.loss.multitask import Multitask
from assay.loss.nt_xent import NTXent
from assay.loss.targets import binary_targets, softmax
from assay.loss.triplet import Triplet

Array = NDArray[np.float64]
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 3 * torch.randn(16, 4, generator=GENERATOR, dtype=torch.float64)
HARD = torch.randint(4, (16,), generator=GENERATOR)
SOFT = torch.rand(16, 4, generator=GENERATOR, dtype=torch.float64).softmax(1)
WEIGHT = [0.2, 3.0, 1.0, 0.7]
COUNTS = [500, 60, 25, 3]
Z = LOGITS[:, 0]
P = Z.sigmoid()
Y = HARD % 2
MASK_LOGITS = torch.randn(3, 4, 5, 6, generator=GENERATOR, dtype=torch.float64)
MASKS = torch.randint(4, (3, 5, 6), generator=GENERATOR)
MASKS[1, :3], MASKS[2] = 255, 255


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_cross_entropy_is_torchs(weight: list[float] | None, smoothing: float) -> None:
    values = None if weight is None else torch.tensor(weight).double()
    expected = F.cross_entropy(LOGITS, HARD, values, label_smoothing=smoothing)
    torch.testing.assert_close(CrossEntropy(smoothing, weight).double()(LOGITS, HARD), expected)
    soft = F.cross_entropy(LOGITS, SOFT, label_smoothing=smoothing)
    torch.testing.assert_close(CrossEntropy(smoothing)(LOGITS, SOFT), soft)


def test_soft_targets_with_weights_are_normalised_by_their_weight() -> None:
    q, w, log_p = SOFT.numpy(), np.array(WEIGHT), special.log_softmax(LOGITS.numpy(), axis=1)
    expected = -(q * w * log_p).sum() / (q * w).sum()
    assert CrossEntropy(class_weight=WEIGHT).double()(LOGITS, SOFT).item() == pytest.approx(expected)
    by_batch_size = F.cross_entropy(LOGITS, SOFT, torch.tensor(WEIGHT).double()).item()
    assert expected != pytest.approx(by_batch_size, rel=1e-2)


def test_balanced_is_scikit_learns() -> None:
    expected = compute_class_weight("balanced", classes=np.arange(4), y=np.repeat(np.arange(4), COUNTS))
    np.testing.assert_allclose(
        CrossEntropy(class_weight="balanced", class_counts=COUNTS).class_weight.numpy(), expected, rtol=1e-6
    )


@pytest.mark.parametrize("make", [CrossEntropy, Focal, LDAM])
def test_a_weight_set_late_is_a_weight_given_at_the_start(make: type[CrossEntropy | Focal | LDAM]) -> None:
    late, start = make(class_counts=COUNTS), make(class_counts=COUNTS, class_weight=WEIGHT)
    before = late(LOGITS, HARD)
    late.set_class_weight(torch.tensor(WEIGHT))
    assert not torch.allclose(late(LOGITS, HARD), before, rtol=1e-3)
    torch.testing.assert_close(late(LOGITS, HARD), start(LOGITS, HARD))
    late.set_class_weight(None)
    torch.testing.assert_close(late(LOGITS, HARD), before)
    late.to("meta").set_class_weight(torch.tensor(WEIGHT))
    assert {buffer.device.type for buffer in late.buffers()} == {"meta"}


def test_a_batch_of_weightless_classes_has_no_loss() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = CrossEntropy(class_weight=[0.0, 1.0, 1.0])(logits, torch.zeros(4, dtype=torch.long))
    (slope,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert not slope.any()


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_focal_of_two_classes_is_torchvisions(gamma: float) -> None:
    expected = sigmoid_focal_loss(Z, Y.double(), alpha=-1, gamma=gamma, reduction="mean")
    actual = Focal(gamma)(torch.stack([torch.zeros_like(Z), Z], dim=1), Y)
    torch.testing.assert_close(actual, expected)


def test_focal_follows_its_formula() -> None:
    for targets in (HARD, SOFT):
        torch.testing.assert_close(Focal(0.0)(LOGITS, targets), F.cross_entropy(LOGITS, targets))
    p, weight = LOGITS.softmax(1), torch.tensor(WEIGHT, dtype=torch.float64)
    each = -((1 - p) ** 2) * p.log()
    expected = (SOFT * weight * each).sum() / (SOFT * weight).sum()
    torch.testing.assert_close(Focal(2.0, WEIGHT).double()(LOGITS, SOFT), expected, rtol=1e-6, atol=0)


def test_focals_gradient_of_a_sure_answer_is_finite_for_a_power_below_1() -> None:
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(Focal(0.5)(logits, torch.tensor([0])), logits)
    assert torch.isfinite(slope).all()


def margins_of_the_paper(max_margin: float = 0.5) -> Array:
    margins: Array = 1.0 / np.sqrt(np.sqrt(np.array(COUNTS)))
    margins *= max_margin / margins.max()
    return margins


def each_class(logits: Array, margins: Array, scale: float) -> Array:
    """LDAM(z, k) for every k, one whole cross-entropy each."""
    losses = np.empty_like(logits)
    for k in range(logits.shape[1]):
        shifted = logits.copy()
        shifted[:, k] -= margins[k]
        losses[:, k] = special.logsumexp(scale * shifted, axis=1) - scale * shifted[:, k]
    return losses


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize(("scale", "max_margin"), [(1.0, 0.5), (30.0, 0.3)])
def test_ldam_follows_its_paper(
    scale: float, max_margin: float, weight: list[float] | None, *, soft: bool
) -> None:
    margins = margins_of_the_paper(max_margin)
    share = (SOFT if soft else F.one_hot(HARD, 4)).numpy() * (1.0 if weight is None else np.array(weight))
    expected = (each_class(LOGITS.numpy(), margins, scale) * share).sum() / share.sum()
    loss = LDAM(COUNTS, max_margin, scale, class_weight=weight).double()
    np.testing.assert_allclose(loss.margins.numpy(), margins, rtol=1e-6)
    assert loss(LOGITS, SOFT if soft else HARD).item() == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(loss.probabilities(LOGITS), (scale * LOGITS).softmax(1))


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_kl_divergence_follows_its_formula(temperature: float) -> None:
    teacher = special.softmax(SOFT.numpy() / temperature, axis=1)
    student = special.softmax(LOGITS.numpy() / temperature, axis=1)
    loss = KLDiv(temperature)
    expected = temperature**2 * special.rel_entr(teacher, student).sum(1).mean()
    assert loss(LOGITS, torch.from_numpy(teacher)).item() == pytest.approx(expected)
    expected = temperature**2 * -np.log(student[np.arange(16), HARD.numpy()]).mean()
    assert loss(LOGITS, HARD).item() == pytest.approx(expected)
    torch.testing.assert_close(loss.probabilities(LOGITS), LOGITS.softmax(1))


@pytest.mark.parametrize("outputs", [Z, Z.unsqueeze(1)], ids=["[B]", "[B, 1]"])
def test_each_form_of_one_label_means_the_same(outputs: torch.Tensor) -> None:
    expected = log_loss(Y.numpy(), P.numpy())
    for targets in (Y, Y.double(), Y.unsqueeze(1), torch.stack([1 - Y, Y], dim=1).double()):
        assert BCEWithLogits()(outputs, targets).item() == pytest.approx(expected)


def weighted(z: Array, y: Array, pos_weight: Array) -> float:
    p = special.expit(z)
    return float(-(pos_weight * y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def test_soft_targets_take_the_chance_of_yes() -> None:
    yes = torch.linspace(0, 1, 16, dtype=torch.float64)
    soft = torch.stack([1 - yes, yes], dim=1)
    expected = weighted(Z.numpy(), yes.numpy(), np.array(2.0))
    assert BCEWithLogits(2.0).double()(Z, soft).item() == pytest.approx(expected)


def test_balanced_for_several_labels() -> None:
    loss = BCEWithLogits("balanced", [10, 20, 5, 8], num_train=40, task="multilabel").double()
    np.testing.assert_allclose(loss.pos_weight.numpy(), [3.0, 1.0, 7.0, 4.0])
    y = F.one_hot(HARD, 4)
    expected = weighted(LOGITS.numpy(), y.numpy(), np.array([3.0, 1.0, 7.0, 4.0]))
    assert loss(LOGITS, y).item() == pytest.approx(expected)
    two = BCEWithLogits("balanced", [30, 10], num_train=40, task="multilabel")
    np.testing.assert_allclose(two.pos_weight.numpy(), [1 / 3, 3.0])


def dice_by_hand(smooth: float) -> float:
    values = []
    for logits, target in zip(MASK_LOGITS.numpy(), MASKS.numpy(), strict=True):
        shares = special.softmax(logits, axis=0)
        there = target != 255
        for label in range(4):
            p, q = shares[label][there], (target == label)[there]
            values.append(1 - (2 * (p * q).sum() + smooth) / ((p**2).sum() + q.sum() + smooth))
    return float(np.mean(values))


def cross_entropy_of_each(**options: Any) -> torch.Tensor:
    """torch's mean over the pixels of each picture that count; 0 where none does."""
    each = zip(MASK_LOGITS.split(1), MASKS.split(1), strict=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    values = [F.cross_entropy(logits, masks, ignore_index=255, **options) for logits, masks in each]
    return torch.stack(values).nan_to_num().mean()


@pytest.mark.parametrize("smooth", [1.0, 1e-3])
def test_dice_is_its_formula(smooth: float) -> None:
    assert float(Dice(smooth, ignore_index=255)(MASK_LOGITS, MASKS)) == pytest.approx(dice_by_hand(smooth))
    both = Dice(smooth, ignore_index=255, cross_entropy=0.25)(MASK_LOGITS, MASKS)
    assert float(both) == pytest.approx(dice_by_hand(smooth) + 0.25 * float(cross_entropy_of_each()))
    hard = MASKS.clamp(max=3)
    soft = F.one_hot(hard, 4).movedim(-1, 1).double()
    torch.testing.assert_close(Dice()(MASK_LOGITS, soft), Dice()(MASK_LOGITS, hard))


def test_dice_and_cross_entropy_of_a_batch_are_nnunets() -> None:
    """As `DC_and_CE_loss` computes with batch Dice and without background, written in numpy."""
    loss = Dice(1e-5, ignore_index=255, cross_entropy=1.0, batch=True, background=False, squares=False)
    shares = special.softmax(MASK_LOGITS.numpy(), axis=1)
    masks = MASKS.numpy()
    there = masks != 255
    dice = []
    for label in (1, 2, 3):
        p, q = shares[:, label][there], (masks == label)[there]
        dice.append((2 * (p * q).sum() + 1e-5) / (p.sum() + q.sum() + 1e-5))
    log = np.log(np.take_along_axis(shares, np.where(there, masks, 0)[:, None], 1)[:, 0][there])
    assert float(loss(MASK_LOGITS, MASKS)) == pytest.approx(1 - np.mean(dice) - log.mean())
    hard = MASKS.clamp(max=3)
    soft = F.one_hot(hard, 4).movedim(-1, 1).double()
    torch.testing.assert_close(loss(MASK_LOGITS, soft), loss(MASK_LOGITS, hard))
    assert not loss.mean_over_samples


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_of_pixels_is_torchs(smoothing: float) -> None:
    loss = CrossEntropy(smoothing, ignore_index=255)
    torch.testing.assert_close(loss(MASK_LOGITS, MASKS), cross_entropy_of_each(label_smoothing=smoothing))
    weight = torch.tensor(WEIGHT).double()
    expected = F.cross_entropy(MASK_LOGITS, MASKS, weight, ignore_index=255)
    for one in (CrossEntropy(class_weight=WEIGHT, ignore_index=255), Focal(0.0, WEIGHT, ignore_index=255)):
        torch.testing.assert_close(one.double()(MASK_LOGITS, MASKS), expected)


@pytest.mark.parametrize("kind", [CrossEntropy, Focal])
def test_pixels_are_samples_where_all_count(kind: Any) -> None:
    loss, targets = kind(), MASKS.clamp(max=3)
    rows = MASK_LOGITS.movedim(1, -1).flatten(0, 2)
    torch.testing.assert_close(loss(MASK_LOGITS, targets), loss(rows, targets.flatten()))
    soft = F.one_hot(targets, 4).movedim(-1, 1).double()
    torch.testing.assert_close(loss(MASK_LOGITS, soft), loss(MASK_LOGITS, targets))


HEADS = ["kind=a", "kind=b", "kind=c", "size", "sex=f", "sex=m"]
MEAN, STD = [0.0, 170.0, 0.0], [1.0, 10.0, 1.0]


def test_multitask_is_the_sum_of_its_heads_losses() -> None:
    outputs = torch.cat([LOGITS, LOGITS[:, :2]], 1)
    targets = torch.stack([HARD % 3, 170 + 10 * SOFT[:, 0], Y], 1)
    size = (targets[:, 1] - 170) / 10
    kind, sex = F.cross_entropy(outputs[:, :3], HARD % 3), F.cross_entropy(outputs[:, 4:], Y)
    loss = Multitask(HEADS, target_mean=MEAN, target_std=STD)
    torch.testing.assert_close(loss(outputs, targets), kind + sex + F.mse_loss(outputs[:, 3], size))
    other = Multitask(HEADS, {"size": nn.HuberLoss(), "kind": Focal(0.0)}, {"kind": 2, "sex": 0}, MEAN, STD)
    expected = 2 * kind + F.huber_loss(outputs[:, 3], size)
    torch.testing.assert_close(other(outputs, targets), expected)
    found = loss.probabilities(outputs)
    torch.testing.assert_close(found[:, :3], outputs[:, :3].softmax(1))
    torch.testing.assert_close(found[:, 3], 170 + 10 * outputs[:, 3])
    assert loss.mean_over_samples
    assert not Multitask(HEADS, {"kind": CrossEntropy(class_weight=[1.0, 2.0, 3.0])}).mean_over_samples


def slow_nt_xent(points: Array, samples: Array, temperature: float) -> float:
    """Equation 1 of Chen et al. 2020, one pair after the other."""
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    losses = []
    for i in range(len(unit)):
        for j in range(len(unit)):
            if i != j and samples[i] == samples[j]:
                others = [np.exp(unit[i] @ unit[k] / temperature) for k in range(len(unit)) if k != i]
                losses.append(-np.log(np.exp(unit[i] @ unit[j] / temperature) / np.sum(others)))
    return float(np.mean(losses))


@pytest.mark.parametrize("temperature", [0.1, 2.0])
@pytest.mark.parametrize("samples", [[0, 1, 2, 0, 1, 2], [5, 5, 1, 1, 1, 5]], ids=["two views", "three"])
def test_nt_xent_is_its_formula(temperature: float, samples: list[int]) -> None:
    points = LOGITS[:6]
    expected = slow_nt_xent(points.numpy(), np.array(samples), temperature)
    assert NTXent(temperature)(points, torch.tensor(samples)).item() == pytest.approx(expected)


def test_nt_xent_refuses_a_single_sample_in_training_alone() -> None:
    loss, points, samples = NTXent(), torch.randn(2, 3), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ConfigError, match="no other sample to compare") as caught:
        loss(points, samples)
    assert caught.value.key == "data.batch_size"
    assert loss.eval()(points, samples).item() == pytest.approx(0, abs=1e-6)
    assert loss.eval()(points[:1], samples[:1]).item() == 0


def slow_triplet(points: Array, labels: Array, margin: float | None) -> float:
    losses = []
    for a in range(len(points)):
        distance = [math.dist(points[a], point) for point in points]
        positives = [d for i, d in enumerate(distance) if labels[i] == labels[a] and i != a]
        negatives = [d for i, d in enumerate(distance) if labels[i] != labels[a]]
        if positives and negatives:
            gap = max(positives) - min(negatives)
            losses.append(math.log1p(math.exp(gap)) if margin is None else max(0.0, gap + margin))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("margin", [None, 0.0, 2.0])
@pytest.mark.parametrize("normalize", [False, True])
def test_triplet_mines_each_triplet(margin: float | None, normalize: bool) -> None:
    points, labels = LOGITS.numpy(), HARD.clone()
    labels[3] = 9  # alone
    if normalize:
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    loss = Triplet("soft" if margin is None else margin, normalize)
    assert loss(LOGITS, labels).item() == pytest.approx(slow_triplet(points, labels.numpy(), margin))
    np.testing.assert_allclose(loss.probabilities(LOGITS).numpy(), points)


def test_triplet_where_there_is_none_and_where_points_coincide() -> None:
    points = torch.randn(4, 3, requires_grad=True)
    for labels in (torch.zeros(4, dtype=torch.long), torch.arange(4)):
        loss = Triplet()(points, labels)
        assert loss.item() == 0
        assert not torch.autograd.grad(loss, points)[0].any()
    points = torch.ones(4, 3, requires_grad=True)
    for normalize in (False, True):
        loss = Triplet(0.5, normalize)(points, torch.tensor([0, 0, 1, 1]))
        assert loss.item() == pytest.approx(0.5)
        assert torch.isfinite(torch.autograd.grad(loss, points)[0]).all()


@pytest.mark.parametrize("classes", [2, 10, 15, 16, 40])
def test_softmax_is_that_of_the_exact_numbers_in_each_batch(classes: int) -> None:
    logits = 30 * torch.randn(257, classes, generator=torch.Generator().manual_seed(classes))
    whole = softmax(logits)
    expected = torch.exp(logits.double() - logits.double().logsumexp(1, keepdim=True))
    torch.testing.assert_close(whole.double(), expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(whole.argmax(1), logits.argmax(1))
    for length in (1, 3, 100):
        assert torch.equal(torch.cat([softmax(piece) for piece in logits.split(length)]), whole)  # type: ignore[no-untyped-call]  # torch left it untyped


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_softmax_of_masks_and_of_numbers_that_are_not_finite(dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    masks = torch.zeros(2, 4, 3, 3, dtype=dtype)
    assert torch.equal(softmax(masks), torch.full((2, 4, 3, 3), 0.25, dtype=wide))
    rows = torch.tensor([[0.0, torch.nan], [torch.inf, 0.0], [-torch.inf, 0.0]], dtype=dtype)
    found = softmax(rows)
    assert found[:2].isnan().all()
    assert found[2].tolist() == [0.0, 1.0]


INDICES, FOUR = torch.zeros(4, dtype=torch.long), torch.ones(4)


@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.ones(4, 2), INDICES, "loss=cross_entropy"),
        (FOUR, torch.ones(4, 2).long(), "do not fit"),
        (torch.ones(3), INDICES, "do not fit"),
        (torch.ones(4, 1, 1), INDICES, "one output per label"),
        (FOUR.long(), INDICES, "as floats"),
    ],
)
def test_labels_that_do_not_fit(outputs: torch.Tensor, targets: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        binary_targets(outputs, targets)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (CrossEntropy, {"label_smoothing": 1.0}, "label_smoothing"),
    (CrossEntropy, {"class_weight": "balanced"}, "needs class_counts"),
    (CrossEntropy, {"class_weight": "balanced", "class_counts": [3, 0]}, "class_counts=.* >= 1"),
    (CrossEntropy, {"class_weight": [1.0, -1.0]}, "class_weight=.* >= 0"),
    (CrossEntropy, {"class_weight": [1.0, float("nan")]}, "class_weight=.* >= 0"),
    (CrossEntropy, {"class_weight": [0.0, 0.0]}, "sum_of_class_weight=0.0: expected a number > 0"),
    (CrossEntropy, {"class_weight": [1.0, 2.0], "class_counts": COUNTS}, "one number per class"),
    (Focal, {"gamma": -1.0}, "gamma"),
    (LDAM, {"class_counts": [5, 3, 0]}, "class_counts=.* >= 1"),
    (LDAM, {"class_counts": COUNTS, "max_margin": 0.0}, "max_margin=0.0"),
    (LDAM, {"class_counts": COUNTS, "scale": -1.0}, "scale=-1.0"),
    (KLDiv, {"temperature": float("nan")}, "temperature"),
    (NTXent, {"temperature": 0.0}, "temperature=0.0: expected a number > 0"),
    (Triplet, {"margin": -0.1}, "margin"),
    (Triplet, {"margin": "hard"}, "margin"),
    (Dice, {"smooth": 0.0}, "smooth=0.0: expected a number > 0"),
    (Dice, {"cross_entropy": -1.0}, "cross_entropy=-1.0"),
    (BCEWithLogits, {"pos_weight": [1.0, -2.0]}, "pos_weight=.* > 0"),
    (BCEWithLogits, {"pos_weight": []}, "pos_weight=.* > 0"),
    (BCEWithLogits, {"pos_weight": "balanced"}, "needs class_counts"),
    (BCEWithLogits, {"pos_weight": "balanced", "class_counts": [3, 0]}, "class_counts=.* >= 1"),
    (
        BCEWithLogits,
        {"pos_weight": "balanced", "class_counts": [4, 8], "task": "multilabel"},
        "with num_train",
    ),
    (BCEWithLogits, {"pos_weight": "balanced", "class_counts": [4, 8, 2]}, "two class_counts"),
    (
        Multitask,
        {"output_names": HEADS, "losses": {"siez": nn.MSELoss()}},
        "'siez' is not a target; expected one of kind",
    ),
    (Multitask, {"output_names": HEADS, "weights": {"Kind": 1.0}}, "'Kind' is not a target"),
    (Multitask, {"output_names": HEADS, "weights": {"kind": -1.0}}, "weights.kind=-1.0"),
    (
        Multitask,
        {"output_names": HEADS, "losses": {"size": CrossEntropy()}},
        "losses.size: CrossEntropy does not",
    ),
    (Multitask, {"output_names": HEADS, "losses": {"kind": Triplet()}}, "losses.kind: Triplet does not suit"),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED)
def test_options_that_cannot_be_used(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


UNFIT: list[tuple[nn.Module, Any, Any, str]] = [
    (CrossEntropy(class_weight=[1.0, 2.0, 3.0]), (4, 2), INDICES, "3 numbers, the model returns 2 logits"),
    (CrossEntropy(), (3, 4, 5, 6), MASKS[:, 1:], r"expected class indices \[3, 5, 6\]"),
    (LDAM(COUNTS), (4, 3), INDICES, "4 margins, the model returns 3 logits"),
    (BCEWithLogits([1.0, 2.0]), (4, 3), torch.zeros(4, 3), "2 numbers, the model returns 3 logits"),
    (Dice(), (4, 4), INDICES, "use loss=cross_entropy"),
    (NTXent(), (4, 2), FOUR, "use augment=two_views"),
    (Triplet(), (4, 3), torch.zeros(4, 2), "triplet needs integer labels; mixup and cutmix make soft ones"),
    (Triplet(), (4, 3), torch.zeros(4, 2).long(), "one label per sample"),
]


@pytest.mark.parametrize(("loss", "shape", "targets", "message"), UNFIT)
def test_batches_that_do_not_fit(loss: nn.Module, shape: Any, targets: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(shape), targets)
