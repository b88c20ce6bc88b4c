from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.trainer.states import TrainerFn
from torch.optim.swa_utils import get_swa_multi_avg_fn
from typing_extensions import override

from assay.callbacks.ema import copy_counters
from assay.callbacks.weight_average import Float32Average
from assay.errors import check_numbers

if TYPE_CHECKING:
    import lightning as L


@final
class SWA(Float32Average):
    """Keeps the mean of the weights at the ends of the last epochs, and validates, tests and saves that mean.

    This is stochastic weight averaging (Izmailov et al. 2018, https://arxiv.org/abs/1803.05407). Training
    continues from the weights that are not averaged. The running statistics of batch norm are averaged like
    weights, which saves the paper's additional pass over the data. The mean is kept in float32 at least,
    whatever the precision of the weights. For the paper's constant learning rate use
    `scheduler=none`.

    Lightning's `StochasticWeightAveraging` hands the mean to the module after training: no checkpoint
    contains it, and weights tested from a checkpoint are not averaged.

    Args:
        start_fraction: Share of `trainer.max_epochs` before the first epoch whose weights count, in [0, 1).

    Raises:
        ValueError: The share is out of range; when training begins, if `trainer.max_epochs` is not set.
    """

    def __init__(self, start_fraction: float = 0.75) -> None:
        check_numbers("[0, 1)", start_fraction=start_fraction)
        mean = get_swa_multi_avg_fn()  # type: ignore[no-untyped-call]  # torch has no types there
        super().__init__(use_buffers=True, multi_avg_fn=copy_counters(mean))
        self.start_fraction = start_fraction

    @property
    def count(self) -> int:
        """Number of epochs in the mean."""
        if self._average_model is None:
            return 0
        return int(self._average_model.n_averaged)

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        first_epoch(trainer, self.start_fraction)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Add the weights after the last batch: the hook at the end of an epoch runs after validation."""
        first = int(first_epoch(trainer, self.start_fraction))
        if (
            trainer.is_last_batch
            and trainer.current_epoch >= first
            and self._average_model is not None
        ):
            self._average_model.update_parameters(self.current(pl_module))

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Nothing."""

    @override
    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.count and trainer.state.fn == TrainerFn.FITTING:
            super().on_validation_epoch_start(trainer, pl_module)

    @override
    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.count and trainer.state.fn == TrainerFn.FITTING:
            super().on_validation_epoch_end(trainer, pl_module)

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.count:
            super().on_train_end(trainer, pl_module)

    @override
    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.count:
            super().on_save_checkpoint(trainer, pl_module, checkpoint)

    @override
    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore mean and weights if training continues; otherwise the mean is loaded."""
        if self._average_model is not None and "averaging_state" in checkpoint:
            super().on_load_checkpoint(trainer, pl_module, checkpoint)


def first_epoch(trainer: L.Trainer, start_fraction: float) -> float:
    """Return a share of `trainer.max_epochs`, not rounded."""
    if trainer.max_epochs is None or trainer.max_epochs < 0:
        raise ValueError("start_fraction is a share of trainer.max_epochs, which is not set")
    return start_fraction * trainer.max_epochs
