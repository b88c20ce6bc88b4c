from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from assay.metrics.per_target import ByHead
from assay.metrics.r2 import R2
from assay.task.predictions import metric_keys, parse_heads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@final
class Multitask(ByHead):
    """Metrics by the name of their head, such as `species/accuracy`: each sees the outputs of its head alone.

    Args:
        output_names: One per output, such as `["species=setosa", "species=versicolor", "weight"]`.
        metrics: By the name of a head and that of a metric; replace the defaults of that head:
            accuracy and macro F1 of classes; MAE, RMSE and R² of numbers.

    Raises:
        ValueError: A name is not that of a head.
    """

    def __init__(
        self,
        output_names: Sequence[str],
        metrics: Mapping[str, Mapping[str, Metric]] | None = None,
    ) -> None:
        heads = parse_heads(output_names)
        custom = metrics or {}
        names = [head.name for head in heads]
        if unknown := [name for name in custom if name not in names]:
            raise ValueError(
                f"metrics: {unknown[0]!r} is not a target; expected one of {', '.join(names)}."
            )
        metrics_of = {
            f"{prefix}/{key}": (metric, head)
            for prefix, head in zip(metric_keys(names), heads, strict=True)
            for key, metric in (
                custom.get(head.name) or _default_metrics(len(head.class_names))
            ).items()
        }
        super().__init__(
            {key: metric for key, (metric, _) in metrics_of.items()},
            {key: head for key, (_, head) in metrics_of.items()},
        )


def _default_metrics(num_classes: int) -> dict[str, Metric]:
    if num_classes:
        options: dict[str, Any] = {"num_classes": num_classes, "validate_args": False}
        return {
            "accuracy": MulticlassAccuracy(average="micro", **options),
            "f1": MulticlassF1Score(average="macro", **options),
        }
    return {"mae": MeanAbsoluteError(), "rmse": MeanSquaredError(squared=False), "r2": R2(1)}
