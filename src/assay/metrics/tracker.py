"""Loss and metrics of one stage, collected per step and computed once per epoch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import Tensor

from assay.torch_internals import tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchmetrics import MetricCollection

LARGEST: Final = 100_000
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
    kind = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
    raise TypeError(f"it computes a {kind}, which can be neither logged nor stored")


_MOST_STEPS, _MOST_BYTES = 64, 1 << 20
"""Limits of pending batches."""


@final
class Tracker:
    """A `MetricCollection` and the mean loss of a stage."""

    def __init__(
        self, metrics: MetricCollection, stage: str, predict: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.stage, self._predict = stage, predict
        self.metrics = metrics.clone(prefix=f"{stage}/")
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []
        """Loss, predictions and targets of each batch."""
        self._stand_in: tuple[Tensor, Tensor] | None = None
        self._loss_sum: Tensor | None = None
        self._count = self._bytes = 0
        self._most_steps = _MOST_STEPS if stage == "train" else math.inf
        self._device: torch.device | None = None

    def update(self, loss: Tensor, predictions: Tensor, targets: Tensor) -> None:
        """Add one batch."""
        self._pending.append((loss, predictions, targets))
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
        each_loss, *columns = zip(*self._pending, strict=True)
        losses = torch.stack(each_loss)
        losses = losses.to(torch.float64 if losses.device.type != "mps" else torch.float32)
        sizes = [len(targets) for targets in columns[1]]
        total = (losses * torch.tensor(sizes, device=losses.device)).sum()
        self._loss_sum = total if self._loss_sum is None else self._loss_sum + total
        self._count += sum(sizes)
        if len(self.metrics):
            self._move_metrics(losses.device)
            self._update_metrics(*map(torch.cat, columns))
        self._pending, self._bytes = [], 0

    def _update_metrics(self, predictions: Tensor, targets: Tensor) -> None:
        predictions = predictions.float() if predictions.dtype != torch.float64 else predictions
        self.metrics.update(predictions if self._predict is None else self._predict(predictions), targets)

    @torch.no_grad()
    def _shape_empty_states(self) -> None:
        """Give the states of an empty share the dtypes and dimensions of the others, which are gathered."""
        if self._count or self._stand_in is None:
            return
        self._update_metrics(*self._stand_in)
        for metric in self.metrics.values(copy_state=False):
            for name, default in metric._defaults.items():
                value = getattr(metric, name)
                if isinstance(value, list):
                    empty: Any = [torch.atleast_1d(part)[:0] for part in value]
                else:
                    empty = default.to(value).expand_as(value).clone()
                setattr(metric, name, empty)

    def compute(self, device: torch.device | None = None) -> dict[str, Any]:
        """Return loss and metrics of all batches since the last reset, over all ranks."""
        self.flush()
        if device is None:
            device = torch.device("cpu") if self._loss_sum is None else self._loss_sum.device
        pair = torch.zeros(2, dtype=torch.float64 if device.type != "mps" else torch.float32, device=device)
        if self._loss_sum is not None:
            pair[0], pair[1] = self._loss_sum, self._count
        if len(self.metrics):
            self._move_metrics(device)
            self._shape_empty_states()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(pair)
        if not pair[1]:
            return {}
        computed: dict[str, Any] = self.metrics.compute() if len(self.metrics) else {}
        return {f"{self.stage}/loss": (pair[0] / pair[1]).float(), **computed}

    def _move_metrics(self, device: torch.device) -> None:
        if device != self._device:  # list states grow with the epoch
            self.metrics.to(device)
            self._device = device

    def reset(self) -> None:
        """Forget everything."""
        self._pending, self._bytes = [], 0
        self._stand_in = None
        self._loss_sum, self._count = None, 0
        self.metrics.reset()

    def state(self) -> dict[str, Any]:
        """Return sums, metric states and pending batches for a checkpoint, in plain containers."""
        metrics = {str(name): metric for name, metric in self.metrics.items(keep_base=True, copy_state=False)}
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
                "batches": [pair for _, *pair in self._pending],
                "losses": [loss for loss, *_ in self._pending],
            },
        }

    def restore(self, state: dict[str, Any], device: torch.device | None = None) -> None:
        """Restore a `state()`."""
        self.reset()
        self._loss_sum, self._count = state["loss_sum"], state["count"]
        pending = state["pending"]
        self._pending = [
            (loss.to(device), predictions.to(device), targets.to(device))
            for loss, (predictions, targets) in zip(pending["losses"], pending["batches"], strict=True)
        ]
        self._bytes = sum(predictions.nbytes + targets.nbytes for _, predictions, targets in self._pending)
        self._device = None  # the states may be on another device
        for name, metric in self.metrics.items(keep_base=True, copy_state=False):
            saved = state["metrics"].get(str(name), {})
            for key in metric._defaults.keys() & saved.keys():
                setattr(metric, key, saved[key])
            metric._update_count = state["updates"].get(str(name), 0)
