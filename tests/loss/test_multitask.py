"""Against the sum of torch's own losses over each head."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from assay.loss.cross_entropy import CrossEntropy
from assay.loss.focal import Focal
from assay.loss.multitask import Multitask
from assay.loss.triplet import Triplet

NAMES = ["kind=a", "kind=b", "kind=c", "size", "sex=f", "sex=m"]
MEAN, STD = [0.0, 170.0, 0.0], [1.0, 10.0, 1.0]


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    kind, sex = (torch.randint(count, (8,), generator=generator) for count in (3, 2))
    size = 170 + 10 * torch.randn(8, generator=generator, dtype=torch.float64)
    return outputs, torch.stack([kind, size, sex], 1)


def by_hand(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        F.cross_entropy(outputs[:, :3], targets[:, 0].long()),
        F.mse_loss(outputs[:, 3], (targets[:, 1] - 170) / 10),
        F.cross_entropy(outputs[:, 4:], targets[:, 2].long()),
    )


def test_the_sum_of_the_heads_losses(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    loss = Multitask(NAMES, target_mean=MEAN, target_std=STD)
    assert torch.allclose(loss(*batch), sum(by_hand(*batch), torch.zeros(())))


def test_weights_and_other_losses(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    loss = Multitask(NAMES, {"size": nn.HuberLoss(), "kind": Focal(0.0)}, {"kind": 2, "sex": 0}, MEAN, STD)
    kind, *_ = by_hand(*batch)
    outputs, targets = batch
    size = F.huber_loss(outputs[:, 3], (targets[:, 1] - 170) / 10)
    assert torch.allclose(loss(*batch), 2 * kind + size)


def test_numbers_come_back_in_their_own_unit(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, _ = batch
    said = Multitask(NAMES, target_mean=MEAN, target_std=STD).probabilities(outputs)
    assert torch.allclose(said[:, :3], outputs[:, :3].softmax(1))
    assert torch.allclose(said[:, 3], 170 + 10 * outputs[:, 3])
    assert torch.allclose(said[:, 4:].sum(1), torch.ones(8, dtype=torch.float64))


def test_no_statistics_no_scaling(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, targets = batch
    loss = Multitask(NAMES, weights={"kind": 0, "sex": 0})
    assert torch.allclose(loss(outputs, targets), F.mse_loss(outputs[:, 3], targets[:, 1]))
    assert torch.equal(loss.probabilities(outputs)[:, 3], outputs[:, 3])


def test_a_loss_that_is_no_mean_over_samples_says_so() -> None:
    assert Multitask(NAMES).mean_over_samples
    balanced = CrossEntropy(class_weight=[1.0, 2.0, 3.0])
    assert not Multitask(NAMES, {"kind": balanced}).mean_over_samples


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"losses": {"siez": nn.MSELoss()}}, "'siez' is not a target; they are kind, size, sex"),
        ({"weights": {"Kind": 1.0}}, "'Kind' is not a target"),
        ({"weights": {"kind": -1.0}}, "weights.kind must be a number of at least 0"),
        ({"weights": {"kind": float("nan")}}, "weights.kind must be"),
        ({"losses": {"size": CrossEntropy()}}, "losses.size: CrossEntropy does not suit this target"),
        ({"losses": {"kind": nn.MSELoss()}}, "losses.kind: MSELoss does not suit this target"),
        ({"losses": {"kind": Triplet()}}, "losses.kind: Triplet does not suit"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Multitask(NAMES, **arguments)  # type: ignore[arg-type]  # wrong on purpose
