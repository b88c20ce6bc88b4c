"""What the model says of each test sample, gathered as it is tested."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from assay.errors import one_line_of
from assay.task.prediction.predictions import Predictions
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import lightning as L
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.task.prediction.predictions import Kind
    from assay.task.task import Task

_FLUSH_EVERY = 16
_SEED = 0


@final
class KeepPredictions(Callback):
    """Takes what `test_step` returns to the CPU, every sixteen batches.

    That is a mapping with `predictions` `[B, …]`, which are what the module's `prediction_kind` says, and
    `targets` `[B, …]`: of `assay.module.Module`, or of a module of one's own that has such an attribute.

    Positions come from the order of the loader, so that nothing of the evaluation changes. Where not all fit
    the limit, a random choice of the samples is kept, each as likely as any other. Over several processes
    they are gathered by the first one, in the order of the samples.

    Args:
        max_bytes: Of all outputs and targets together.
        num_shown: Samples to be drawn: so many of the worst, and so many at random. Of these it keeps what
            `Task.shown` gives, too.

    Attributes:
        problem: Why there is nothing to keep; empty otherwise.
        num_seen: Samples that were tested.
    """

    def __init__(self, max_bytes: int, num_shown: int = 0) -> None:
        self._max_bytes, self._num_shown = max_bytes, num_shown
        self._task: Task
        self._kind: Kind
        self.problem = ""
        self._order: Iterator[Tensor] = iter(())
        self._num_samples = self.num_seen = 0
        self._chosen: Tensor | None = None
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self._shown: list[tuple[int, float, NDArray[Any]]] = []
        self._drawn: set[int] = set()

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Ask the loader for its order, and the module what its answers are."""
        module, data = cast("Any", pl_module), cast("Any", trainer).datamodule
        self._task, self._kind = task_of(data.spec.task), module.prediction_kind
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
        try:
            self._take(pl_module, outputs)
        except Exception as error:  # of a task of somebody's own; the run has been trained all the same
            self.problem = f"{self._task.name} fails: {one_line_of(error)}"

    def _take(self, pl_module: L.LightningModule, outputs: Any) -> None:
        positions = next(self._order)
        answers, targets = _answers(outputs)
        if answers is None or targets is None:
            self.problem = f"test_step of {type(pl_module).__name__} does not return predictions and targets"
            return
        predictions, targets = self._task.kept(answers, targets, self._kind)
        if predictions.ndim != 2 or len(predictions) != len(positions) or targets.ndim > 2:
            self.problem = (
                f"it answers {len(positions)} samples with values of shape {list(predictions.shape)}"
            )
            return
        self.num_seen += len(positions)
        chosen = self._choose(positions, 4 * (predictions.shape[1] + targets[0].numel() + 1))
        if self._num_shown and (shown := self._task.shown(answers)) is not None:
            self._show(positions, chosen, predictions, targets, shown)
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

    def _show(
        self, positions: Tensor, chosen: Tensor | None, outputs: Tensor, targets: Tensor, shown: Tensor
    ) -> None:
        """Keep what is drawn of samples that may be shown: those chosen at random, and the worst so far."""
        if not self._drawn:
            kept = torch.arange(self._num_samples) if self._chosen is None else self._chosen.nonzero()[:, 0]
            self._drawn = set(kept[drawn(len(kept), self._num_shown)].tolist())
        places = torch.arange(len(positions)) if chosen is None else chosen.nonzero()[:, 0]
        badness = self._task.badness(self._as_predictions(outputs, targets, positions.tolist()))
        badness = np.where(np.isfinite(badness), badness, -np.inf)
        worst = self._worst()
        last = min((bad for _, bad, _ in worst), default=-np.inf)
        few = len(worst) < self._num_shown
        for place in places.tolist():
            position, bad = int(positions[place]), float(badness[place])
            if position in self._drawn or few or bad > last:
                self._shown.append((position, bad, shown[place].cpu().numpy()))
        best = {position for position, _, _ in self._worst()} | self._drawn
        self._shown = [one for one in self._shown if one[0] in best]

    def _worst(self) -> list[tuple[int, float, NDArray[Any]]]:
        return sorted(self._shown, key=lambda one: (-one[1], one[0]))[: self._num_shown]

    def shown(self, position: int) -> NDArray[Any] | None:
        """What `Task.shown` gave of a sample; None where it was not kept.

        Args:
            position: In the part that was tested.
        """
        return next((one for at, _, one in self._shown if at == position), None)

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
        own = (self.problem, self.num_seen, self._kept, self._shown)
        every: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(every, own)
        self.problem = next((problem for problem, *_ in every if problem), "")
        self.num_seen = sum(count for _, count, *_ in every)
        first = trainer.is_global_zero
        self._kept = [block for _, _, kept, _ in every for block in kept] if first else []
        self._shown = [one for *_, shown in every for one in shown] if first else []

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
        keys = [names[position] for position in positions[order].tolist()]
        whole = self._as_predictions(outputs[order], targets[order], keys, class_names)
        seen = self.num_seen if self.num_seen > len(positions) else 0
        return replace(whole, subset=subset, num_evaluated=seen)

    def _as_predictions(
        self,
        outputs: Tensor,
        targets: Tensor,
        keys: Sequence[Any],
        class_names: Sequence[str] = (),
    ) -> Predictions:
        return Predictions(
            self._task.name,
            self._task.kept_kind or self._kind,
            tuple(map(str, keys)),
            outputs.float().cpu().numpy(),
            targets.cpu().numpy() if targets[0].numel() else None,
            tuple(class_names or self._task.kept_names(outputs.shape[1])),
        )


def _answers(outputs: Any) -> tuple[Tensor | None, Tensor | None]:
    """Predictions and targets of a batch; None of what a module of somebody's own does not return."""
    found = [outputs.get(name) if isinstance(outputs, dict) else None for name in ("predictions", "targets")]
    predictions, targets = (one if isinstance(one, torch.Tensor) else None for one in found)
    return predictions, targets


def drawn(num_samples: int, most: int) -> NDArray[np.int64]:
    """Samples that are shown at random, the same ones each time.

    Args:
        num_samples: To draw from.
        most: How many at most.
    """
    return np.random.default_rng(_SEED).permutation(num_samples)[:most]
