"""The batches of an epoch: when it ends, who is called, and where it says that it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback
from tests.loop.small_fit import Line, batches, by_hand, fit, same_weights
from torch.utils.data import DataLoader
from typing_extensions import override

from assay.loop.carried_state import Phase


class Ending(Line):
    """Has enough at the third batch."""

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 2 else None


@pytest.mark.parametrize(
    ("module", "options", "steps"),
    [
        (Line, {"max_steps": 4, "max_epochs": -1}, 4),
        (Line, {"limit_train_batches": 5}, 5),
        (Line, {"max_epochs": 2}, 12),
        (Line, {"max_steps": 8, "max_epochs": 2}, 8),
        (Ending, {"max_epochs": 2}, 4),
    ],
)
def test_it_ends_where_it_is_to(module: type[Line], options: dict[str, Any], steps: int) -> None:
    made = module()
    assert fit(made, **options).global_step == steps
    if module is Line:
        assert same_weights(made, by_hand(steps))


def test_a_stop_takes_effect_after_the_step_and_not_before_the_least_number_of_them() -> None:
    def stop(trainer: Any, *_: Any) -> None:
        trainer.should_stop = True

    for least, steps in ((None, 1), (4, 4)):
        asks = LambdaCallback(on_train_batch_end=stop)
        trainer = fit(Line(), asks, min_steps=least, min_epochs=0, max_epochs=3)
        assert trainer.global_step == steps


def test_each_hook_is_told_the_phase() -> None:
    phases: list[tuple[str, Phase]] = []

    def note(name: str) -> Any:
        return lambda trainer, *_: phases.append((name, trainer.fit_loop.epoch_loop.phase))

    hooks = ("on_train_epoch_start", "on_train_batch_start", "on_before_backward", "on_train_batch_end")
    watch: Any = {hook: note(hook) for hook in (*hooks, "on_train_epoch_end")}
    fit(Line(), LambdaCallback(**watch), limit_train_batches=1)
    assert phases == [
        ("on_train_epoch_start", Phase.EPOCH_START),
        ("on_train_batch_start", Phase.BATCH_START),
        ("on_before_backward", Phase.STEP),
        ("on_train_batch_end", Phase.STEP),
        ("on_train_epoch_end", Phase.SCORES),
    ]


class Validating(Line):
    """Has a validation, too."""

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", torch.zeros(()))


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_batch_end", "on_before_backward"])
def test_a_callback_that_comes_in_an_epoch_is_called_from_the_next_batch_on(hook: str) -> None:
    seen: list[int] = []
    late = LambdaCallback(
        on_train_batch_start=lambda *given: seen.append(given[3]),
        on_before_zero_grad=lambda *_: seen.append(-1),
    )

    def bring(trainer: Any, *_: Any) -> None:
        if late not in trainer.callbacks and trainer.fit_loop.epoch_loop.batch_idx == 3:
            trainer.callbacks.append(late)

    brings: Callback = LambdaCallback(**{hook: bring})
    fit(Validating(), brings, val=batches(12), val_check_interval=2)
    assert seen == [4, -1, 5, -1]


class Scheduled(Line):
    """The rate falls to a half with each step, or each epoch."""

    interval = "step"

    @override
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-4)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


@pytest.mark.parametrize(
    ("interval", "accumulate", "halvings"), [("step", 1, 6), ("step", 4, 2), ("epoch", 1, 1)]
)
def test_rates_follow_steps_or_epochs(interval: str, accumulate: int, halvings: int) -> None:
    module = Scheduled()
    module.interval = interval
    trainer = fit(module, accumulate_grad_batches=accumulate)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 1e-4 * 0.5**halvings


@pytest.mark.filterwarnings("ignore:train_dataloader gave None:UserWarning")
def test_a_batch_that_is_none_is_skipped() -> None:
    first, *rest = batches()
    module = Line()
    samples: Any = [first, None, *rest]
    trainer = fit(module, train=DataLoader(samples, None, collate_fn=lambda sample: sample))
    assert trainer.global_step == 6
    assert same_weights(module, by_hand(6))
