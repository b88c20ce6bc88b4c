from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn
from typing_extensions import override

from assay.callbacks.weight_average import Float32Average
from assay.errors import check_numbers

if TYPE_CHECKING:
    import lightning as L
    from torch import Tensor


@final
class EMA(Float32Average):
    r"""Keeps an exponential moving average of the weights, and validates, tests and saves that average.

    After update n the average is :math:`a_n = d_n a_{n-1} + (1 - d_n) w_n`. Its horizon, :math:`1 / (1 - d)`
    updates, is how far it looks back: 1,000 updates for a decay of 0.999. With a fixed decay, the average
    over a shorter run consists mostly of the initial weights. So the horizon is never longer than
    `warmup_fraction` of the updates so far:

    .. math:: d_n = \min(\mathtt{decay}, 1 - 1 / \max(1, \mathtt{warmup\_fraction} \cdot n))

    The average is kept in float32 at least, whatever the precision of the weights.

    This is the warm-up that TensorFlow's `ExponentialMovingAverage` has as `num_updates` and timm's
    `ModelEmaV3` as `use_warmup`, with its share as an argument. The first updates copy the weights.

    Lightning's `EMAWeightAveraging` has no warm-up.

    Args:
        decay: Share of the old average that an update keeps in the end, in [0, 1).
        warmup_fraction: Longest horizon as a share of the updates so far, in (0, 1]; None for the fixed
            `decay` from the first step on.
        update_every_n_steps: Optimizer steps from one update to the next; steps of
            several manually stepped optimizers all count.
        use_buffers: Average buffers, such as batch norm's running statistics, too.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        decay: float = 0.999,
        warmup_fraction: float | None = 0.1,
        update_every_n_steps: int = 1,
        use_buffers: bool = True,
    ) -> None:
        check_numbers("[0, 1)", decay=decay)
        check_numbers("(0, 1]", warmup_fraction=warmup_fraction)
        check_numbers("[1, inf)", update_every_n_steps=update_every_n_steps)
        super().__init__(use_buffers=use_buffers)
        self.decay = decay
        self.warmup_fraction = warmup_fraction
        self.update_every_n_steps = update_every_n_steps
        self._updates = 0
        self._is_empty: bool | None = None

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._is_empty = None
        if stage == "fit" and self._average_model is not None:
            self._average_model.update_parameters = self._update  # type: ignore[method-assign]  # see there

    @override
    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        if step_idx is None:
            return False
        # Not a multiple: a module that steps two optimizers manually skips every second number.
        latest: int = self.state_dict()["latest_update_step"]
        interval = self.update_every_n_steps
        if step_idx // interval == (latest - 1) // interval:
            return False
        # Derived from the step: reading torch's count would wait for the device.
        self._updates = step_idx // interval + 1
        return True

    def decay_at(self, update: int) -> float:
        """Return the decay of an update."""
        if self.warmup_fraction is None:
            return self.decay
        return min(self.decay, 1.0 - 1.0 / max(1.0, self.warmup_fraction * update))

    @torch.no_grad()
    def _update(self, model: Any) -> None:
        """Update as torch does, which twice in each update waits for the device to tell its counter."""
        average = self._average_model
        assert average is not None  # noqa: S101 - training has begun
        if self._is_empty is None:
            self._is_empty = bool(average.n_averaged == 0)
        decay = 0.0
        if not self._is_empty:
            decay = self.decay_at(self._updates)
        averaged: list[tuple[Tensor, Tensor]] = [
            *zip(average.module.parameters(), model.parameters(), strict=True)
        ]
        for mean, value in zip(average.module.buffers(), model.buffers(), strict=True):
            if average.use_buffers and is_averaged(mean):
                averaged.append((mean, value))
            else:
                mean.copy_(value)
        lerp: Any = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]  # torch has no types there
        lerp([mean for mean, _ in averaged], [value.detach() for _, value in averaged], None)
        average.n_averaged += 1
        self._is_empty = False


def is_averaged(tensor: Tensor) -> bool:
    """Return whether a mean of such tensors means anything; counters, such as batch norm's, are copied."""
    return tensor.is_floating_point() or tensor.is_complex()


def copy_counters(average: Any) -> Any:
    """Wrap an average over tensors of one dtype: counters are copied."""

    def apply(averaged: Any, current: Any, num_averaged: Any) -> None:
        if is_averaged(averaged[0]):
            average(averaged, current, num_averaged)
            return
        for mean, value in zip(averaged, current, strict=True):
            mean.copy_(value)

    return apply
