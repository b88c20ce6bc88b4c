"""What a task or a module of the user's own says of predictions: their kind and their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from assay.errors import AssayError, ConfigError, DataError, defined_at, one_line_of, own_frame
from assay.task.prediction.predictions import Predictions
from assay.task.prediction.stored_predictions import KINDS
from assay.task.score import Score

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from assay.task.prediction.stored_predictions import Kind, StoredPredictions
    from assay.task.task import Task


def kind_of_own_outputs(module: Any) -> Kind | None:
    """What a `LightningModule` of the user's own says that its outputs are; None where it says nothing."""
    kind = getattr(module, "prediction_kind", None)
    if kind is not None and kind not in KINDS:
        raise ConfigError(
            f"prediction_kind of {type(module).__name__} is {kind!r}; one of {', '.join(KINDS)} was expected",
            key="module._target_",
            hint="leave it out where outputs are nothing of these",
        )
    return cast("Kind | None", kind)


def kind_of_outputs(task: Task, loss: Any) -> Kind:
    """What the metrics of a run see of its model's outputs."""
    if task.kind is not None:
        return task.kind
    if getattr(loss, "kind", None) == "embedding":
        return "embeddings"
    if task.has_real_targets:
        return "values"
    return "probabilities" if hasattr(loss, "probabilities") and not task.takes_logits else "scores"


def scores_of(task: Task, predictions: StoredPredictions) -> list[Score]:
    """`task.scores`."""
    found = _answer(task.scores, predictions)
    if not isinstance(found, list | tuple) or not all(isinstance(one, Score) for one in found):
        raise _returned(task.scores, found, "a list of assay.task.score.Score")
    return list(found)


def typed_by(task: Task, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> Predictions:
    """`task.typed`."""
    found = _answer(task.typed, outputs, kind, names)
    if not isinstance(found, Predictions):
        raise _returned(task.typed, found, "an assay.task.prediction.predictions.Predictions")
    return found


def _answer(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except AssayError:
        raise
    except Exception as error:
        if not own_frame(error):  # a fault of assay itself
            raise
        raise DataError(f"{_named(method)} raised {one_line_of(error)}") from error


def _returned(method: Callable[..., Any], found: Any, wanted: str) -> DataError:
    return DataError(
        f"{_named(method)} returned a {type(found).__name__}; {wanted} was expected ({defined_at(method)})"
    )


def _named(method: Any) -> str:
    return f"{method.__name__} of task {method.__self__.name!r}"
