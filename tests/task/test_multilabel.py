from __future__ import annotations

import pytest
import torch
from sklearn.datasets import make_multilabel_classification  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.errors import DataError
from assay.task.task_of import task_of

MULTILABEL = task_of("multilabel")
LABELS = make_multilabel_classification(100, n_classes=4, random_state=0)[1]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float32])
def test_labels_of_any_type(dtype: torch.dtype) -> None:
    targets = MULTILABEL.as_targets(torch.from_numpy(LABELS).to(dtype))
    MULTILABEL.check("all", targets, "abcd")
    assert MULTILABEL.sizes(targets, "abcd") == {
        "num_classes": 4,
        "class_counts": tuple(LABELS.sum(0).tolist()),
    }
    assert MULTILABEL.number_classes([targets]) == ("0", "1", "2", "3")
    assert MULTILABEL.hard_targets(targets).tolist() == LABELS.tolist()


def test_what_metrics_see_of_soft_labels() -> None:
    assert MULTILABEL.hard_targets(torch.tensor([[0.4, 0.5], [0.9, 0.0]])).tolist() == [[0, 1], [1, 0]]


def test_more_than_yes_and_no() -> None:
    with pytest.raises(DataError, match="from 0 to 2; multi-hot targets go from 0 to 1"):
        MULTILABEL.check("all", torch.tensor([[0, 2], [1, 0]]), "ab")


def test_one_dimension_is_no_matrix_of_labels() -> None:
    with pytest.raises(DataError, match=r"shape \(3,\).*a column of 0 and 1 per label"):
        MULTILABEL.check("all", torch.tensor([0, 1, 1]), "ab")


def test_in_words() -> None:
    assert [MULTILABEL.in_words({"num_classes": size}) for size in (1, 3)] == ["1 label", "3 labels"]
