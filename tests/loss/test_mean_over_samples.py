"""What a loss says of itself is what it does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.loss.bce import BCE
from assay.loss.bce_with_logits import BCEWithLogits
from assay.loss.cross_entropy import CrossEntropy
from assay.loss.dice import Dice
from assay.loss.focal import Focal
from assay.loss.kl_div import KLDiv
from assay.loss.ldam import LDAM
from assay.loss.multitask import Multitask
from assay.loss.nt_xent import NTXent
from assay.loss.targets import is_mean_over_samples
from assay.loss.triplet import Triplet
from assay.paths import CONF_DIR

CLASSES = torch.tensor([0, 1, 2, 2, 0, 1, 1])
YES = torch.tensor([0, 1, 1, 0, 1, 1, 1])
MASKS = torch.randint(3, (7, 2, 4), generator=torch.Generator().manual_seed(2))
WEIGHT = [1.0, 2.0, 5.0]
LOSSES: dict[str, tuple[nn.Module, Tensor]] = {
    "bce": (BCE(), YES),
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


def test_one_of_somebodys_own_has_to_say_so() -> None:
    class Own(nn.Module):
        reduction = "mean"

    own = Own()
    assert not is_mean_over_samples(own)
    own.mean_over_samples = True  # type: ignore[assignment]  # a plain attribute
    assert is_mean_over_samples(own)
