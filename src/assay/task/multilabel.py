"""Several labels, of which any number can be on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.task.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


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
    def check(self, part: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 2:
            raise self._wrong_form(part, targets)
        self._check_range(part, targets, 1, "multi-hot targets")

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        counts = (targets >= 0.5).sum(0)
        return {"num_classes": len(class_names), "class_counts": tuple(counts.tolist())}

    @override
    def number_classes(self, parts: Sequence[Tensor]) -> tuple[str, ...]:
        return tuple(str(label) for label in range(parts[0].shape[-1]))

    @override
    def fake_targets(self, num_samples: int, size: int) -> Tensor:
        import torch

        return (torch.arange(num_samples)[:, None] + torch.arange(size)) % 2
