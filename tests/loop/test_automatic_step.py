"""A step of automatic optimization against the loop that anybody would write, and what may come between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import LambdaCallback
from tests.loop.small_fit import INPUTS, TARGETS, Line, by_hand, fit, same_weights
from torch import nn
from typing_extensions import override


@pytest.mark.parametrize("accumulate", [1, 3])
def test_weights_are_those_of_a_loop_by_hand(accumulate: int) -> None:
    module = Line()
    trainer = fit(module, accumulate_grad_batches=accumulate)
    assert trainer.global_step == 6 // accumulate
    assert same_weights(module, by_hand(trainer.global_step, accumulate))


class Closing(Line):
    """Hands the closure to an optimizer that calls it several times."""

    calls = 0

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.calls += 1
        return super().training_step(batch, batch_idx)

    @override
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), max_iter=3, tolerance_grad=0, tolerance_change=0)


def test_an_optimizer_that_needs_its_closure_has_it() -> None:
    module, expected = Closing(), Closing()
    fit(module, limit_train_batches=1)
    optimizer = expected.configure_optimizers()

    def closure() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(expected.net(INPUTS[:2]), TARGETS[:2])
        loss.backward()  # type: ignore[no-untyped-call]  # torch left it untyped
        return loss

    optimizer.step(closure)
    assert module.calls == 3
    assert same_weights(module, expected.state_dict())


class Forgetful(Line):
    """Its optimizer_step calls nothing."""

    @override
    def optimizer_step(self, *_: Any, **__: Any) -> None:
        pass


def test_a_closure_that_is_not_called_is_told() -> None:
    with pytest.raises(MisconfigurationException, match="the closure was not called"):
        fit(Forgetful())


class Skipping(Line):
    """Has no loss for every second batch."""

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx % 2 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:training_step returned None:UserWarning")
def test_a_step_without_a_loss_gives_no_outputs() -> None:
    outputs: list[Any] = []
    look = LambdaCallback(on_train_batch_end=lambda *given: outputs.append(sorted(given[2])))
    fit(Skipping(), look)
    assert outputs == [["loss"], []] * 3


def test_a_hook_of_torch_that_comes_late_is_called_before_the_closure_as_lightning_has_it() -> None:
    seen: list[str] = []
    module = Line()

    def begin(trainer: Any, _: Any, __: Any, batch_idx: int) -> None:
        seen.append(f"batch {batch_idx}")
        if batch_idx == 1:
            trainer.optimizers[0].register_step_pre_hook(lambda *_: seen.append("hook"))

    look = LambdaCallback(on_train_batch_start=begin, on_before_backward=lambda *_: seen.append("backward"))
    fit(module, look, limit_train_batches=3)
    assert seen == [
        *("batch 0", "backward"),
        *("batch 1", "hook", "backward"),
        *("batch 2", "hook", "backward"),
    ]
    assert same_weights(module, by_hand(3))


def test_torchs_profiler_sees_the_step_and_its_zero_grad() -> None:
    with torch.profiler.profile() as profile:
        fit(Line(), limit_train_batches=2)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["Optimizer.step#SGD.step"] == counts["Optimizer.zero_grad#SGD.zero_grad"] == 2


class LoggingGradients(Line):
    """Logs from within the backward pass, through a hook of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.net.weight.register_hook(self.log_gradient)  # type: ignore[no-untyped-call]  # torch left it untyped

    def log_gradient(self, gradient: torch.Tensor) -> None:
        self.seen.append(self._current_fx_name)
        self.log("gradient", gradient.norm())


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_hook_of_a_tensor_may_log(accumulate: int) -> None:
    module = LoggingGradients()
    trainer = fit(module, accumulate_grad_batches=accumulate)
    assert module.seen == ["backward"] * 6
    assert trainer.callback_metrics["gradient"] > 0
