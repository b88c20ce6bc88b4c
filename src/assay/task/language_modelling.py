"""The next token, and how many bytes each token stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from typing_extensions import override

from assay.task.task import Task, wrong_form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.task.evaluator import Evaluator
    from assay.task.prediction.predictions import Kind, Predictions, StoredPredictions


def run_lengths(values: Sequence[int]) -> str:
    """Numbers as a text, equal neighbours once."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return " ".join(f"{value}*{count}" if count > 1 else str(value) for value, count in runs)


def from_run_lengths(text: str) -> list[int]:
    """What `run_lengths` has written."""
    values: list[int] = []
    for run in text.split():
        value, _, count = run.partition("*")
        values += [int(value)] * int(count or 1)
    return values


_MOST_BITS: Final = 64.0
"""Of a token whose probability has become 0."""


@final
class LanguageModelling(Task):
    """A sample is L tokens, its targets the L tokens that come one later, int64 `[N, L]`."""

    name = "language_modelling"
    suits = "loss=cross_entropy metrics=language_modelling"
    loss_kinds: ClassVar[frozenset[str]] = frozenset({"multiclass"})
    size_key = "vocab_size"
    unit = ("kind of token", "kinds of tokens")
    form = "the next token at each position, int64 [N, L]"
    takes_logits = True
    generates = True
    kept_kind: ClassVar[Kind | None] = "surprisals"

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        return values if values.is_floating_point() else values.long()

    @override
    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        return targets.long()

    @override
    def for_loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return outputs.flatten(0, -2), targets.flatten()

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim != 2 or targets.is_floating_point():
            raise wrong_form(self, subset, targets)

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        return {}

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int] = ()) -> Tensor:
        import torch

        # One window, seen again and again: so many tokens may be more than memory holds.
        length = input_shape[0] if input_shape else size
        return (torch.arange(length) % size).expand(num_samples, length)

    @override
    def output_shape(self, spec: Mapping[str, Any], num_outputs: int) -> tuple[int, ...]:
        return (*spec["input_shape"], num_outputs)

    @override
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> Predictions:
        raise ValueError("a language model is asked for how a text goes on, not for the logits of it")

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        import math

        from torch.nn import functional as F

        nats = F.cross_entropy(outputs.flatten(0, -2).float(), targets.flatten(), reduction="none")
        return (nats / math.log(2)).clamp(max=_MOST_BITS).view(targets.shape), targets

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        from assay.task.figures.value_figures import Tokens

        return Tokens() if predictions.kind == "surprisals" else super().evaluator(predictions)
