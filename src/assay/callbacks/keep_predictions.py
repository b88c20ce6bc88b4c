"""What the model says of each test sample, gathered as it is tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from assay.task.predictions import Predictions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import lightning as L
    from torch import Tensor

    from assay.task.predictions import Kind
    from assay.task.task import Task

_FLUSH_EVERY = 16
_SEED = 0


@final
class KeepPredictions(Callback):
    """Takes what `assay.module.Module.test_step` returns to the CPU, every sixteen batches.

    Positions come from the order of the loader, so that nothing of the evaluation changes. Where not all fit
    the limit, a random choice of the samples is kept, each as likely as any other. Over several processes
    they are gathered by the first one, in the order of the samples.

    Args:
        max_bytes: Of all outputs and targets together.

    Attributes:
        problem: Why there is nothing to keep; empty otherwise.
        num_seen: Samples that were tested.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._task: Task
        self._kind: Kind
        self.problem = ""
        self._order: Iterator[Tensor] = iter(())
        self._num_samples = self.num_seen = 0
        self._chosen: Tensor | None = None
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Ask the loader for its order, and the module what its answers are."""
        module: Any = pl_module  # assay's own
        self._task, self._kind = module.task, module.prediction_kind
        order = getattr(trainer.test_dataloaders, "order", None)
        if order is None:
            self.problem = "its loader says nothing of which samples make up a batch"
            return
        self._order, self._num_samples = iter(order.batches(0)), order.num_samples

    @override
    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in a batch."""
        if self.problem:
            return
        positions = next(self._order)
        predictions, targets = self._task.kept(outputs["predictions"], outputs["targets"], self._kind)
        if predictions.ndim != 2 or len(predictions) != len(positions) or targets.ndim > 2:
            self.problem = (
                f"it answers {len(positions)} samples with values of shape {list(predictions.shape)}"
            )
            return
        self.num_seen += len(positions)
        chosen = self._choose(positions, 4 * (predictions.shape[1] + targets[0].numel() + 1))
        if chosen is not None:
            positions, chosen = positions[chosen], chosen.to(predictions.device)
            predictions, targets = predictions[chosen], targets[chosen]
        self._pending.append((positions, predictions, targets))
        if len(self._pending) >= _FLUSH_EVERY:
            self._flush()

    def _choose(self, positions: Tensor, bytes_each: int) -> Tensor | None:
        """Which of a batch are kept; None for all."""
        most = self._max_bytes // bytes_each
        if most >= self._num_samples:
            return None
        if self._chosen is None:
            self._chosen = torch.zeros(self._num_samples, dtype=torch.bool)
            drawn = np.random.default_rng(_SEED).choice(self._num_samples, most, replace=False)
            self._chosen[torch.from_numpy(drawn)] = True
        return self._chosen[positions]

    def _flush(self) -> None:
        """Move what is pending to the CPU, in one wait for the device."""
        if self._pending:
            positions, predictions, targets = (
                torch.cat(column) for column in zip(*self._pending, strict=True)
            )
            self._kept.append((positions, predictions.cpu(), targets.cpu()))
        self._pending = []

    @override
    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather what all processes have on the first one."""
        self._flush()
        if trainer.world_size == 1:
            return
        own = (self.problem, self.num_seen, self._kept)
        every: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(every, own)
        self.problem = next((problem for problem, _, _ in every if problem), "")
        self.num_seen = sum(count for _, count, _ in every)
        self._kept = [block for _, _, kept in every for block in kept] if trainer.is_global_zero else []

    def positions(self) -> Tensor:
        """Of the samples that are kept, in the part that was tested: int64, ascending."""
        return torch.cat([positions for positions, _, _ in self._kept]).sort().values

    def predictions(self, class_names: Sequence[str], names: Sequence[str], subset: str) -> Predictions:
        """What was gathered, in the order of the samples.

        Args:
            class_names: Of the data.
            names: Of all samples of the part that was tested.
            subset: Name of the part.
        """
        positions, outputs, targets = (torch.cat(column) for column in zip(*self._kept, strict=True))
        order = positions.argsort()
        return Predictions(
            self._task.name,
            self._task.kept_kind or self._kind,
            tuple(names[position] for position in positions[order].tolist()),
            outputs[order].float().numpy(),
            targets[order].numpy(),
            tuple(class_names),
            subset,
            self.num_seen if self.num_seen > len(positions) else 0,
        )
