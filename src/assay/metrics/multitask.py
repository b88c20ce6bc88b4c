from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from typing_extensions import override

from assay.metrics.r2 import R2
from assay.task.heads import heads_of, metric_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


@final
class Multitask(MetricCollection):
    """Metrics by the name of their head, such as `species/accuracy`: each sees the outputs of its head alone.

    Args:
        output_names: One per output, such as `["species=setosa", "species=versicolor", "weight"]`.
        metrics: By the name of a head and that of a metric, in place of the default ones of that head:
            accuracy and macro F1 of classes; MAE, RMSE and R² of numbers.

    Raises:
        ValueError: There is no head of a name.
    """

    def __init__(
        self, output_names: Sequence[str], metrics: Mapping[str, Mapping[str, Metric]] | None = None
    ) -> None:
        heads, given = heads_of(output_names), metrics or {}
        names = [head.name for head in heads]
        if unknown := [name for name in given if name not in names]:
            raise ValueError(f"metrics: {unknown[0]!r} is not a target; they are {', '.join(names)}.")
        own = {head.name: given.get(head.name) or _default(len(head.class_names)) for head in heads}
        keys = metric_keys(names)
        # Without groups: torchmetrics would take two heads' metrics of equal state for one.
        super().__init__(
            {
                f"{at_head}/{key}": metric
                for at_head, several in zip(keys, own.values(), strict=True)
                for key, metric in several.items()
            },
            compute_groups=False,
        )
        self._heads = dict(zip(keys, heads, strict=True))

    @override
    def update(self, *args: Any, **kwargs: Any) -> None:
        predictions, targets = args
        for name, metric in self.items(keep_base=True, copy_state=False):
            metric.update(*self.given_to(str(name), predictions, targets))

    def given_to(self, name: str, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """What one of the metrics sees of a batch."""
        head = self._heads[name.rpartition("/")[0]]
        column = targets[:, head.column]
        return head.of(predictions), column.long() if head.class_names else column[:, None]


def _default(num_classes: int) -> dict[str, Metric]:
    if num_classes:
        told: dict[str, Any] = {"num_classes": num_classes, "validate_args": False}
        return {
            "accuracy": MulticlassAccuracy(average="micro", **told),
            "f1": MulticlassF1Score(average="macro", **told),
        }
    return {"mae": MeanAbsoluteError(), "rmse": MeanSquaredError(squared=False), "r2": R2(1)}
