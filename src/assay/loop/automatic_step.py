"""One training step of automatic optimization: forward, zero_grad, backward, and the optimizer's step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from assay.loop.hook_plan import HookPlan, there
from assay.loop.lightning_internals import (
    CURRENT_HOOK,
    ClosureResult,
    backward_is_plain,
    clip_gradients,
    forward_is_plain,
    optimizer_of,
    skips_backward,
    step_is_plain,
    without_gradient_sync,
)
from assay.torch_internals import lean_step, lean_zero_grad, run_backward

if TYPE_CHECKING:
    from collections.abc import Callable

    import lightning as L
    from torch.optim import Optimizer


@final
class AutomaticStep:
    """What Lightning's automatic optimization does with a batch; what never changes is asked once.

    Args:
        trainer: In fit.
        hooks: Of the same trainer.
    """

    def __init__(self, trainer: L.Trainer, hooks: HookPlan) -> None:
        self._trainer, self._hooks, self._loop = trainer, hooks, trainer.fit_loop.epoch_loop
        self._strategy, self._fields = trainer.strategy, vars(trainer.lightning_module)
        self._plain_forward = forward_is_plain(trainer.strategy, "training_step") and not hooks.profiled
        self._plain_backward = backward_is_plain(trainer.strategy) and not self._overridden("backward")
        self._plain_step = step_is_plain(trainer.strategy) and not self._overridden("optimizer_step")
        self._plain_zero_grad = not self._overridden("optimizer_zero_grad")
        self._own_clipping = self._overridden("configure_gradient_clipping")
        self._micro_batch = trainer.fit_loop.epoch_loop.micro_batch
        if self._micro_batch is not None:
            self._micro_batch.prepare(trainer)
        self._optimizer: Optimizer | None = None
        self._lean_step: tuple[Callable[[], bool], Callable[[], None]] | None = None
        self._lean_zero_grad: Callable[[], None]
        self.bind()

    def bind(self) -> None:
        """Ask who is called in each step; to be done again where callbacks have come or gone."""
        hooks = self._hooks
        self._calls = {hook: there(hooks.of_callbacks(hook), hooks.of_module(hook)) for hook in _HOOKS}
        of_step = hooks.of_module if self._plain_forward else hooks.of_strategy
        self._training_step: Any = of_step("training_step")
        self._optimizer = None

    def _overridden(self, hook: str) -> bool:
        module = self._trainer.lightning_module
        own = hook in vars(module) or getattr(type(module), hook) is not getattr(LightningModule, hook)
        return own or self._hooks.profiled

    def run(self, arguments: tuple[Any, ...], batch_idx: int, *, accumulates: bool) -> dict[str, Any]:
        """Take the step, or add to the gradients of one.

        Args:
            arguments: Of `training_step`.
            batch_idx: From 0, in the epoch.
            accumulates: The optimizer does not step.

        Returns:
            What `training_step` returned, its loss detached and divided by the number of batches that are
            accumulated; empty where it skipped the step.

        Raises:
            MisconfigurationException: `optimizer_step` did not call the closure.
        """
        optimizer = self._strategy.optimizers[0]
        if optimizer is not self._optimizer:
            self._optimizer, self._lean_zero_grad = optimizer, lean_zero_grad(optimizer)
            self._lean_step = lean_step(optimizer) if self._plain_step else None
        if self._lean_step is not None and not accumulates and torch.is_grad_enabled():
            may_be_used, step = self._lean_step
            if may_be_used():
                progress = self._loop.automatic_optimization.optim_progress.optimizer.step
                progress.increment_ready()
                fields = self._fields
                before, fields[CURRENT_HOOK] = fields[CURRENT_HOOK], "optimizer_step"
                found = self._gradients(arguments, batch_idx)
                self._before_step(optimizer)
                step()
                fields[CURRENT_HOOK] = before
                progress.increment_completed()
                return found
        return self._with_closure(arguments, batch_idx, accumulates=accumulates)

    def _with_closure(
        self, arguments: tuple[Any, ...], batch_idx: int, *, accumulates: bool
    ) -> dict[str, Any]:
        found: dict[str, Any] | None = None

        def closure() -> Tensor | None:
            nonlocal found
            found = self._gradients(arguments, batch_idx)
            return found.get("loss")

        with_gradients = closure if torch.is_grad_enabled() else torch.enable_grad()(closure)
        if accumulates and not self._strategy.handles_gradient_accumulation:
            with without_gradient_sync(self._strategy, block=True):
                with_gradients()
        else:
            self._step(with_gradients, batch_idx, counts=not accumulates)
        if found is None:
            raise MisconfigurationException(
                "the closure was not called: `optimizer_step` must call it, or hand it to `optimizer.step`"
            )
        return found

    def _gradients(self, arguments: tuple[Any, ...], batch_idx: int) -> dict[str, Any]:
        """Forward, zero_grad and backward; returns the outputs as hooks see them."""
        zeroes = batch_idx % self._trainer.accumulate_grad_batches == 0
        found: dict[str, Any]
        if self._micro_batch is not None:
            found = self._micro_batch.run(
                arguments[0],
                lambda: self._forward(arguments),
                lambda: self._zero_grad(batch_idx) if zeroes else None,
                self._backward,
            )
            return found
        loss, found = self._forward(arguments)
        if zeroes:
            self._zero_grad(batch_idx)
        self._backward(loss)
        return found

    def _forward(self, arguments: tuple[Any, ...]) -> tuple[Tensor | None, dict[str, Any]]:
        """Loss with its graph, and the outputs as hooks see them."""
        trainer = self._trainer
        output = self._training_step(*arguments)
        if not self._plain_forward:
            self._strategy.post_training_step()
        batches = trainer.accumulate_grad_batches
        if isinstance(output, Tensor) and batches == 1:
            return output, {"loss": output.detach()}
        if output is None:
            if trainer.world_size > 1:
                raise RuntimeError(
                    "training_step returned None, which skips the step: not with several processes, for "
                    "the others would wait"
                )
            rank_zero_warn("training_step returned None: the step is skipped")
            return None, {}
        result = ClosureResult.from_training_step_output(output, batches)
        return result.closure_loss, result.asdict()

    def _zero_grad(self, batch_idx: int) -> None:
        if skips_backward(self._loop):
            return
        progress = self._loop.automatic_optimization.optim_progress.optimizer.zero_grad
        progress.increment_ready()
        for call in self._calls["on_before_zero_grad"]:
            call(self._optimizer)
        progress.increment_started()
        if self._plain_zero_grad:
            self._lean_zero_grad()
        else:
            epoch = self._trainer.current_epoch
            self._hooks.module("optimizer_zero_grad", epoch, batch_idx, self._optimizer)
        progress.increment_completed()

    def _backward(self, loss: Tensor | None) -> None:
        if loss is None or skips_backward(self._loop):
            return
        if not self._plain_backward:
            self._hooks.strategy("backward", loss, self._optimizer)
            return
        for call in self._calls["on_before_backward"]:
            call(loss)
        fields = self._fields
        before, fields[CURRENT_HOOK] = fields[CURRENT_HOOK], "backward"  # a hook of a tensor may log
        run_backward(loss)
        fields[CURRENT_HOOK] = before
        for call in self._calls["on_after_backward"]:
            call()

    def _before_step(self, optimizer: Optimizer) -> None:
        for call in self._calls["on_before_optimizer_step"]:
            call(optimizer)
        if self._own_clipping or self._trainer.gradient_clip_val is not None:
            clip_gradients(self._trainer, optimizer)

    def _step(self, closure: Any, batch_idx: int, *, counts: bool) -> None:
        trainer, optimizer = self._trainer, self._strategy.optimizers[0]
        progress = self._loop.automatic_optimization.optim_progress.optimizer.step
        if counts:
            progress.increment_ready()
        if self._plain_step:

            def whole() -> Tensor | None:
                loss: Tensor | None = closure()
                self._before_step(optimizer)
                return loss

            fields = self._fields
            before, fields[CURRENT_HOOK] = fields[CURRENT_HOOK], "optimizer_step"
            optimizer.step(whole)  # type: ignore[arg-type]  # a skipped step has no loss
            fields[CURRENT_HOOK] = before
        else:
            epoch = trainer.current_epoch
            self._hooks.module("optimizer_step", epoch, batch_idx, optimizer_of(trainer), closure)
        if counts:
            progress.increment_completed()


_HOOKS: Final = "on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step"
"""What is called in a step, of the callbacks and then of the module."""
