"""Whether a metric is better the higher it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

Mode = Literal["min", "max"]


def directions(metrics: MetricCollection, stage: str) -> dict[str, Mode]:
    """Which way each score of a stage is better, as torchmetrics' `higher_is_better` says.

    A loss is minimised. A metric that says nothing is not there, nor is one of several values.

    Args:
        metrics: Names without a prefix, as `assay.metrics.tracker.Tracker` takes them.
        stage: `train`, `val` or `test`.

    >>> from torchmetrics import MeanAbsoluteError, MetricCollection, R2Score
    >>> directions(MetricCollection({"mae": MeanAbsoluteError(), "r2": R2Score()}), "val")
    {'val/loss': 'min', 'val/mae': 'min', 'val/r2': 'max'}
    """
    found: dict[str, Mode] = {f"{stage}/loss": "min"}
    named = metrics.clone(prefix=f"{stage}/")
    for name, metric in named.items(keep_base=False, copy_state=False):
        higher: bool | None = metric.higher_is_better
        if higher is not None:
            found[str(name)] = "max" if higher else "min"
    return found
