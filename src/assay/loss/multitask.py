from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch import Tensor, nn

from assay.errors import check_numbers
from assay.loss.cross_entropy import CrossEntropy
from assay.loss.targets import at_least_float32, is_mean_over_samples, loss_terms
from assay.task.classification import Multiclass
from assay.task.predictions import parse_heads
from assay.task.task import LOGIT_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.task.predictions import Head


@final
class Multitask(nn.Module):
    """The weighted sum of one loss per target: `CrossEntropy` for classes, `torch.nn.MSELoss` for numbers.

    Numbers are compared in standard deviations of the training samples, so that no head dominates the sum by
    the unit of its target.

    Args:
        output_names: One per output, such as `["species=setosa", "species=versicolor", "weight"]`.
        losses: Other losses by the name of their head: `(outputs, targets)` to a scalar.
        weights: Other weights than 1, by the name of their head.
        target_mean: Of each target; 0 for classes. Empty: numbers are compared in their unit.
        target_std: As `target_mean`; 1 for classes.

    Raises:
        ValueError: A name is not that of a head, a loss does not suit its head, or a weight is negative.
    """

    kind: ClassVar[str] = "multitask"

    def __init__(
        self,
        output_names: Sequence[str],
        losses: Mapping[str, nn.Module] | None = None,
        weights: Mapping[str, float] | None = None,
        target_mean: Sequence[float] = (),
        target_std: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.heads = parse_heads(output_names)
        names = [head.name for head in self.heads]
        for option, values in (("losses", losses or {}), ("weights", weights or {})):
            if unknown := [name for name in values if name not in names]:
                raise ValueError(
                    f"{option}: {unknown[0]!r} is not a target; expected one of {', '.join(names)}."
                )
        self.weights = {name: float((weights or {}).get(name, 1.0)) for name in names}
        check_numbers(
            "[0, inf)", **{f"weights.{name}": weight for name, weight in self.weights.items()}
        )
        self.losses = nn.ModuleList(
            _head_loss(head, (losses or {}).get(head.name)) for head in self.heads
        )
        self.mean, self.std = (
            [float(value) for value in column] for column in (target_mean, target_std)
        )

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Average the losses over a batch, and add them up."""
        return self.terms(outputs, targets)[0].sum()

    @property
    def num_terms(self) -> int:
        """Number of heads."""
        return len(self.heads)

    def terms(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each head and its weight; see `assay.loss.targets.loss_terms`."""
        outputs = at_least_float32(outputs)
        losses = []
        weights = []
        for head, loss in zip(self.heads, self.losses, strict=True):
            of_head = head.targets_of(targets)
            if self.mean and not head.class_names:
                of_head = (of_head - self.mean[head.column]) / self.std[head.column]
            value, weight = loss_terms(loss, head.of(outputs), of_head)
            losses.append(self.weights[head.name] * value)
            weights.append(torch.full_like(value, len(targets)) if weight is None else weight)
        return torch.stack(losses), torch.stack(weights)

    @property
    def mean_over_samples(self) -> bool:
        """Whether the loss of a batch is the mean over its samples, as that of every head."""
        return all(map(is_mean_over_samples, self.losses))

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return probabilities of classes, and numbers in their unit: float `[B, all outputs]`."""
        outputs = at_least_float32(outputs)
        parts = []
        for head, loss in zip(self.heads, self.losses, strict=True):
            part: Tensor = head.of(outputs)
            if head.class_names:
                part = loss.probabilities(part)  # type: ignore[operator]  # `_head_loss` checks it
            elif self.mean:
                part = part * self.std[head.column] + self.mean[head.column]
            parts.append(part)
        return torch.cat(parts, dim=1)


def _head_loss(head: Head, loss: nn.Module | None) -> nn.Module:
    if loss is None:
        if head.class_names:
            return CrossEntropy()
        return nn.MSELoss()
    kind = getattr(loss, "kind", None)
    if (kind in LOGIT_KINDS & Multiclass.loss_kinds) != bool(head.class_names):
        expected = "a loss over classes, such as assay.loss.cross_entropy.CrossEntropy"
        expected = (
            expected if head.class_names else "a loss over numbers, such as torch.nn.HuberLoss"
        )
        raise ValueError(
            f"losses.{head.name}: {type(loss).__name__} does not suit this target; expected {expected}."
        )
    return loss
