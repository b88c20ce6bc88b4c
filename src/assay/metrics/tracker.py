"""Loss and metrics of one stage, collected per step and computed once per epoch."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from assay.metrics.over_classes import average_present, count_classes, score_of, separate_classes
from assay.metrics.per_target import ByHead
from assay.torch_internals import tree_leaves, tree_map, widest_float

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchmetrics import Metric, MetricCollection

LARGEST = 100_000
"""Most numbers of a matrix or curve that a record stores."""


def is_scalar(value: Any) -> bool:
    """Return whether a value can be logged."""
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)


def count_numbers(value: Any) -> int:
    """Count the numbers in a value."""
    return sum(leaf.numel() if isinstance(leaf, Tensor) else 1 for leaf in tree_leaves(value))


def to_nested_lists(value: Any) -> Any:
    """Convert a value to nested lists; a curve has several, such as false and true positives."""
    return tree_map(_to_plain, value)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Tensor) and not value.is_complex():
        return value.tolist()
    if isinstance(value, int | float):
        return value
    if isinstance(value, Tensor):
        kind = str(value.dtype)
    else:
        kind = type(value).__name__
    raise TypeError(f"it computes a {kind}, which can be neither logged nor stored")


_MOST_STEPS = 64
_MOST_BYTES = 1 << 20
"""Limits of pending batches."""


@final
class Tracker:
    """A `MetricCollection` and the mean loss of a stage.

    Attributes:
        scores: `Score.metric` of the metrics that stored predictions tell as well, by name.
    """

    def __init__(
        self,
        metrics: MetricCollection,
        stage: str,
        predict: Callable[[Tensor], Tensor] | None = None,
        num_terms: int = 1,
    ) -> None:
        self.stage = stage
        self._predict = predict
        self._num_terms = num_terms
        self.metrics = metrics.clone(prefix=f"{stage}/")
        named = self._named_metrics()
        by_head = isinstance(metrics, ByHead)
        self.scores = {
            name: f"{head}/{score}" if (head := by_head and name.rpartition("/")[0]) else score
            for name, metric in named.items()
            if (score := score_of(metric))
        }
        averages = {name: separate_classes(metric) for name, metric in named.items()}
        self._averages = {name: average for name, average in averages.items() if average}
        self._pending: list[tuple[Tensor, Tensor | None, Tensor, Tensor]] = []
        """Loss and its weight, predictions and targets of each batch."""
        self._stand_in: tuple[Tensor, Tensor] | None = None
        self._loss_sum: Tensor | None = None
        self._count: Any = 0
        self._bytes = 0
        self._most_steps = _MOST_STEPS if stage == "train" else math.inf
        self._device: torch.device | None = None

    def update(
        self, loss: Tensor, predictions: Tensor, targets: Tensor, weight: Tensor | None = None
    ) -> None:
        """Add one batch, whose loss has a weight, or that of its number of samples."""
        self._pending.append((loss, weight, predictions, targets))
        self._bytes += predictions.nbytes + targets.nbytes
        if self._bytes >= _MOST_BYTES or len(self._pending) >= self._most_steps:
            self.flush()

    def take_stand_in(self, predictions: Tensor, targets: Tensor) -> None:
        """Take a batch that does not count: it shows what the states of an empty share look like."""
        self._stand_in = predictions, targets

    @torch.no_grad()
    def flush(self) -> None:
        """Update the metrics with the pending batches."""
        if not self._pending:
            return
        each_loss, each_weight, *columns = zip(*self._pending, strict=True)
        losses = torch.stack(each_loss)
        losses = losses.to(widest_float(losses.device))
        sizes = [len(targets) for targets in columns[1]]
        if all(weight is None for weight in each_weight):
            total = (losses * torch.tensor(sizes, device=losses.device)).sum()
            self._count += sum(sizes)
        else:
            pairs = zip(each_weight, sizes, strict=True)
            weights = torch.stack(
                [losses.new_tensor(size) if one is None else one for one, size in pairs]
            )
            total = (losses * weights).sum(0)
            self._count = self._count + weights.to(losses.dtype).sum(0)
        if self._loss_sum is None:
            self._loss_sum = total
        else:
            self._loss_sum = self._loss_sum + total
        if len(self.metrics):
            self._move_metrics(losses.device)
            self._update_metrics(*map(torch.cat, columns))
        self._pending = []
        self._bytes = 0

    def _update_metrics(self, predictions: Tensor, targets: Tensor) -> None:
        predictions = predictions.float() if predictions.dtype != torch.float64 else predictions
        self.metrics.update(
            predictions if self._predict is None else self._predict(predictions), targets
        )

    @torch.no_grad()
    def _shape_empty_states(self) -> None:
        """Give the states of an empty share the dtypes and dimensions of the others, which are gathered."""
        if self._loss_sum is not None or self._stand_in is None:
            return
        self._update_metrics(*self._stand_in)
        for metric in self.metrics.values(copy_state=False):
            defaults: dict[str, Any] = metric._defaults
            for name, default in defaults.items():
                value = getattr(metric, name)
                if isinstance(value, list):
                    empty: Any = [(part if part.ndim else part[None])[:0] for part in value]
                else:
                    empty = default.to(value).expand_as(value).clone()
                setattr(metric, name, empty)

    def compute(self, device: torch.device | None = None) -> dict[str, Any]:
        """Return loss and metrics of all batches since the last reset, over all ranks."""
        self.flush()
        if device is None:
            if self._loss_sum is None:
                device = torch.device("cpu")
            else:
                device = self._loss_sum.device
        losses = torch.zeros(2, self._num_terms, dtype=widest_float(device), device=device)
        if self._loss_sum is not None:
            losses[0] = self._loss_sum
            losses[1] = self._count
        if len(self.metrics):
            self._move_metrics(device)
            self._shape_empty_states()
        named = self._named_metrics()
        counts = [count_classes(named[name]).to(losses) for name in self._averages]
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            everything = torch.cat([losses.flatten(), *(one.flatten() for one in counts)])
            torch.distributed.all_reduce(everything)
            sums = torch.split(everything, [one.numel() for one in (losses, *counts)])
            losses, *counts = (one.view(2, -1) for one in sums)
        if not losses[1].any():
            return {}
        computed: dict[str, Any] = {}
        if len(self.metrics):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="No (positive|negative) samples")
                computed = self.metrics.compute()
        for (name, average), count in zip(self._averages.items(), counts, strict=True):
            key = f"{self.stage}/{name}"
            computed[key] = average_present(named[name], computed[key], count, average)
        return {f"{self.stage}/loss": (losses[0] / losses[1]).sum().float(), **computed}

    def is_undefined(self, name: str, value: Any) -> bool:
        """Return whether a value is that of a metric of a class or label of which there was no sample."""
        return name.removeprefix(f"{self.stage}/") in self._averages and math.isnan(value)

    def _named_metrics(self) -> dict[str, Metric]:
        """All metrics, with the states of those that share one up to date."""
        return {
            str(name): metric
            for name, metric in self.metrics.items(keep_base=True, copy_state=False)
        }

    def _move_metrics(self, device: torch.device) -> None:
        if device != self._device:  # list states grow with the epoch
            self.metrics.to(device)
            self._device = device

    def reset(self) -> None:
        """Forget everything."""
        self._pending = []
        self._bytes = 0
        self._stand_in = None
        self._loss_sum = None
        self._count = 0
        self.metrics.reset()

    def state(self) -> dict[str, Any]:
        """Return sums, metric states and pending batches for a checkpoint, in plain containers."""
        metrics = self._named_metrics()
        return {
            "loss_sum": self._loss_sum,
            "count": self._count,
            "metrics": {
                name: {key: getattr(metric, key) for key in metric._defaults}
                for name, metric in metrics.items()
            },
            "updates": {name: metric._update_count for name, metric in metrics.items()},
            # Not flushed here: sums over other blocks would differ in the last bits.
            "pending": {
                "batches": [pair for _, _, *pair in self._pending],
                "losses": [loss for loss, *_ in self._pending],
                "weights": [weight for _, weight, *_ in self._pending],
            },
        }

    def restore(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        """Restore a `state()`."""
        self.reset()
        self._loss_sum = state["loss_sum"]
        self._count = state["count"]
        pending = state["pending"]
        self._pending = [
            (
                loss.to(device),
                None if weight is None else weight.to(device),
                *(one.to(device) for one in pair),
            )
            for loss, weight, pair in zip(
                pending["losses"],
                pending.get("weights") or [None] * len(pending["losses"]),
                pending["batches"],
                strict=True,
            )
        ]
        self._bytes = sum(one.nbytes for _, _, *pair in self._pending for one in pair)
        self._device = None  # the states may be on another device
        for name, metric in self._named_metrics().items():
            saved = state["metrics"].get(name, {})
            for key in metric._defaults.keys() & saved.keys():
                setattr(metric, key, saved[key])
            metric._update_count = state["updates"].get(name, 0)
