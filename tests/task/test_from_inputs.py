"""Labels of data that is learnt without them."""

from __future__ import annotations

import pytest
import torch

from assay.errors import DataError
from assay.task.reconstruction import Reconstruction
from assay.task.task_of import SelfSupervised

TASKS = [Reconstruction(), SelfSupervised()]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_classes_stay_as_labels_and_anything_else_is_left_out(task: Reconstruction) -> None:
    assert task.as_targets(torch.tensor([[2], [0]], dtype=torch.uint8)).tolist() == [2, 0]
    for values in (torch.rand(3), torch.rand(3, 2), torch.zeros(3, 4).long(), torch.zeros(3, 0).long()):
        assert task.as_targets(values).shape == (3, 0)
    assert task.sizes(torch.tensor([0, 1]), ("a", "b")) == {"num_classes": 2}
    assert task.sizes(torch.zeros(2, 0), ()) == {"num_classes": 0}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_made_up_labels_are_there_where_the_data_has_some(task: Reconstruction) -> None:
    assert task.fake_targets(4, 3).tolist() == [0, 1, 2, 0]
    assert task.fake_targets(4, 0).shape == (4, 0)


def test_labels_out_of_range() -> None:
    with pytest.raises(DataError, match="from 0 to 5"):
        TASKS[0].check("train", torch.tensor([0, 5]), ("a", "b"))
