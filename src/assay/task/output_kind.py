"""What a run's predictions stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from assay.errors import ConfigError
from assay.task.prediction.predictions import KINDS

if TYPE_CHECKING:
    from assay.task.prediction.predictions import Kind
    from assay.task.task import Task


def kind_of_own_outputs(module: Any) -> Kind | None:
    """What a `LightningModule` of the user's own says that its outputs are; None where it says nothing.

    Args:
        module: Its `prediction_kind` says what `forward` returns, and `predictions` of its `test_step`.

    Raises:
        ConfigError: It says something else.
    """
    kind = getattr(module, "prediction_kind", None)
    if kind is not None and kind not in KINDS:
        raise ConfigError(
            f"prediction_kind of {type(module).__name__} is {kind!r}; one of {', '.join(KINDS)} was expected",
            key="module._target_",
            hint="leave it out where outputs are nothing of these",
        )
    return cast("Kind | None", kind)


def kind_of_outputs(task: Task, loss: Any) -> Kind:
    """What the metrics of a run see of its model's outputs.

    Args:
        task: Of the run.
        loss: Of the run; its `kind` and its `probabilities(outputs)` say it, where it has them.
    """
    if task.kind is not None:
        return task.kind
    if getattr(loss, "kind", None) == "embedding":
        return "embeddings"
    if task.has_real_targets:
        return "values"
    return "probabilities" if hasattr(loss, "probabilities") and not task.takes_logits else "scores"
