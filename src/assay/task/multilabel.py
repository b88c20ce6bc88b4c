from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.task.target_check import check_range, wrong_form
from assay.task.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.figure.figure import Figure
    from assay.task.prediction.prediction_batch import PredictionBatch
    from assay.task.prediction.predictions import Kind, Predictions
    from assay.task.score import Score


@final
class Multilabel(Task):
    """A yes or no per sample and label: targets are multi-hot `[N, L]`, the model returns L values."""

    name = "multilabel"
    suits = "loss=bce_with_logits metrics=multilabel"
    loss_kinds = frozenset({"binary"})
    unit = ("label", "labels")
    form = "a column of 0 and 1 per label, [N, L]"

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        return values if values.is_floating_point() else values.long()

    @override
    def hard_targets(self, targets: Tensor) -> Tensor:
        return (targets >= 0.5).long() if targets.is_floating_point() else targets

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 2:
            raise wrong_form(self, subset, targets)
        check_range(subset, targets, 1, "multi-hot targets")

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        counts = (targets >= 0.5).sum(0)
        return {"num_classes": len(class_names), "class_counts": tuple(counts.tolist())}

    @override
    def number_classes(self, subsets: Sequence[Tensor]) -> tuple[str, ...]:
        return tuple(str(label) for label in range(subsets[0].shape[-1]))

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int] = ()) -> Tensor:
        import torch

        return (torch.arange(num_samples)[:, None] + torch.arange(size)) % 2

    @override
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> PredictionBatch:
        from assay.task.prediction.prediction_batch import EmbeddingPredictions, LabelPredictions

        if kind == "embeddings" or outputs.shape[1] != len(names):
            return EmbeddingPredictions(outputs)
        return LabelPredictions(outputs, names, kind)

    @override
    def labels(self, outputs: NDArray[Any]) -> NDArray[Any] | None:
        from assay.task.prediction.prediction_batch import is_on

        return is_on(outputs)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        import torch

        outputs, targets = super().kept(outputs, targets, kind)
        return outputs, targets.to(torch.int8)

    @override
    def scores(self, predictions: Predictions) -> list[Score]:
        from assay.task.figures.class_figures import label_scores

        return label_scores(predictions) if predictions.kind == "probabilities" else []

    @override
    def figures(self, predictions: Predictions) -> list[Figure]:
        from assay.task.figures.class_figures import label_figures

        return label_figures(predictions) if predictions.kind == "probabilities" else []

    @override
    def badness(self, predictions: Predictions) -> NDArray[Any]:
        import numpy as np

        if predictions.targets is None or predictions.kind != "probabilities":
            return np.full(len(predictions.outputs), np.nan)
        worst: NDArray[Any] = np.abs(predictions.outputs - predictions.targets).max(1)
        return worst

    @override
    def worst_is(self, predictions: Predictions) -> str:
        return "By the label whose probability is furthest from what is right, the furthest first."

    @override
    def is_right(self, predictions: Predictions) -> NDArray[Any] | None:
        from assay.task.prediction.prediction_batch import is_on

        if predictions.targets is None or predictions.kind != "probabilities":
            return None
        right: NDArray[Any] = (is_on(predictions.outputs) == (predictions.targets > 0)).all(1)
        return right

    @override
    def trivial(self, predictions: Predictions) -> list[str]:
        from assay.task.prediction.prediction_batch import is_on
        from assay.task.trivial_model import label_warnings, samples_of

        if predictions.targets is None or predictions.kind != "probabilities":
            return []
        said, right = is_on(predictions.outputs), predictions.targets > 0
        return label_warnings(right, said, predictions.class_names, samples_of(predictions))

    @override
    def said(self, predictions: Predictions, index: int) -> str:
        from assay.task.figures.embedding_figures import class_name
        from assay.task.prediction.prediction_batch import is_on

        def names(chosen: NDArray[Any]) -> str:
            return " + ".join(class_name(predictions, int(label)) for label in chosen.nonzero()[0]) or "none"

        if predictions.kind != "probabilities":
            return ""
        said = names(is_on(predictions.outputs[index]))
        right = said if predictions.targets is None else names(predictions.targets[index] > 0)
        return said if right == said else f"{said}; is {right}"
