from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.loss.bce_with_logits import BCEWithLogits
from assay.loss.cross_entropy import CrossEntropy
from assay.loss.triplet import Triplet
from assay.task.answers import kind_of_outputs
from assay.task.task_of import task_of


@pytest.mark.parametrize(
    ("task", "loss", "kind"),
    [
        ("multiclass", CrossEntropy(), "probabilities"),
        ("multilabel", BCEWithLogits(), "probabilities"),
        ("multiclass", Triplet(), "embeddings"),
        ("multiclass", torch.nn.CrossEntropyLoss(), "scores"),
        ("regression", torch.nn.MSELoss(), "values"),
    ],
)
def test_kind_of_outputs(task: Any, loss: torch.nn.Module, kind: str) -> None:
    assert kind_of_outputs(task_of(task), loss) == kind
