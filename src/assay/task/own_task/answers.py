"""What a task says of predictions: a method of the user's own that fails is named, with its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.error_location import defined_at, one_line_of, own_frame
from assay.errors import AssayError, DataError
from assay.task.prediction.prediction_batch import PredictionBatch
from assay.task.score import Score

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Kind, Predictions
    from assay.task.task import Task


def scores_of(task: Task, predictions: Predictions) -> list[Score]:
    """`task.scores`.

    Raises:
        DataError: A method of the user's own has raised something, or returned something else.
    """
    found = _answer(task.scores, predictions)
    if not isinstance(found, list | tuple) or not all(isinstance(one, Score) for one in found):
        raise _returned(task.scores, found, "a list of assay.task.score.Score")
    return list(found)


def typed_by(task: Task, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> PredictionBatch[Any]:
    """`task.typed`.

    Raises:
        DataError: As `scores_of`.
    """
    found = _answer(task.typed, outputs, kind, names)
    if not isinstance(found, PredictionBatch):
        raise _returned(task.typed, found, "an assay.task.prediction.prediction_batch.PredictionBatch")
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
