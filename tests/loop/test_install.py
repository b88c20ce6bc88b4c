"""The loops of a trainer are assay's, and bound by what Lightning's were."""

from __future__ import annotations

from typing import Any

from tests.callbacks.quiet_trainer import quiet_trainer

from assay.loop.epoch_loop import EpochLoop
from assay.loop.evaluation_loop import EvaluationLoop
from assay.loop.fit_loop import FitLoop, install


def test_loops_take_over_the_limits_of_lightnings() -> None:
    trainer = quiet_trainer(
        min_epochs=2, max_epochs=7, min_steps=3, max_steps=11, inference_mode=False, limit_val_batches=0.5
    )
    prediction: Any = trainer.predict_loop
    install(trainer)
    fit: Any = trainer.fit_loop
    assert type(fit) is FitLoop
    assert (fit.min_epochs, fit.max_epochs) == (trainer.min_epochs, trainer.max_epochs) == (2, 7)
    assert type(fit.epoch_loop) is EpochLoop
    assert (fit.epoch_loop.min_steps, fit.epoch_loop.max_steps, fit.epoch_loop.micro_batch) == (3, 11, None)
    for loop in (fit.epoch_loop.val_loop, trainer.validate_loop, trainer.test_loop):
        assert type(loop) is EvaluationLoop
        assert loop.inference_mode is False
    assert [fit.epoch_loop.val_loop.verbose, trainer.validate_loop.verbose] == [False, True]
    assert trainer.predict_loop is prediction


def test_steps_are_taken_in_pieces_where_that_is_asked_for() -> None:
    trainer = quiet_trainer()
    install(trainer, 8)
    loop: Any = trainer.fit_loop.epoch_loop
    assert loop.micro_batch is not None
