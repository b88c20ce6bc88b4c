from __future__ import annotations

import pytest
import torch

from assay.errors import DataError
from assay.task.target_check import check_range, wrong_form
from assay.task.task_of import task_of


def test_a_wrong_form_is_told_with_the_right_one() -> None:
    error = wrong_form(task_of("multiclass"), "val", torch.zeros(3, 2))
    assert error.message.startswith(
        "data: the val subset's targets have shape (3, 2), type torch.float32; a mul"
    )
    assert task_of("multiclass").form in error.message


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [7]])
def test_labels_beyond_the_classes_are_refused(labels: list[int]) -> None:
    check_range("train", torch.tensor([0, 1, 2]), 2, "indices of 3 classes")
    with pytest.raises(
        DataError, match=r"the train subset has targets from .*; indices of 3 classes go from 0 to 2"
    ):
        check_range("train", torch.tensor(labels), 2, "indices of 3 classes")
