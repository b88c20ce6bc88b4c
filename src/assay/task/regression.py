from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

from typing_extensions import override

from assay.errors import DataError
from assay.quoting import number_text
from assay.task.task import Task, wrong_form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.task.evaluator import Evaluator
    from assay.task.predictions import Kind, Predictions, StoredPredictions


@final
class Regression(Task):
    """T numbers per sample: targets are float `[N, T]`, the model returns T values."""

    name = "regression"
    suits = "loss=mse metrics=regression"
    loss_kinds: ClassVar[frozenset[str]] = frozenset()
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
            which = f" number {column}" if train.shape[1] > 1 else ""
            value = number_text(float(train[0, column]), 6)
            raise DataError(
                f"data: the target{which} is {value} in all training samples: there is nothing to learn",
                hint="choose another target (data.source)",
            )

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        return {"num_targets": targets.shape[1]}

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int] = ()) -> Tensor:
        import torch

        # Above 0 and below 1, so that losses and metrics of counts or probabilities take them.
        return ((torch.arange(num_samples) + 0.5) / num_samples)[:, None].expand(num_samples, size)

    @override
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> Predictions:
        from assay.task.predictions import EmbeddingPredictions, ValuePredictions

        return EmbeddingPredictions(outputs) if kind == "embeddings" else ValuePredictions(outputs, names)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        outputs, targets = super().kept(outputs, targets, kind)
        return outputs, targets.float()

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        from assay.task.figures.value_figures import Values

        return Values() if predictions.kind == "values" else super().evaluator(predictions)
