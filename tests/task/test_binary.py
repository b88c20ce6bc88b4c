from __future__ import annotations

import pytest
import torch

from assay.errors import DataError
from assay.task.task_of import task_of

BINARY = task_of("binary")


def test_one_logit_or_two_outputs() -> None:
    spec = {"num_classes": 2}
    assert [BINARY.num_outputs(spec, kind) for kind in (None, "binary", "multiclass", "embedding")] == [
        2,
        1,
        2,
        2,
    ]
    assert BINARY.in_words(spec) == "2 classes"


@pytest.mark.parametrize(
    "soft",
    [
        torch.tensor([0.9, 0.2, 0.5]),
        torch.tensor([[0.9], [0.2], [0.5]]),
        torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]]),
    ],
    ids=["chances of yes", "a column of them", "chances of no and yes"],
)
def test_what_metrics_see_of_soft_targets(soft: torch.Tensor) -> None:
    assert BINARY.hard_targets(soft).tolist() == [1, 0, 1]


def test_there_are_two_classes() -> None:
    assert BINARY.number_classes([torch.tensor([0, 0])]) == ("0", "1")
    with pytest.raises(DataError, match="a binary task has 2 classes, this data has 3") as caught:
        BINARY.check("all", torch.tensor([0, 1]), "abc")
    assert "data.source.task=multiclass" in caught.value.hint
