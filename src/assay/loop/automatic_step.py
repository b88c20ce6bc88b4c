"""One training step of automatic optimization: forward, zero_grad, backward, and the optimizer's step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from assay.loop.lightning_internals import (
    ClosureResult,
    backward_is_plain,
    clip_gradients,
    forward_is_plain,
    optimizer_of,
    skips_backward,
    step_is_plain,
    without_gradient_sync,
)

if TYPE_CHECKING:
    import lightning as L
    from torch.optim import Optimizer

    from assay.loop.hook_plan import HookPlan


@final
class AutomaticStep:
    """What Lightning's automatic optimization does with a batch; what never changes is asked once.

    Args:
        trainer: In fit.
        hooks: Of the same trainer.
    """

    def __init__(self, trainer: L.Trainer, hooks: HookPlan) -> None:
        self._trainer, self._hooks, self._loop = trainer, hooks, trainer.fit_loop.epoch_loop
        self._plain_forward = forward_is_plain(trainer.strategy, "training_step") and not hooks.profiled
        self._plain_backward = backward_is_plain(trainer.strategy) and not self._overridden("backward")
        self._plain_step = step_is_plain(trainer.strategy) and not self._overridden("optimizer_step")
        self._plain_zero_grad = not self._overridden("optimizer_zero_grad")
        self._own_clipping = self._overridden("configure_gradient_clipping")
        self._micro_batch = trainer.fit_loop.epoch_loop.micro_batch
        if self._micro_batch is not None:
            self._micro_batch.prepare(trainer)

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
        trainer, strategy = self._trainer, self._trainer.strategy
        optimizer = trainer.optimizers[0]
        found: dict[str, Any] | None = None

        def forward() -> tuple[Tensor | None, dict[str, Any]]:
            return self._forward(arguments)

        def zero_grad() -> None:
            if batch_idx % trainer.accumulate_grad_batches == 0 and not skips_backward(self._loop):
                self._zero_grad(optimizer, batch_idx)

        def backward(loss: Tensor | None) -> None:
            if loss is not None and not skips_backward(self._loop):
                self._backward(loss, optimizer)

        def closure() -> Tensor | None:
            nonlocal found
            if self._micro_batch is not None:
                found = self._micro_batch.run(arguments[0], forward, zero_grad, backward)
            else:
                loss, found = forward()
                zero_grad()
                backward(loss)
            return found.get("loss")

        with_gradients = closure if torch.is_grad_enabled() else torch.enable_grad()(closure)
        if accumulates and not strategy.handles_gradient_accumulation:
            with without_gradient_sync(strategy, block=True):
                with_gradients()
        else:
            self._step(optimizer, with_gradients, batch_idx, counts=not accumulates)
        if found is None:
            raise MisconfigurationException(
                "the closure was not called: `optimizer_step` must call it, or hand it to `optimizer.step`"
            )
        return found

    def _forward(self, arguments: tuple[Any, ...]) -> tuple[Tensor | None, dict[str, Any]]:
        """Loss with its graph, and the outputs as hooks see them."""
        trainer = self._trainer
        if self._plain_forward:
            output = self._hooks.module("training_step", *arguments)
        else:
            output = self._hooks.strategy("training_step", *arguments)
            trainer.strategy.post_training_step()
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

    def _zero_grad(self, optimizer: Optimizer, batch_idx: int) -> None:
        hooks, progress = self._hooks, self._loop.automatic_optimization.optim_progress.optimizer.zero_grad
        progress.increment_ready()
        hooks.callbacks("on_before_zero_grad", optimizer)
        hooks.module("on_before_zero_grad", optimizer)
        progress.increment_started()
        if self._plain_zero_grad:
            optimizer.zero_grad()
        else:
            hooks.module("optimizer_zero_grad", self._trainer.current_epoch, batch_idx, optimizer)
        progress.increment_completed()

    def _backward(self, loss: Tensor, optimizer: Optimizer) -> None:
        hooks = self._hooks
        if not self._plain_backward:
            hooks.strategy("backward", loss, optimizer)
            return
        hooks.callbacks("on_before_backward", loss)
        hooks.module("on_before_backward", loss)
        loss.backward()  # type: ignore[no-untyped-call]  # torch left it untyped
        hooks.callbacks("on_after_backward")
        hooks.module("on_after_backward")

    def _step(self, optimizer: Optimizer, closure: Any, batch_idx: int, *, counts: bool) -> None:
        trainer, hooks = self._trainer, self._hooks
        progress = self._loop.automatic_optimization.optim_progress.optimizer.step
        if counts:
            progress.increment_ready()
        if self._plain_step:

            def whole() -> Tensor | None:
                loss: Tensor | None = closure()
                hooks.callbacks("on_before_optimizer_step", optimizer)
                hooks.module("on_before_optimizer_step", optimizer)
                if self._own_clipping or trainer.gradient_clip_val is not None:
                    clip_gradients(trainer, optimizer)
                return loss

            optimizer.step(whole)  # type: ignore[arg-type]  # a skipped step has no loss
        else:
            hooks.module("optimizer_step", trainer.current_epoch, batch_idx, optimizer_of(trainer), closure)
        if counts:
            progress.increment_completed()
