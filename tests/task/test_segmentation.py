"""Masks as targets: what is kept of a test, and the counts that stand for masks that are not at hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.errors import DataError
from assay.task.segmentation import IGNORED
from assay.task.task_of import task_of

TASK, C = task_of("segmentation"), 4
NAMES = tuple("abcd")


def masks(num: int = 5, seed: int = 0) -> torch.Tensor:
    drawn = torch.randint(C, (num, 6, 7), generator=torch.Generator().manual_seed(seed))
    drawn[:, 0] = IGNORED
    return drawn


def test_confusions_of_each_sample_are_those_of_sklearn() -> None:
    outputs = torch.randn(5, C, 6, 7, generator=torch.Generator().manual_seed(1))
    confusions, pixels = TASK.kept(outputs, masks(), "probabilities")
    for at, mask in enumerate(masks()):
        there = mask != IGNORED
        wanted = confusion_matrix(mask[there], outputs[at].argmax(0)[there], labels=range(C))
        np.testing.assert_array_equal(confusions[at].view(C, C), wanted)
    assert pixels.tolist() == [35] * 5


def test_counts_stand_for_masks() -> None:
    stored = masks().to(torch.uint8)
    counts = torch.stack([(stored == label).flatten(1).sum(1) for label in range(C)], 1).to(torch.int32)
    for targets in (stored, counts):
        TASK.check("train", targets, NAMES)
        assert TASK.sizes(targets, NAMES) == TASK.sizes(stored, NAMES)
    assert sum(TASK.sizes(counts, NAMES)["class_counts"]) == 5 * 35
    declared = TASK.declared_targets(10, C, (3, 6, 7))
    TASK.check("train", declared, NAMES)
    TASK.check_subsets({"train": declared}, NAMES)


def test_what_is_not_a_mask_is_refused() -> None:
    with pytest.raises(DataError, match="has the value 4; classes go from 0 to 3, and 255 is left out"):
        TASK.check("val", masks().clamp(max=4), NAMES)
    with pytest.raises(DataError, match="single class, a"):
        TASK.check_subsets({"train": torch.zeros(3, 4, 4, dtype=torch.uint8)}, NAMES)
    with pytest.raises(DataError, match="classes that training lacks: d"):
        TASK.check_subsets({"train": masks() % 3, "val": masks()}, NAMES)


def test_the_masks_worth_drawing() -> None:
    shown = TASK.shown(torch.eye(C).view(1, C, 1, C))
    assert shown is not None
    assert shown.tolist() == [[[0, 1, 2, 3]]]
