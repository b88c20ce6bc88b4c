"""Validation and test: what is computed, in which mode, and who is called."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from tests.callbacks.quiet_trainer import quiet_trainer
from tests.loop.small_fit import INPUTS, TARGETS, Line, batches, fit
from torch import nn
from typing_extensions import override

from assay.build.trainer import quiet
from assay.loop.fit_loop import install


class Judged(Line):
    """Logs its loss, and notes how it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.BatchNorm1d(3).eval()
        self.seen: list[Any] = []

    def _judge(self, batch: Any, *given: int) -> None:
        self.seen.append((self.training, self.frozen.training, torch.is_grad_enabled(), *given))
        self.log("loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]), batch_size=len(batch[0]))

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._judge(batch, batch_idx)

    @override
    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._judge(batch, batch_idx, dataloader_idx)


def expected(module: Line) -> float:
    with torch.no_grad():
        return float(nn.functional.mse_loss(module.net(INPUTS), TARGETS))


def test_scores_are_means_over_samples_and_modes_are_as_before() -> None:
    module = Judged()
    modes: list[Any] = []
    look = LambdaCallback(
        on_train_epoch_end=lambda *_: modes.append((module.training, module.frozen.training))
    )
    trainer = fit(module, look, val=batches(5))
    assert float(trainer.callback_metrics["loss"]) == pytest.approx(expected(module), rel=1e-6)
    assert module.seen == [(False, False, False, index) for index in range(3)]
    assert modes == [(True, False)], "what was frozen stays frozen"
    assert torch.is_grad_enabled()


def test_several_dataloaders_are_read_in_turn() -> None:
    module = Judged()
    with quiet():
        trainer = quiet_trainer()
        install(trainer)
        first, second = trainer.test(module, [batches(12), batches(4)], verbose=False)
    assert [given[3:] for given in module.seen] == [(0, 0), (0, 1), (1, 1), (2, 1)]
    assert first["loss/dataloader_idx_0"] == pytest.approx(expected(module), rel=1e-6)
    assert second["loss/dataloader_idx_1"] == pytest.approx(expected(module), rel=1e-6)


def test_a_callback_that_comes_in_a_validation_is_called_from_the_next_batch_on() -> None:
    seen: list[int] = []
    late = LambdaCallback(on_validation_batch_start=lambda *given: seen.append(given[3]))

    def bring(trainer: Any, *given: Any) -> None:
        if given[3] == 1 and late not in trainer.callbacks:
            trainer.callbacks.append(late)

    module = Judged()
    with quiet():
        trainer = quiet_trainer(LambdaCallback(on_validation_batch_end=bring))
        install(trainer)
        trainer.validate(module, batches(3), verbose=False)
    assert seen == [2, 3]


def test_another_module_is_asked_anew_what_its_step_takes() -> None:
    class Short(Judged):
        @override
        def validation_step(self, batch: Any) -> None:  # type: ignore[override]  # Lightning allows it
            self._judge(batch)

    with quiet():
        trainer = quiet_trainer()
        install(trainer)
        for module, number in ((Judged(), 1), (Short(), 0), (Judged(), 1)):
            trainer.validate(module, batches(12), verbose=False)
            assert [len(given) for given in module.seen] == [3 + number]
