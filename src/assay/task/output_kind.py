"""What a run's predictions stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.task.predictions import Kind
    from assay.task.task import Task


def kind_of_outputs(task: Task, loss: Any) -> Kind:
    """What the metrics of a run see of its model's outputs.

    Args:
        task: Of the run.
        loss: Of the run; its `kind` and its `probabilities(outputs)` say it, where it has them.
    """
    if getattr(loss, "kind", None) == "embedding":
        return "embeddings"
    if task.has_real_targets:
        return "values"
    return "probabilities" if hasattr(loss, "probabilities") and not task.takes_logits else "scores"
