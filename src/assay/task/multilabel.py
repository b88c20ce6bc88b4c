from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.task.task import Task, check_range, wrong_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.task.evaluator import Evaluator
    from assay.task.prediction.predictions import Kind, Predictions, StoredPredictions


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
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> Predictions:
        from assay.task.prediction.predictions import EmbeddingPredictions, LabelPredictions

        if kind == "embeddings" or outputs.shape[1] != len(names):
            return EmbeddingPredictions(outputs)
        return LabelPredictions(outputs, names, kind)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        import torch

        outputs, targets = super().kept(outputs, targets, kind)
        return outputs, targets.to(torch.int8)

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        from assay.task.figures.class_figures import Labels

        return Labels() if predictions.kind == "probabilities" else super().evaluator(predictions)
