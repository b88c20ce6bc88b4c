from __future__ import annotations

import copy
from abc import ABC
from typing import TYPE_CHECKING, Any, final

from torchmetrics import Metric, MetricCollection
from typing_extensions import override

from assay.task.predictions import Head, metric_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


_MOST = 16
"""Most targets with separate metrics; above it, each metric covers all targets."""


class ByHead(MetricCollection, ABC):
    """Metrics that each see the predictions of one head; without heads, all predictions."""

    def __init__(self, metrics: Mapping[str, Any], heads: Mapping[str, Head]) -> None:
        # Without groups: torchmetrics would merge metrics of two heads that have equal states.
        super().__init__(dict(metrics), compute_groups=not heads)
        self._heads = heads

    @override
    def update(self, *args: Any, **kwargs: Any) -> None:
        if not self._heads:
            super().update(*args, **kwargs)
            return
        for name, metric in self.items(keep_base=True, copy_state=False):
            metric.update(*self.select_head(str(name), *args))

    def select_head(
        self, name: str, predictions: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Select what a metric sees of a batch."""
        if (head := self._heads.get(name)) is None:
            return predictions, targets
        return head.of(predictions).contiguous(), head.targets_of(targets).contiguous()


@final
class PerTarget(ByHead):
    """Metrics such as `mae`; of several targets `price/mae` and `rent/mae`, which may have different units.

    With more than 16 targets each metric covers all targets, as do metrics with an attribute `num_targets`
    above 1, such as R².

    Args:
        metrics: By name.
        num_targets: How many numbers are predicted.
        target_names: Their names; numbers by default.
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        num_targets: int = 1,
        target_names: Sequence[str] = (),
    ) -> None:
        heads: dict[str, Head] = {}
        by_name: dict[str, Metric | MetricCollection] = dict(metrics)
        if 1 < num_targets <= _MOST:
            names = metric_keys(target_names or [f"target_{i}" for i in range(num_targets)])
            joint = {
                key: metric
                for key, metric in by_name.items()
                if getattr(metric, "num_targets", 1) > 1
            }
            split = [key for key in by_name if key not in joint]
            heads = {
                f"{name}/{key}": Head(name, i, i) for i, name in enumerate(names) for key in split
            }
            by_name = {
                key: copy.deepcopy(by_name[key.rpartition("/")[2]]) for key in heads
            } | joint
        super().__init__(by_name, heads)
