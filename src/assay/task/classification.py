"""Classification: one class per sample, or several labels per sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.errors import DataError
from assay.quoting import join_first
from assay.task.figures.class_figures import Classes, Labels
from assay.task.figures.value_figures import Embeddings
from assay.task.predictions import ClassPredictions, EmbeddingPredictions, LabelPredictions
from assay.task.task import (
    LOGIT_KINDS,
    NUMBER_CLASSES,
    Task,
    check_range,
    check_trained_classes,
    wrong_form,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor

    from assay.figure import Array
    from assay.task.evaluator import Evaluator
    from assay.task.predictions import Kind, Predictions, StoredPredictions


def _check_counts(task: Task, targets: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
    """Refuse classes or labels without a training sample."""
    unit, units = task.unit
    counts = {
        subset: task.count_classes(values, class_names) for subset, values in targets.items()
    }
    check_trained_classes(counts, class_names, units)
    if empty := task.lacking(targets["train"], class_names):
        message = f"data: no training sample of {unit}: {join_first(empty)}"
        hint = f"remove the empty {unit}, or add samples (data.source)"
        if task.by_class and [*class_names] == [*map(str, range(len(class_names)))]:
            hint = NUMBER_CLASSES
        raise DataError(message, hint=hint)


class SingleLabel(Task):
    """Targets are class indices, int64 `[N]`; soft ones float `[B, C]`, each row a distribution."""

    unit = ("class", "classes")
    by_class = True

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        if values.shape[1:] == (1,):
            values = values[:, 0]
        return super().as_targets(values)

    @override
    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        return self.as_targets(targets).long()

    @override
    def hard_targets(self, targets: Tensor) -> Tensor:
        is_soft = targets.is_floating_point() and targets.ndim > 1
        if is_soft:
            return targets.argmax(1)
        return targets

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 1 or targets.is_floating_point():
            raise wrong_form(self, subset, targets)
        if self.num_classes not in (None, len(class_names)):
            raise DataError(
                f"data: a {self.name} task has {self.num_classes} classes, this data has {len(class_names)}",
                hint="data.source.task=multiclass, with loss=cross_entropy metrics=multiclass",
            )
        check_range(
            subset, targets, len(class_names) - 1, f"indices of the {len(class_names)} classes"
        )

    @override
    def check_subsets(self, targets: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
        if len(class_names) < 2:
            raise DataError(
                f"data: the targets have a single class{''.join(f', {name}' for name in class_names)}: there "
                "is nothing to distinguish",
                hint="choose another target, or add samples of other classes (data.source)",
            )
        _check_counts(self, targets, class_names)

    @override
    def count_classes(self, targets: Tensor, class_names: Sequence[str]) -> tuple[int, ...]:
        return tuple(targets.bincount(minlength=len(class_names)).tolist())

    @override
    def number_classes(self, subsets: Sequence[Tensor]) -> tuple[str, ...]:
        index_targets = [
            targets for targets in subsets if len(targets) and not targets.is_floating_point()
        ]
        highest = max((int(targets.max()) for targets in index_targets), default=-1)
        num_samples = sum(map(len, subsets))
        if highest >= max(num_samples, 2):  # before there is a name for each
            raise DataError(
                f"data: the targets go up to {highest:,}, but there are only {num_samples:,} samples; "
                "classes are numbered from 0",
                hint=f"{NUMBER_CLASSES}; for numbers to predict: data.source.task=regression",
            )
        return tuple(str(label) for label in range(max(highest + 1, self.num_classes or 0)))

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        import torch

        return torch.arange(num_samples) % size

    @override
    def postprocess(self, outputs: Tensor, kind: Kind) -> Tensor:
        columns = super().postprocess(outputs, kind)
        if kind != "probabilities" or columns.shape[1] != 1:
            return columns
        import torch

        return torch.cat([1 - columns, columns], 1)

    @override
    def typed(self, outputs: Array, kind: Kind, names: tuple[str, ...]) -> Predictions:
        if kind == "embeddings" or outputs.shape[1] != len(names):
            return EmbeddingPredictions(outputs)
        return ClassPredictions(outputs, names, kind)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        outputs, targets = super().kept(outputs, targets, kind)
        return self.postprocess(outputs, kind) if outputs.ndim == 2 else outputs, targets.long()

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        named = predictions.outputs.shape[1] == len(predictions.class_names)
        if predictions.kind == "probabilities" or (predictions.kind == "scores" and named):
            return Classes(predictions)
        if predictions.kind == "embeddings":
            return Embeddings(predictions)
        return super().evaluator(predictions)


@final
class Multiclass(SingleLabel):
    """One of C classes per sample; the model returns C values."""

    name = "multiclass"
    suits = "loss=cross_entropy metrics=multiclass"
    loss_kinds = frozenset({"multiclass", "embedding"})
    form = "one class index per sample, [N]"


@final
class Binary(SingleLabel):
    """One of two classes per sample; the model returns one logit or two values, depending on the loss."""

    name = "binary"
    suits = "loss=bce_with_logits metrics=binary"
    loss_kinds = LOGIT_KINDS | {"embedding"}
    form = "0 or 1 per sample, [N]"
    num_classes = 2

    @override
    def hard_targets(self, targets: Tensor) -> Tensor:
        # chances of yes
        if targets.is_floating_point() and (targets.ndim == 1 or targets.shape[1] == 1):
            return (targets.flatten() >= 0.5).long()
        return super().hard_targets(targets)

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        if loss_kind == "binary":
            return 1
        return super().num_outputs(spec, loss_kind)


@final
class Multilabel(Task):
    """A yes or no per sample and label: targets are multi-hot `[N, L]`, the model returns L values."""

    name = "multilabel"
    suits = "loss=bce_with_logits metrics=multilabel"
    loss_kinds = frozenset({"binary"})
    unit = ("label", "labels")
    form = "a column of 0 and 1 per label, [N, L]"

    @override
    def hard_targets(self, targets: Tensor) -> Tensor:
        if targets.is_floating_point():
            return (targets >= 0.5).long()
        return targets

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 2:
            raise wrong_form(self, subset, targets)
        check_range(subset, targets, 1, "multi-hot targets")

    @override
    def check_subsets(self, targets: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
        _check_counts(self, targets, class_names)

    @override
    def number_classes(self, subsets: Sequence[Tensor]) -> tuple[str, ...]:
        return tuple(str(label) for label in range(subsets[0].shape[-1]))

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        import torch

        return (torch.arange(num_samples)[:, None] + torch.arange(size)) % 2

    @override
    def typed(self, outputs: Array, kind: Kind, names: tuple[str, ...]) -> Predictions:
        if kind == "embeddings" or outputs.shape[1] != len(names):
            return EmbeddingPredictions(outputs)
        return LabelPredictions(outputs, names, kind)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        return super().kept(outputs, targets.char(), kind)

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        if predictions.kind == "probabilities":
            return Labels(predictions)
        return super().evaluator(predictions)
