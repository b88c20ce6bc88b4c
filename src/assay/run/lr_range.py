"""The learning rate at which a job's loss falls fastest, by a range test: `assay tune --lr`."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from lightning.pytorch.callbacks import Callback
from scipy.ndimage import gaussian_filter1d, median_filter  # type: ignore[import-untyped]  # scipy ships no types
from typing_extensions import override

from assay.config.serialize import is_number, value_of
from assay.errors import AssayError
from assay.figure.figure import Figure, Line, Points
from assay.run.profile import EnoughMeasured, train_briefly

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lightning as L

    from assay.check.checker import Checker


@final
@dataclass(frozen=True)
class RangeTest:
    """What the loss makes of a learning rate that rises from step to step.

    Attributes:
        overrides: What was typed.
        lr: Where the smoothed loss falls fastest.
        lr_typed: Of the job as typed; null where its optimizer has none of that name.
        lrs: Of each step.
        losses: Of each step, before it; smoothed.
        seconds: Time that it took.
    """

    overrides: Sequence[str]
    lr: float
    lr_typed: float | None
    lrs: Sequence[float]
    losses: Sequence[float]
    seconds: float


_LOWEST: Final = 1e-7
_HIGHEST: Final = 10.0
_STEPS: Final = 200
_FEWEST: Final = 50
_SMOOTHING: Final = 4.0
"""Standard deviation in steps: the rate has grown by a half then."""
_CLEAR: Final = 5.0
"""Standard deviations of the smoothed loss by which it has to fall."""
_NOISY: Final = 9
_DIVERGED: Final = 3.0
"""Times as much above the first loss as it has fallen below that: nothing is learnt any more."""


def find_lr(checker: Checker, overrides: Sequence[str]) -> RangeTest:
    """Train a job with a rising learning rate, as Smith (2017, https://arxiv.org/abs/1506.01186) does.

    Raises:
        AssayError: The job cannot run, ends too early, or its loss never falls.
    """
    start = time.monotonic()
    job = checker.job(overrides)
    rise = _RisingLR()
    train_briefly(job, checker.check(job).datamodule, rise, alone=True)
    if not rise.is_finite and len(rise.losses) < _FEWEST:
        lr = f"{rise.lrs[-1]:.1g}" if rise.lrs else f"{_LOWEST:.0e}"
        raise AssayError(
            f"the loss is not finite after {len(rise.losses)} steps, at a learning rate of {lr}",
            hint="look with assay train debug=anomaly",
        )
    if len(rise.losses) < _FEWEST:
        raise AssayError(
            f"the run ends after {len(rise.losses)} steps, and the learning rate needs {_FEWEST} to rise",
            hint="let it be longer, as by trainer.max_epochs=100, or make data.batch_size smaller",
        )
    # The median first: a single batch of outliers is no rise.
    losses = gaussian_filter1d(median_filter(rise.losses, _NOISY, mode="nearest"), _SMOOTHING, mode="nearest")
    at_first = losses[: _FEWEST // 2]  # where nothing is learnt yet
    steepest = int(np.gradient(losses[: max(2, int(losses.argmin()) + 1)]).argmin())
    if at_first.mean() - losses.min() < _CLEAR * at_first.std() or steepest < len(at_first):
        raise AssayError(
            f"the loss falls by {at_first.mean() - losses.min():.3g} at most, and differs by "
            f"{at_first.std():.3g} where nothing is learnt: no learning rate stands out",
            hint="make data.batch_size larger, or try some: assay train -m optimizer.lr=0.0001,0.001,0.01",
        )
    lr_typed = value_of(job.to_config(), "optimizer.lr")
    return RangeTest(
        overrides=list(overrides),
        lr=float(f"{rise.lrs[steepest]:.2g}"),
        lr_typed=float(lr_typed) if is_number(lr_typed) else None,
        lrs=rise.lrs,
        losses=losses.tolist(),
        seconds=time.monotonic() - start,
    )


def draw_range(test: RangeTest) -> Figure:
    """The loss over the learning rate."""
    marks = [Line("smoothed loss", test.lrs, test.losses)]
    for name, lr in (("falls fastest", test.lr), ("as typed", test.lr_typed)):
        if lr is not None:
            loss = float(np.interp(lr, test.lrs, test.losses))
            marks.append(Points(f"{name}: {lr:.2g}", [lr], [loss]))  # type: ignore[arg-type]  # a mark as well
    lowest, first = min(test.losses), test.losses[0]
    shown = (lowest - 0.1 * abs(first - lowest), max(test.losses[0], lowest) + 0.5 * abs(first - lowest))
    return Figure(
        "lr",
        "Loss as the learning rate rises",
        tuple(marks),
        *("learning rate", "training loss"),
        log="x",
        y_range=shown,
    )


@final
class _RisingLR(Callback):
    """Multiplies the learning rate with each step, whatever the schedule says, until the loss diverges."""

    def __init__(self) -> None:
        self.lrs: list[float] = []
        self.losses: list[float] = []
        self.is_finite, self._lowest = True, math.inf

    @override
    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        lr = _LOWEST * (_HIGHEST / _LOWEST) ** (trainer.global_step / (_STEPS - 1))
        if not self.lrs or lr > self.lrs[-1]:
            self.lrs.append(lr)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any
    ) -> None:
        loss = float(outputs["loss"]) * trainer.accumulate_grad_batches
        if len(self.losses) < len(self.lrs):  # of several batches of a step, the first one
            self.losses.append(loss)
        self.is_finite = math.isfinite(loss)
        # Medians: a batch of few samples may be far easier or harder than others.
        first, recent = median(self.losses[:_NOISY]), median(self.losses[-_NOISY:])
        self._lowest = min(self._lowest, recent)
        above = _DIVERGED * max(first - self._lowest, 0.1 * abs(first))
        diverges = len(self.losses) > _FEWEST and recent > first + above
        if not self.is_finite or diverges or trainer.global_step >= _STEPS:
            if not self.is_finite:
                self.losses.pop()
            del self.lrs[len(self.losses) :]
            raise EnoughMeasured
