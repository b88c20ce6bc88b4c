"""What tasks have in common that need no targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from assay.task.target_check import check_range
from assay.task.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.task.prediction.prediction_batch import PredictionBatch
    from assay.task.prediction.predictions import Kind, Predictions


class FromInputs(Task):
    """Labels are int64 `[N]` where the data has classes, to look at or to probe with; else `[N, 0]`."""

    form = "none, or one class per sample"
    learns_from_inputs = True

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        """Classes stay, as labels; anything else, which would not be looked at, is left out: `[N, 0]`."""
        column = values[:, 0] if values.shape[1:] == (1,) else values
        if column.ndim == 1 and not column.is_floating_point():
            return column.long()
        import torch

        return torch.zeros(len(values), 0, dtype=torch.int64, device=values.device)

    @override
    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        return self.as_targets(targets)

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim == 1:
            check_range(subset, targets, len(class_names) - 1, f"indices of {len(class_names)} classes")

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        return {"num_classes": len(class_names) if targets.ndim == 1 else 0}

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int] = ()) -> Tensor:
        import torch

        return torch.arange(num_samples) % size if size else torch.zeros(num_samples, 0, dtype=torch.int64)

    @override
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> PredictionBatch[Any]:
        from assay.task.prediction.prediction_batch import EmbeddingPredictions

        return EmbeddingPredictions(outputs)

    @staticmethod
    def _label(predictions: Predictions, index: int) -> str:
        from assay.task.figures.embedding_figures import class_name

        if predictions.targets is None:
            return ""
        return f"; is {class_name(predictions, int(predictions.targets[index]))}"
