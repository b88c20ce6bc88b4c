"""The parity suite sees what it is there to see: loops with a fault in them are told from Lightning's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer import call
from tests.loop.parity import Outcome, differences, install_stock, run
from tests.loop.parity_axes import make_case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import lightning as L


class EarlyPlateau(_TrainingEpochLoop):
    """Plateau schedulers step before validation."""

    def on_advance_end(self, data_fetcher: Any) -> None:
        self.update_lr_schedulers("step", update_plateau_schedulers=True)
        kept, self.update_lr_schedulers = self.update_lr_schedulers, lambda *_, **__: None  # type: ignore[method-assign]
        super().on_advance_end(data_fetcher)
        self.update_lr_schedulers = kept  # type: ignore[method-assign]


class NoLastStep(_TrainingEpochLoop):
    """The last batches of an epoch wait for more."""

    def _should_accumulate(self) -> bool:
        return not self._accumulated_batches_reached()


class WrongStep(_TrainingEpochLoop):
    """Within one hook the global step is one behind."""

    behind = False

    @property
    def global_step(self) -> int:
        return super().global_step - self.behind

    def advance(self, data_fetcher: Any) -> None:
        kept = self.trainer.lightning_module.on_train_batch_end

        def behind(*args: Any) -> Any:
            self.behind = True
            try:
                return kept(*args)
            finally:
                self.behind = False

        self.trainer.lightning_module.on_train_batch_end = behind
        super().advance(data_fetcher)
        del self.trainer.lightning_module.on_train_batch_end


class SkippedHook(_FitLoop):
    """Nobody hears of the end of an epoch but callbacks."""

    def on_advance_end(self) -> None:
        kept = call._call_lightning_module_hook
        call._call_lightning_module_hook = lambda trainer, hook, *args, **kwargs: (
            None if hook == "on_train_epoch_end" else kept(trainer, hook, *args, **kwargs)
        )
        try:
            super().on_advance_end()
        finally:
            call._call_lightning_module_hook = kept


class OtherOrder(_EvaluationLoop):
    """The module hears of the start before callbacks."""

    def _on_evaluation_start(self, *_: Any, **__: Any) -> None:
        call._call_lightning_module_hook(self.trainer, "on_validation_start")
        call._call_callback_hooks(self.trainer, "on_validation_start")
        call._call_strategy_hook(self.trainer, "on_validation_start")


class StaysInEval(_EvaluationLoop):
    """The module is not put back into training mode after validation."""

    def _on_evaluation_model_train(self) -> None:
        """Nothing."""


class LateRow(_FitLoop):
    """The row of an epoch is logged a step too late."""

    def on_advance_end(self) -> None:
        self.epoch_loop._batches_that_stepped += 1
        super().on_advance_end()
        self.epoch_loop._batches_that_stepped -= 1


class ExtraDraw(_TrainingEpochLoop):
    """A random number is drawn that nobody needs."""

    def on_run_start(self, data_fetcher: Any) -> None:
        torch.rand(1)
        super().on_run_start(data_fetcher)


def faulty(cls: type[Any]) -> Callable[[L.Trainer], None]:
    """Puts this class in the place of the loop that it is derived from."""

    def install(trainer: L.Trainer) -> None:
        install_stock(trainer)
        fit = trainer.fit_loop
        for loop in (fit, fit.epoch_loop, fit.epoch_loop.val_loop):
            if issubclass(cls, type(loop)):
                loop.__class__ = cls

    return install


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("controls") / "run"


@functools.cache
def stock(row: tuple[tuple[str, str], ...], folder: Path) -> Outcome:
    return run(make_case(dict(row)), install_stock, folder)


def told_apart(row: dict[str, str], loop: type[Any], folder: Path) -> list[str]:
    return differences(stock(tuple(row.items()), folder), run(make_case(row), faulty(loop), folder))


@pytest.mark.always("WrongStep--", "SkippedHook--", "ExtraDraw--")
@pytest.mark.parametrize(
    ("loop", "row", "telling"),
    [
        (EarlyPlateau, {"scheduler": "plateau step"}, "order"),
        (NoLastStep, {"accumulation": "3"}, "order"),
        (WrongStep, {}, "sees .global_step"),
        (SkippedHook, {}, "order"),
        (OtherOrder, {}, "order"),
        (StaysInEval, {}, "order"),
        (LateRow, {}, "logger.log_metrics is given "),
        (ExtraDraw, {}, "sees .random"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_fault_is_found(loop: type[Any], row: dict[str, str], telling: str, folder: Path) -> None:
    found = told_apart(row, loop, folder)
    assert any(line.startswith(telling) for line in found), found


@pytest.mark.parametrize("loop", [NoLastStep, StaysInEval, LateRow, ExtraDraw])
def test_a_fault_that_nobody_watches_is_found_in_the_end(loop: type[Any], folder: Path) -> None:
    assert told_apart({"observer": "none", "accumulation": "3"}, loop, folder)


def test_lightning_is_equal_to_itself(folder: Path) -> None:
    """What is compared does not depend on time, addresses, or on what ran before."""
    row = {"observer": "all", "logs": "everywhere", "length": "max_steps", "calls": "fit, all"}
    first, second = (run(make_case(row), install_stock, folder) for _ in range(2))
    assert first.end["error"] is None
    assert not differences(first, second)
