"""Regression, and several targets that are each a class or a number."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from typing_extensions import override

from assay.errors import DataError
from assay.quoting import format_number
from assay.task.classification import Multiclass
from assay.task.evaluator import Evaluator
from assay.task.figures.value_figures import Values
from assay.task.predictions import (
    EmbeddingPredictions,
    MultitaskPredictions,
    ValuePredictions,
    metric_keys,
    parse_heads,
)
from assay.task.task import Task, wrong_form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor

    from assay.figure import Array, Figure
    from assay.task.evaluator import Score
    from assay.task.predictions import Head, Kind, Predictions, StoredPredictions


@final
class Regression(Task):
    """T numbers per sample: targets are float `[N, T]`, the model returns T values."""

    name = "regression"
    suits = "loss=mse metrics=regression"
    loss_kinds = frozenset()
    size_key = "num_targets"
    unit = ("real-valued target", "real-valued targets")
    form = "floating-point numbers, [N, T]"
    has_real_targets = True

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        return values.float().unsqueeze(-1).flatten(1)

    @override
    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        return targets.to(dtype).reshape(len(targets), -1)

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 2 or not targets.is_floating_point():
            raise wrong_form(self, subset, targets)

    @override
    def check_subsets(self, targets: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
        train = targets["train"]
        constant = (train == train[:1]).all(0)
        if constant.any():
            column = int(constant.nonzero()[0])
            suffix = ""
            if train.shape[1] > 1:
                suffix = f" number {column}"
            value = format_number(float(train[0, column]), 6)
            raise DataError(
                f"data: the target{suffix} is {value} in all training samples: there is nothing to learn",
                hint="choose another target (data.source)",
            )

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        import torch

        # Between 0 and 1, so that losses and metrics of counts or probabilities accept them.
        return ((torch.arange(num_samples) + 0.5) / num_samples)[:, None].expand(
            num_samples, size
        )

    @override
    def typed(self, outputs: Array, kind: Kind, names: tuple[str, ...]) -> Predictions:
        if kind == "embeddings":
            return EmbeddingPredictions(outputs)
        return ValuePredictions(outputs, names)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        return super().kept(outputs, targets.float(), kind)

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        if predictions.kind == "values":
            return Values(predictions)
        return super().evaluator(predictions)


_CLASSES = Multiclass()
_NUMBERS = Regression()


@final
class Multitask(Task):
    """H targets per sample, each a class or a number: float `[N, H]`, class indices as numbers."""

    name = "multitask"
    suits = "loss=multitask metrics=multitask"
    loss_kinds = frozenset({"multitask"})
    size_key = "num_targets"
    unit = ("target", "targets")
    has_heads = True
    form = "a column of class indices or numbers per target, [N, H]"

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        return values.float()

    @override
    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        import torch

        # 16 bits cannot hold class indices above 256.
        return targets.to(torch.promote_types(dtype, torch.float32))

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 2 or not targets.is_floating_point():
            raise wrong_form(self, subset, targets)
        for head in parse_heads(class_names):
            if head.class_names:
                _CLASSES.check(subset, head.targets_of(targets), head.class_names)

    @override
    def check_subsets(self, targets: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
        for head in parse_heads(class_names):
            head_targets = {subset: head.targets_of(values) for subset, values in targets.items()}
            _task_of_head(head).check_subsets(head_targets, head.class_names)

    @override
    def lacking(self, targets: Tensor, class_names: Sequence[str]) -> list[str]:
        return [
            f"{head.name}={name}"
            for head in parse_heads(class_names)
            for name in _task_of_head(head).lacking(head.targets_of(targets), head.class_names)
        ]

    @override
    def standardizes(self, column: int, class_names: Sequence[str]) -> bool:
        return not parse_heads(class_names)[column].class_names

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        import torch

        # Valid as numbers and as classes, of which each head has at least two.
        return ((torch.arange(num_samples)[:, None] + torch.arange(size)) % 2).float()

    @override
    def declared_targets(
        self,
        num_samples: int,
        size: int,
        input_shape: Sequence[int],
        class_names: Sequence[str] = (),
    ) -> Tensor:
        import torch

        num_values = [max(2, head.num_outputs) for head in parse_heads(class_names)] or [2] * size
        if len(num_values) != size:
            raise ValueError(
                f"class_names={list(class_names)}: expected outputs of num_targets={size} targets, "
                f"got those of {len(num_values)}"
            )
        return (torch.arange(num_samples)[:, None] % torch.tensor(num_values)).float()

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        return len(spec["class_names"])

    @override
    def typed(self, outputs: Array, kind: Kind, names: tuple[str, ...]) -> Predictions:
        return MultitaskPredictions(outputs, names)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        return outputs, targets.float()

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        return Heads(predictions)


@final
class Heads(Evaluator):
    """Evaluates several targets, each by the task of its head."""

    caption = "Largest error of any target first, relative to the largest error of that target."

    @cached_property
    def _by_head(self) -> list[tuple[Head, Evaluator]]:
        return [
            (head, _task_of_head(head).evaluator(of_head))
            for head, of_head in split_by_head(self.predictions)
        ]

    @override
    def scores(self) -> list[Score]:
        prefixes = metric_keys([head.name for head, _ in self._by_head])
        return [
            replace(
                score,
                name=f"{head.name}/{score.name}",
                metric=score.metric and f"{prefix}/{score.metric}",
            )
            for prefix, (head, evaluator) in zip(prefixes, self._by_head, strict=True)
            for score in evaluator.scores()
        ]

    @override
    def figures(self) -> list[Figure]:
        return [
            replace(
                figure,
                name=f"head_{head.column}_{figure.name}",
                title=f"{head.name}: {figure.title.removesuffix(f': {head.name}')}",
            )
            for head, evaluator in self._by_head
            for figure in evaluator.figures()
        ]

    @override
    def error_scores(self) -> Array:
        shares = []
        for _, evaluator in self._by_head:
            error_scores = evaluator.error_scores()
            largest = np.nanmax(error_scores, initial=0.0)
            if largest > 0:
                error_scores = error_scores / largest
            shares.append(error_scores)
        return np.asarray(np.max(shares, axis=0))

    @override
    def is_right(self) -> Array | None:
        """Return whether all classes of a sample are right; None if there are only numbers."""
        by_head = [evaluator.is_right() for _, evaluator in self._by_head]
        defined = [right for right in by_head if right is not None]
        return np.all(defined, axis=0) if defined else None

    @override
    def baseline_warnings(self) -> list[str]:
        return [
            f"{head.name}: {warning}"
            for head, evaluator in self._by_head
            for warning in evaluator.baseline_warnings()
        ]

    @override
    def predicted_label(self, index: int) -> str:
        return ", ".join(
            f"{head.name} {evaluator.predicted_label(index)}" for head, evaluator in self._by_head
        )


def _task_of_head(head: Head) -> Task:
    if head.class_names:
        return _CLASSES
    return _NUMBERS


def split_by_head(predictions: StoredPredictions) -> list[tuple[Head, StoredPredictions]]:
    """Predictions of each target, as those of a task of its own."""
    pairs = []
    for head in parse_heads(predictions.class_names):
        targets = predictions.targets
        if targets is not None:
            column = targets[:, head.column]
            if head.class_names:
                targets = column.astype(np.int64)
            else:
                targets = column[:, None]
        of_head = replace(
            predictions,
            task=_task_of_head(head).name,
            kind="probabilities" if head.class_names else "values",
            outputs=np.ascontiguousarray(head.of(predictions.outputs)),
            targets=targets,
            class_names=head.class_names or (head.name,),
        )
        pairs.append((head, of_head))
    return pairs
