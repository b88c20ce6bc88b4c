"""Averages of weights in float32, whatever the precision of the weights."""

from __future__ import annotations

from abc import ABC
from itertools import chain
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.callbacks import WeightAveraging
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lightning as L
    from torch import Tensor, nn


class Float32Average(WeightAveraging, ABC):
    """Keeps an average in float32 at least: half precision rounds small steps away."""

    # Lightning swaps the average and the weights for a validation. In another dtype that would round the
    # average each time, so the weights are kept aside and the average is copied into the model.

    _weights: list[Tensor] | None = None
    _is_cast: bool | None = None

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        # Lightning moves it later, and the average is to be there, too.
        pl_module.to(trainer.strategy.root_device)
        super().setup(trainer, pl_module, stage)
        self._is_cast = None  # the weights are converted later
        if stage == "fit" and self._average_model is not None:
            for tensor in _tensors(self._average_model.module):
                if tensor.dtype in (torch.float16, torch.bfloat16):
                    tensor.data = tensor.data.float()

    def current(self, pl_module: L.LightningModule) -> Any:
        """Return the weights as the average takes them in."""
        assert self._average_model is not None  # noqa: S101 - training has begun
        average = self._average_model.module
        if self._differs(pl_module):
            return _Cast(pl_module, average)
        return pl_module

    def _differs(self, pl_module: L.LightningModule) -> bool:
        if self._is_cast is None:
            assert self._average_model is not None  # noqa: S101 - as above
            pairs = zip(_tensors(pl_module), _tensors(self._average_model.module), strict=True)
            self._is_cast = any(weights.dtype != mean.dtype for weights, mean in pairs)
        return self._is_cast

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        super().on_train_batch_end(trainer, self.current(pl_module), outputs, batch, batch_idx)

    @override
    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._average_model is None or not self._differs(pl_module):
            super().on_validation_epoch_start(trainer, pl_module)
            return
        self._weights = [tensor.detach().clone() for tensor in _tensors(pl_module)]
        self._copy_average_to_current(pl_module)

    @override
    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._weights is None:
            super().on_validation_epoch_end(trainer, pl_module)
            return
        for tensor, weights in zip(_tensors(pl_module), self._weights, strict=True):
            tensor.data.copy_(weights)
        self._weights = None


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())


@final
class _Cast:
    """A module whose tensors are read in the dtypes of another one's."""

    def __init__(self, module: nn.Module, like: nn.Module) -> None:
        self._module = module
        self._like = like

    def parameters(self) -> list[Tensor]:
        pairs = zip(self._module.parameters(), self._like.parameters(), strict=True)
        return [tensor.detach().to(mean.dtype) for tensor, mean in pairs]

    def buffers(self) -> list[Tensor]:
        pairs = zip(self._module.buffers(), self._like.buffers(), strict=True)
        return [tensor.detach().to(mean.dtype) for tensor, mean in pairs]
