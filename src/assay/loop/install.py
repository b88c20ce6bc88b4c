"""Puts assay's loops into Lightning's trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from assay.loop.evaluation_loop import EvaluationLoop
from assay.loop.fit_loop import FitLoop
from assay.loop.micro_batch import MicroBatch

if TYPE_CHECKING:
    import lightning as L


def install(trainer: L.Trainer, micro_batch: int | Literal["auto"] | None = None) -> None:
    """Give a trainer loops that do what Lightning's do, and can go on after any step.

    Args:
        trainer: That has not run yet.
        micro_batch: The most samples that are computed at a time, see `MicroBatch`; None: the batch.
    """
    trainer.fit_loop = FitLoop(trainer.fit_loop)
    trainer.fit_loop.epoch_loop.micro_batch = None if micro_batch is None else MicroBatch(micro_batch)
    trainer.validate_loop = EvaluationLoop.like(trainer.validate_loop)
    trainer.test_loop = EvaluationLoop.like(trainer.test_loop)
