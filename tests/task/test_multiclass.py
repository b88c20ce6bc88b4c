from __future__ import annotations

import torch

from assay.task.task_of import task_of


def test_a_value_for_each_class_whatever_the_loss() -> None:
    task = task_of("multiclass")
    spec = {"num_classes": 7}
    assert [task.num_outputs(spec, kind) for kind in ("multiclass", "embedding", None)] == [7, 7, 7]
    assert task.postprocess(torch.rand(3, 7), "probabilities").shape == (3, 7)
    assert task.in_words(spec) == "7 classes"
