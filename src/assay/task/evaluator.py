"""What comes after training, for one kind of predictions: how good they are, and what is shown of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.figure.figure import Figure
    from assay.task.prediction.stored_predictions import StoredPredictions
    from assay.task.score import Score


class Evaluator(ABC):
    """Judges stored predictions; `assay.task.task.Task` says of each method what it returns."""

    @abstractmethod
    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """See `Task.scores`."""

    @abstractmethod
    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        """See `Task.figures`."""

    @abstractmethod
    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        """See `Task.error_scores`."""

    @abstractmethod
    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        """See `Task.predicted_label`."""

    @abstractmethod
    def hardest_caption(self, predictions: StoredPredictions) -> str:
        """See `Task.hardest_caption`."""

    def baseline_warnings(self, predictions: StoredPredictions) -> list[str]:
        """See `Task.baseline_warnings`."""
        return []

    def is_right(self, predictions: StoredPredictions) -> NDArray[Any] | None:
        """See `Task.is_right`."""
        return None


@final
class Unknown(Evaluator):
    """Of outputs that cannot be judged."""

    @override
    def scores(self, predictions: StoredPredictions) -> list[Score]:
        return []

    @override
    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        return []

    @override
    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        import numpy as np

        return np.full(len(predictions.outputs), np.nan)

    @override
    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        return ""

    @override
    def hardest_caption(self, predictions: StoredPredictions) -> str:
        return ""


def class_name(predictions: StoredPredictions, label: int) -> str:
    """Name of a class or label, or its number."""
    return predictions.class_names[label] if label < len(predictions.class_names) else str(label)


def samples_of(predictions: StoredPredictions) -> str:
    """Which samples these are, such as `the 450 test samples`."""
    subset = "" if predictions.subset == "all" else f"{predictions.subset} "
    kept = "kept " if predictions.num_evaluated else ""
    return f"the {len(predictions.keys):,} {kept}{subset}samples"


def targets_of(predictions: StoredPredictions) -> NDArray[Any]:
    """The targets, without which nothing can be judged."""
    if predictions.targets is None:
        raise ValueError("there are no targets to compare with")
    return predictions.targets
