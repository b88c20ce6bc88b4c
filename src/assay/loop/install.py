"""Puts assay's loops into Lightning's trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.loop.evaluation_loop import EvaluationLoop
from assay.loop.fit_loop import FitLoop

if TYPE_CHECKING:
    import lightning as L


def install(trainer: L.Trainer) -> None:
    """Give a trainer loops that do what Lightning's do, and can go on after any step.

    Args:
        trainer: That has not run yet.
    """
    trainer.fit_loop = FitLoop(trainer.fit_loop)
    trainer.validate_loop = EvaluationLoop.like(trainer.validate_loop)
    trainer.test_loop = EvaluationLoop.like(trainer.test_loop)
