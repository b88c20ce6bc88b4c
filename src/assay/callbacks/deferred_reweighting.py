"""Deferred re-weighting: class weights that begin late in training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from assay.callbacks.swa import first_epoch
from assay.errors import check_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lightning as L
    from torch import Tensor


@final
class DeferredReweighting(Callback):
    """Gives the loss class weights from some epoch on; none before it, and none in evaluation.

    This is the schedule DRW of Cao et al. 2019 (https://arxiv.org/abs/1906.07413). The weights are those of
    the effective number of samples (Cui et al. 2019, https://arxiv.org/abs/1901.05555), w_c = (1 - β) / (1
    - β^n_c), scaled to sum to the number of classes. They depend on the epoch alone, so a resumed run has
    the same ones. Validation and test losses are not weighted, so that they can be compared between epochs
    and with `assay eval`.

    Args:
        class_counts: Training samples of each class. A class without samples is weighted as if it had one.
        start_fraction: First epoch with weights, as a share of `trainer.max_epochs`.
        beta: β, in [0, 1): 0 weights all classes alike, towards 1 by inverse frequency.

    Raises:
        ValueError: If there are no class counts, or β or the start is out of range; at setup, if the loss
            cannot be re-weighted or has weights of its own, or `trainer.max_epochs` is not set.
    """

    weighs_classes: ClassVar[bool] = True

    def __init__(
        self, class_counts: Sequence[int], start_fraction: float = 0.8, beta: float = 0.9999
    ) -> None:
        if len(class_counts) == 0:
            raise ValueError(
                "callbacks=drw needs the class counts of a classification task, got none"
            )
        check_numbers("[0, 1)", beta=beta)
        check_numbers("[0, 1]", start_fraction=start_fraction)
        self.weight = effective_number_weight(class_counts, beta)
        self.start_fraction = start_fraction

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if not callable(getattr(getattr(pl_module, "loss", None), "set_class_weight", None)):
            raise ValueError(
                "callbacks=drw needs a loss that can be re-weighted: ldam, cross_entropy or focal"
            )
        if stage == "fit":
            if getattr(pl_module.loss, "has_class_weight", False):
                raise ValueError(
                    "callbacks=drw sets the class weights, and so does loss.class_weight: remove one of "
                    "them (loss.class_weight=null)"
                )
            first_epoch(trainer, self.start_fraction)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set the weights of the epoch in which training starts or resumes."""
        started = trainer.current_epoch >= round(first_epoch(trainer, self.start_fraction))
        loss: Any = pl_module.loss
        loss.set_class_weight(self.weight.to(pl_module.device) if started else None)

    on_train_start = on_train_epoch_start

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        loss: Any = pl_module.loss
        loss.set_class_weight(None)

    on_test_start = on_validation_start

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            self.on_train_epoch_start(trainer, pl_module)


def effective_number_weight(class_counts: Sequence[int], beta: float) -> Tensor:
    """Class weights by effective number of samples (Cui et al. 2019, https://arxiv.org/abs/1901.05555)."""
    if beta == 0.0:
        return torch.ones(len(class_counts))
    # 1 - β^n loses most of its digits for β near 1; expm1 keeps them.
    effective = [-math.expm1(max(count, 1) * math.log(beta)) for count in class_counts]
    weight = torch.tensor([(1.0 - beta) / number for number in effective], dtype=torch.float64)
    return (weight * len(class_counts) / weight.sum()).float()
