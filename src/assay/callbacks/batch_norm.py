"""Exact statistics of batch norm at each validation."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, final

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn
from typing_extensions import override

from assay.errors import check_numbers
from assay.task.task import Task

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_MOST_VALUES = 1 << 24
"""Limit for all samples together, which stay in memory."""


@final
class BatchNormStatistics(L.Callback):
    """Recompute the running mean and variance of batch norm before each validation.

    The running averages lag behind the weights by some ten steps and start from zero and one, so after a
    short epoch a network does far worse in evaluation than in training. This callback recomputes them for
    the current weights over a fixed, random subset of training samples ("precise" batch norm, Wu and Johnson
    2021, https://arxiv.org/abs/2105.07576). Frozen layers stay as they are. Nothing random is drawn, so a
    resumed run continues as if it had not been stopped.

    Args:
        num_samples: Most training samples to use.

    Raises:
        ValueError: `num_samples` is not positive.
    """

    def __init__(self, num_samples: int = 512) -> None:
        check_numbers("[1, inf)", num_samples=num_samples)
        self.num_samples = num_samples
        self._inputs: Tensor | None = None

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        data = trainer.datamodule  # type: ignore[attr-defined]  # a plain attribute
        fitting = trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
        sample = getattr(data, "sample_inputs", None)
        if (
            not fitting
            or sample is None
            or not isinstance(getattr(pl_module, "task", None), Task)
        ):
            return  # a custom module may take anything
        layers: list[Any] = [
            module
            for module in pl_module.modules()
            if isinstance(module, BATCH_NORMS)
            and module.running_mean is not None
            and (module.weight is None or module.weight.requires_grad)
        ]
        if not layers:
            return
        if self._inputs is None:
            count = max(2, min(self.num_samples, _MOST_VALUES // max(1, data.spec.num_features)))
            self._inputs = sample(count)
        size = data.eval_batch_size
        batches = [rows for rows in self._inputs.split(size) if len(rows) > 1]
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            _refit(
                pl_module,
                layers,
                [data.normalize(rows.to(data.device), data.dtype) for rows in batches],
            )

    @override
    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._inputs = None


def _without_compilation() -> AbstractContextManager[Any]:
    """Call compiled modules as they were: an average over all batches breaks their graph."""
    if "torch._dynamo" not in sys.modules:  # which takes a second to import
        return nullcontext()
    eager: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return eager


def _refit(module: L.LightningModule, layers: list[Any], batches: list[Tensor]) -> None:
    """Average the statistics of batches, with all other layers in evaluation."""
    modes = {submodule: submodule.training for submodule in module.modules()}
    before = [(layer.momentum, layer.num_batches_tracked.clone()) for layer in layers]
    try:
        module.eval()
        for layer in layers:
            layer.train()
            layer.reset_running_stats()
            layer.momentum = None  # the mean of all batches, each counted the same
        with _without_compilation():
            for inputs in batches:
                module(inputs)
    finally:
        for layer, (momentum, count) in zip(layers, before, strict=True):
            layer.momentum = momentum
            layer.num_batches_tracked.copy_(count)
        for submodule, training in modes.items():
            submodule.training = training
