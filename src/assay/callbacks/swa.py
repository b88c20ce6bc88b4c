from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lightning as L
    from torch import Tensor

_RAW = "weights_before_averaging"


@final
class SWA(Callback):
    """Keeps the mean of the weights at the ends of the last epochs, and validates, tests and saves that mean.

    This is stochastic weight averaging (Izmailov et al. 2018, https://arxiv.org/abs/1803.05407). Training
    goes on from the weights that are not averaged. The running statistics of batch norm are averaged like
    weights, which saves the paper's additional pass over the data. The paper's constant learning rate is a
    scheduler's to give, such as `scheduler=none`.

    Lightning's `StochasticWeightAveraging` hands the mean to the module when training is over: no checkpoint
    holds it, and what is tested from a checkpoint is not averaged.

    A checkpoint's `state_dict` is the mean as soon as there is one; the weights to train on from lie beside
    it.

    Args:
        start_epoch: How many epochs are trained before the first whose weights count; goes before
            `start_fraction` if both are given.
        start_fraction: The same as a share of `trainer.max_epochs`.

    Raises:
        ValueError: A start is out of range or none is given; when training begins, if the start is a share of
            an unknown number of epochs.
    """

    averages_weights: Final = True

    def __init__(self, start_epoch: int | None = None, start_fraction: float | None = 0.75) -> None:
        if start_epoch is None and start_fraction is None:
            raise ValueError("callbacks=swa needs a start: give start_epoch=10 or start_fraction=0.75")
        if start_epoch is not None and start_epoch < 0:
            raise ValueError(f"start_epoch={start_epoch} is negative; give how many epochs come before")
        if start_fraction is not None and not 0.0 <= start_fraction < 1.0:
            raise ValueError(f"start_fraction={start_fraction} is not in [0, 1); give such as 0.75")
        self.start_epoch, self.start_fraction = start_epoch, start_fraction or 0.0
        self.count = 0
        self._mean: dict[str, Tensor] = {}
        self._aside: dict[str, Tensor] = {}
        """The weights to train on from, while the module holds the mean."""

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._first_epoch(trainer)

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_last_batch and trainer.current_epoch >= self._first_epoch(trainer):
            self._take_in(pl_module.state_dict())

    @override
    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.count and trainer.state.fn == TrainerFn.FITTING:
            self._aside = _copy(pl_module.state_dict())
            pl_module.load_state_dict(self._mean)

    @override
    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._aside:
            pl_module.load_state_dict(self._aside)
            self._aside = {}

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.count:
            pl_module.load_state_dict(self._mean)

    @override
    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.count:
            checkpoint[_RAW] = checkpoint["state_dict"]
            checkpoint["state_dict"] = _copy(self._mean)

    @override
    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """When training goes on, take up mean and weights; otherwise the mean is what is loaded."""
        if trainer.state.fn == TrainerFn.FITTING and _RAW in checkpoint:
            pl_module.load_state_dict(checkpoint[_RAW])
            own = pl_module.state_dict()
            self._mean = {
                name: value.to(own[name].device) for name, value in checkpoint["state_dict"].items()
            }

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]

    @torch.no_grad()
    def _take_in(self, state: Mapping[str, Tensor]) -> None:
        self.count += 1
        if self.count == 1:
            self._mean = _copy(state)
            return
        for name, value in state.items():
            mean = self._mean[name]
            if mean.is_floating_point():
                mean.add_((value - mean) / self.count)
            else:  # a counter, such as batch norm's
                mean.copy_(value)

    def _first_epoch(self, trainer: L.Trainer) -> int:
        return int(start_epoch(trainer, self.start_epoch, self.start_fraction, "swa"))


def _copy(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


def start_epoch(trainer: L.Trainer, epoch: int | None, fraction: float, name: str) -> float:
    """The epoch, or the share of `trainer.max_epochs`; not rounded."""
    if epoch is not None:
        return epoch
    if trainer.max_epochs is None or trainer.max_epochs < 0:
        raise ValueError(
            f"start_fraction={fraction} is a share of trainer.max_epochs, which is not set; "
            f"give callbacks.{name}.start_epoch or trainer.max_epochs"
        )
    return fraction * trainer.max_epochs
