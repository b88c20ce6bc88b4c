from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.callbacks import LearningRateMonitor
from typing_extensions import override

if TYPE_CHECKING:
    import lightning as L


@final
class LRMonitor(LearningRateMonitor):
    """Lightning's monitor, once per optimizer step, and at the start of each epoch if epochs are short.

    Lightning's monitor logs once per batch when gradients are accumulated, and for schedulers that step per
    batch only every `trainer.log_every_n_steps` steps; a shorter run has no learning rate in its log.

    Args:
        logging_interval: `step`, `epoch`, or None for that of the scheduler.
        log_momentum: Log the optimizer's momentum or first beta, too.
        log_weight_decay: Log its weight decay, too.
    """

    def __init__(
        self,
        logging_interval: str | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        chosen: Any = logging_interval  # Lightning checks the value
        super().__init__(chosen, log_momentum, log_weight_decay)

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches == 0 and _have_lr(trainer):
            super().on_train_batch_start(trainer)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        if not _have_lr(trainer):
            return
        interval = self.logging_interval
        log_interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # Lightning sets it elsewhere
        if interval is None and trainer.num_training_batches < log_interval:
            self.logging_interval = "epoch"
        try:
            super().on_train_epoch_start(trainer, *args, **kwargs)
        finally:
            self.logging_interval = interval
            for rates in self.lrs.values():  # Lightning keeps every rate that was ever logged
                del rates[:-1]


def _have_lr(trainer: L.Trainer) -> bool:
    """Whether the optimizers have learning rates: Adafactor of transformers may choose them itself."""
    groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return all(group.get("lr") is not None for group in groups)
