"""Cross-entropy and focal loss over pixels, against torch's own, picture by picture."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from assay.loss.cross_entropy import CrossEntropy
from assay.loss.focal import Focal

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 4, 5, 6, generator=GENERATOR)
TARGETS = torch.randint(4, (3, 5, 6), generator=GENERATOR)
TARGETS[1, :3], TARGETS[2] = 255, 255
PICTURES = range(3)


def each(**options: Any) -> torch.Tensor:
    """torch's mean over the pixels of each picture that count; 0 where none does."""
    values = [
        F.cross_entropy(LOGITS[at : at + 1], TARGETS[at : at + 1], ignore_index=255, **options)
        for at in PICTURES
    ]
    return torch.stack(values).nan_to_num().mean()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_torchs(smoothing: float) -> None:
    loss = CrossEntropy(smoothing, ignore_index=255)
    torch.testing.assert_close(loss(LOGITS, TARGETS), each(label_smoothing=smoothing))
    none = TARGETS.clamp(max=3)
    whole = F.cross_entropy(LOGITS, none, label_smoothing=smoothing)
    torch.testing.assert_close(loss(LOGITS, none), whole, msg="without pixels left out it is torch's own")


def test_weights_are_torchs() -> None:
    weight = torch.tensor([1.0, 2.0, 0.5, 4.0])
    wanted = F.cross_entropy(LOGITS, TARGETS, weight, ignore_index=255)
    for loss in (
        CrossEntropy(class_weight=weight.tolist(), ignore_index=255),
        Focal(0.0, weight.tolist(), ignore_index=255),
    ):
        torch.testing.assert_close(loss(LOGITS, TARGETS), wanted)
        assert not loss.mean_over_samples


def test_focal_without_focus_is_cross_entropy() -> None:
    torch.testing.assert_close(Focal(0.0, ignore_index=255)(LOGITS, TARGETS), each())


@pytest.mark.parametrize("kind", [CrossEntropy, Focal])
def test_pixels_are_samples_where_all_count(kind: Any) -> None:
    loss, targets = kind(), TARGETS.clamp(max=3)
    rows = LOGITS.movedim(1, -1).flatten(0, 2)
    torch.testing.assert_close(loss(LOGITS, targets), loss(rows, targets.flatten()))
    soft = F.one_hot(targets, 4).movedim(-1, 1).float()
    torch.testing.assert_close(loss(LOGITS, soft), loss(LOGITS, targets))


@pytest.mark.parametrize("kind", [CrossEntropy, Focal])
def test_the_loss_of_a_batch_is_the_mean_of_its_samples(kind: Any) -> None:
    loss = kind(ignore_index=255)
    assert loss.mean_over_samples
    values = [loss(LOGITS[at : at + 1], TARGETS[at : at + 1]) for at in PICTURES]
    torch.testing.assert_close(loss(LOGITS, TARGETS), torch.stack(values).mean())


@pytest.mark.parametrize("kind", [CrossEntropy, Focal])
def test_masks_of_another_size_are_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"one class index a pixel, \[3, 5, 6\]"):
        kind()(LOGITS, TARGETS[:, 1:])
