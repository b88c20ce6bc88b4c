"""Training over the batches of one epoch, and one step of automatic optimization."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from typing_extensions import override

from assay.loop import lightning_internals as internals
from assay.loop.carried_state import Phase
from assay.loop.evaluation_loop import EvaluationLoop
from assay.loop.hook_plan import HookPlan, active_calls, picklable_state
from assay.loop.lightning_internals import (
    CURRENT_HOOK,
    ClosureResult,
    LightningEpochLoop,
    LoggedValues,
)
from assay.torch_internals import lean_step, lean_zero_grad, run_backward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import lightning as L
    from torch.optim import Optimizer

    from assay.loop.micro_batch import MicroBatch


@final
class AutomaticStep:
    """What Lightning's automatic optimization does with a batch; what never changes is asked once."""

    def __init__(self, trainer: L.Trainer, hooks: HookPlan) -> None:
        self._trainer = trainer
        self._hooks = hooks
        self._loop = trainer.fit_loop.epoch_loop
        self._strategy = trainer.strategy
        self._fields = vars(trainer.lightning_module)
        self._plain_forward = (
            internals.forward_is_plain(trainer.strategy, "training_step") and not hooks.profiled
        )
        self._plain_backward = internals.backward_is_plain(
            trainer.strategy
        ) and not self._overridden("backward")
        self._plain_step = internals.step_is_plain(trainer.strategy) and not self._overridden(
            "optimizer_step"
        )
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
        self._calls = {
            hook: active_calls(hooks.callbacks(hook), hooks.module(hook)) for hook in _HOOKS
        }
        if self._plain_forward:
            of_step = hooks.module
        else:
            of_step = hooks.strategy
        self._training_step: Any = of_step("training_step")
        self._optimizer = None

    def _overridden(self, hook: str) -> bool:
        module = self._trainer.lightning_module
        overridden = hook in vars(module) or getattr(type(module), hook) is not getattr(
            LightningModule, hook
        )
        return overridden or self._hooks.profiled

    def run(
        self, arguments: tuple[Any, ...], batch_idx: int, *, accumulates: bool
    ) -> dict[str, Any]:
        """Take the step, or add to the gradients of one."""
        optimizer = self._strategy.optimizers[0]
        if optimizer is not self._optimizer:
            self._optimizer = optimizer
            self._lean_zero_grad = lean_zero_grad(optimizer)
            if self._plain_step:
                self._lean_step = lean_step(optimizer)
            else:
                self._lean_step = None
        if self._lean_step is not None and not accumulates and torch.is_grad_enabled():
            may_be_used, step = self._lean_step
            if may_be_used():
                progress = self._loop.automatic_optimization.optim_progress.optimizer.step
                progress.increment_ready()
                fields = self._fields
                before = fields[CURRENT_HOOK]
                fields[CURRENT_HOOK] = "optimizer_step"
                outputs = self._gradients(arguments, batch_idx)
                self._before_step(optimizer)
                step()
                fields[CURRENT_HOOK] = before
                progress.increment_completed()
                return outputs
        return self._with_closure(arguments, batch_idx, accumulates=accumulates)

    def _with_closure(
        self, arguments: tuple[Any, ...], batch_idx: int, *, accumulates: bool
    ) -> dict[str, Any]:
        outputs: dict[str, Any] | None = None

        def closure() -> Tensor | None:
            nonlocal outputs
            with torch.enable_grad():  # an optimizer may call it with gradients switched off
                outputs = self._gradients(arguments, batch_idx)
            return outputs.get("loss")

        if accumulates and not self._strategy.handles_gradient_accumulation:
            with internals.without_gradient_sync(self._strategy, block=True):
                closure()
        else:
            self._step(closure, batch_idx, counts=not accumulates)
        if outputs is None:
            raise MisconfigurationException(
                "The closure hasn't been executed: `optimizer_step` must call it or give it to the optimizer"
            )
        return outputs

    def _gradients(self, arguments: tuple[Any, ...], batch_idx: int) -> dict[str, Any]:
        """Forward, zero_grad and backward; returns the outputs as hooks see them."""
        zeroes = batch_idx % self._trainer.accumulate_grad_batches == 0
        outputs: dict[str, Any]
        if not zeroes:
            self._settle_short_step(batch_idx)
        if self._micro_batch is not None:
            outputs = self._micro_batch.run(
                arguments[0],
                lambda: self._forward(arguments, batch_idx),
                lambda: self._zero_grad(batch_idx) if zeroes else None,
                self._backward,
            )
            return outputs
        loss, outputs = self._forward(arguments, batch_idx)
        if zeroes:
            self._zero_grad(batch_idx)
        self._backward(loss)
        return outputs

    def _forward(
        self, arguments: tuple[Any, ...], batch_idx: int
    ) -> tuple[Tensor | None, dict[str, Any]]:
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
                    "Skipping the `training_step` by returning None is not supported with several processes: "
                    "the others would wait"
                )
            rank_zero_warn("`training_step` returned `None`: the step is skipped")
            return None, {}
        result = ClosureResult.from_training_step_output(output, self._batches_of_step(batch_idx))
        return result.closure_loss, result.asdict()

    def _batches_of_step(self, batch_idx: int) -> int:
        """How many batches the optimizer step is the mean of: at the end of an epoch they may be fewer."""
        trainer = self._trainer
        accumulated = self._trainer.accumulate_grad_batches
        if accumulated == 1 or self._strategy.handles_gradient_accumulation:
            return accumulated
        in_step = batch_idx % accumulated
        if self._loop.batch_progress.is_last_batch:
            return in_step + 1
        return int(min(accumulated, trainer.num_training_batches - batch_idx + in_step))

    def _settle_short_step(self, batch_idx: int) -> None:
        """Divide the gradients so far by their number, where the last batch came before it was expected."""
        accumulated = self._trainer.accumulate_grad_batches
        count = self._batches_of_step(batch_idx)
        if 1 < count < accumulated and self._trainer.num_training_batches == float("inf"):
            for parameter in self._trainer.lightning_module.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(accumulated / count)

    def _zero_grad(self, batch_idx: int) -> None:
        if internals.skips_backward(self._loop):
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
            self._hooks.module("optimizer_zero_grad")(epoch, batch_idx, self._optimizer)
        progress.increment_completed()

    def _backward(self, loss: Tensor | None) -> None:
        if loss is None or internals.skips_backward(self._loop):
            return
        if not self._plain_backward:
            self._hooks.strategy("backward")(loss, self._optimizer)
            return
        for call in self._calls["on_before_backward"]:
            call(loss)
        fields = self._fields
        # a hook of a tensor may log
        before = fields[CURRENT_HOOK]
        fields[CURRENT_HOOK] = "backward"
        run_backward(loss)
        fields[CURRENT_HOOK] = before
        for call in self._calls["on_after_backward"]:
            call()

    def _before_step(self, optimizer: Optimizer) -> None:
        for call in self._calls["on_before_optimizer_step"]:
            call(optimizer)
        if self._own_clipping or self._trainer.gradient_clip_val is not None:
            internals.clip_gradients(self._trainer, optimizer)

    def _step(self, closure: Any, batch_idx: int, *, counts: bool) -> None:
        trainer = self._trainer
        optimizer = self._strategy.optimizers[0]
        progress = self._loop.automatic_optimization.optim_progress.optimizer.step
        if counts:
            progress.increment_ready()
        if self._plain_step:

            def whole() -> Tensor | None:
                loss: Tensor | None = closure()
                self._before_step(optimizer)
                return loss

            fields = self._fields
            before = fields[CURRENT_HOOK]
            fields[CURRENT_HOOK] = "optimizer_step"
            optimizer.step(whole)  # type: ignore[arg-type]  # a skipped step has no loss
            fields[CURRENT_HOOK] = before
        else:
            epoch = trainer.current_epoch
            self._hooks.module("optimizer_step")(
                epoch, batch_idx, internals.optimizer_of(trainer), closure
            )
        if counts:
            progress.increment_completed()


_HOOKS = (
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)
"""What is called in a step, of the callbacks and then of the module."""


@final
class EpochLoop(LightningEpochLoop):
    """Batches of an epoch, from a phase on."""

    val_loop: EvaluationLoop

    def __init__(self, trainer: L.Trainer, min_steps: int | None, max_steps: int) -> None:
        super().__init__(trainer, min_steps, max_steps)
        self._results = LoggedValues(training=True)
        self.val_loop = EvaluationLoop.like(self.val_loop)
        self.phase = Phase.EPOCH_START
        self.outputs: dict[str, Any] | None = {}
        self.micro_batch: MicroBatch | None = None
        self._hooks: HookPlan
        self._step: AutomaticStep
        self._arguments = 1
        self._automatic = False
        self._validates = True
        self._single: Iterator[Any] | None = None
        self.is_open = False
        """Whether the data of a run that goes on was opened after its state was loaded."""
        self.is_cut = False
        """Whether training stopped with batches of the epoch left."""
        self._collector: Any = None
        self._bound = -1

    @property
    @override
    def done(self) -> bool:
        progress: Any = self.batch_progress
        over = (
            progress.is_last_batch or progress.current.ready == self.trainer.fit_loop.max_batches
        )
        limited = self.max_steps != -1 and self.global_step >= self.max_steps
        return (over or limited or self.trainer.should_stop) and super().done

    @property
    @override
    def global_step(self) -> int:
        if self._automatic:
            steps: int = self.automatic_optimization.optim_progress.optimizer_steps
            return steps
        return super().global_step

    def prepare(self, hooks: HookPlan) -> None:
        """Ask what does not change while training."""
        self._hooks, self._step = hooks, AutomaticStep(self.trainer, hooks)
        self._strategy, self._collector = self.trainer.strategy, internals.connector(self.trainer)
        self._bind()
        self.val_loop.hooks = hooks
        module = self.trainer.lightning_module
        self._automatic = module.automatic_optimization
        step = module.training_step
        if is_param_in_hook_signature(step, "batch_idx", min_args=2):
            self._arguments = 2
        else:
            self._arguments = 1

    def _bind(self) -> None:
        hooks = self._hooks
        begin = "on_train_batch_start"
        end = "on_train_batch_end"
        self._bound = hooks.version
        self._begin = active_calls(
            hooks.callbacks(begin), hooks.module(begin), hooks.strategy(begin)
        )
        self._end = active_calls(hooks.callbacks(end, saving=False), hooks.module(end))
        self._save = active_calls(hooks.callbacks(end, saving=True))
        self._step.bind()

    @override
    def run(self, data_fetcher: Any, start: Phase = Phase.EPOCH_START) -> None:
        if start is Phase.EPOCH_START:
            for progress in (
                *(self.batch_progress, self.scheduler_progress),
                self.automatic_optimization.optim_progress,
            ):
                progress.reset_on_run()
            self.val_loop.batch_progress.total.reset()
            if self.trainer.current_epoch > 0 and not self.is_open:
                iter(data_fetcher)  # the first epoch's was made with the fetcher
        self.is_open = False
        self._validates = self.trainer.enable_validation
        self._bind()
        data_fetcher.fetched += self.batch_progress.current.ready
        self._single = None if self._hooks.profiled else internals.single_iterator(data_fetcher)
        if self._hooks.profiled:
            internals.profile_fetching(
                data_fetcher, self.trainer, LightningEpochLoop, "train_dataloader_next"
            )
        done = self.batch_progress.current.ready
        if start is Phase.VALIDATION_END:
            self._end_validation()
        if done:  # the next batch is not the first, at which what was logged before is forgotten
            internals.set_first_of_loop(
                self._collector, start is not Phase.BATCH_END or done == 1
            )
        if start is Phase.VALIDATION_END:
            self._end_step()
        elif start is Phase.BATCH_END:
            self._end_batch(None, done - 1)
            self.on_advance_end(data_fetcher)
        else:
            self._begin_batch()
        self.is_cut = False
        while not self.done:
            try:
                self.advance(data_fetcher)
                self.on_advance_end(data_fetcher)
            except StopIteration:
                return
        self.is_cut = not internals.at_last_batch(self)

    @override
    def teardown(self) -> None:
        self._single = None  # it holds the workers
        super().teardown()

    __getstate__ = picklable_state

    def _next(self, fetcher: Any) -> Any:
        if self._single is None:
            batch, _, _ = next(fetcher)
            return batch
        return internals.next_batch(self._single, fetcher)

    @override
    def advance(self, data_fetcher: Any) -> None:
        hooks = self._hooks
        progress = self.batch_progress
        if hooks.version != self._bound:
            self._bind()
        batch = self._next(data_fetcher)
        batch_idx = progress.current.ready
        progress.is_last_batch = data_fetcher.done
        batch = hooks.to_device(batch)
        progress.increment_ready()
        internals.begin_batch(self, self._collector, batch)
        outputs: dict[str, Any] | None = {}
        skips = False
        if batch is None:
            outputs = None
            rank_zero_warn("train_dataloader yielded None for a batch: it is skipped")
        else:
            skips = -1 in [call(batch, batch_idx) for call in self._begin]
            if skips:
                progress.increment_by(0, is_last_batch=True)
            else:
                progress.increment_started()
                self.phase = Phase.STEP
                with hooks.profile("run_training_batch"):
                    outputs = self._optimize((batch, batch_idx)[: self._arguments], batch_idx)
        progress.increment_processed()
        self._step_schedulers(plateau=False)
        if skips:
            raise StopIteration
        for call in self._end:
            call(outputs, batch, batch_idx)
        self.outputs = outputs
        self._end_batch(batch, batch_idx)

    def _step_schedulers(self, *, plateau: bool) -> None:
        """Those that step with the optimizer; before the validation also those of the epoch, at its end."""
        configs = self._strategy.lr_scheduler_configs
        if not configs:
            return
        for config in configs:
            if config.reduce_on_plateau is plateau and config.interval == "step":
                self.update_lr_schedulers("step", update_plateau_schedulers=plateau)
                break
        if not plateau and internals.at_last_batch(self):
            self.update_lr_schedulers("epoch", update_plateau_schedulers=False)

    def _begin_batch(self) -> None:
        """All of the batch before is done, also if the next one cannot be read."""
        self.phase = Phase.BATCH_START
        self.trainer.fit_loop.mark_log()

    def _optimize(self, arguments: tuple[Any, ...], batch_idx: int) -> dict[str, Any]:
        if self._automatic:
            return self._step.run(arguments, batch_idx, accumulates=internals.accumulates(self))
        return self.manual_optimization.run(OrderedDict(enumerate(arguments)))

    def _end_batch(self, batch: Any, batch_idx: int) -> None:
        """All that follows a step, but the validation; it is in a checkpoint that the callbacks now save."""
        self.phase = Phase.BATCH_END
        for save in self._save:
            save(self.outputs, batch, batch_idx)
        logged = internals.end_batch(self, self._collector)
        self.batch_progress.increment_completed()
        if logged:
            self._collector.update_train_step_metrics()

    @override
    def on_advance_end(self, data_fetcher: Any) -> None:
        if self._validates and internals.validation_is_due(self, data_fetcher):
            trainer = self.trainer
            collector = self._collector
            trainer.validating = True
            first = internals.first_of_loop(collector)
            if not internals.accumulates(self):
                self._hooks.module("on_validation_model_zero_grad")()  # frees memory
            self.val_loop.run()
            trainer.training = True
            internals.set_first_of_loop(collector, first)
        self._end_step()

    def _end_validation(self) -> None:
        self.trainer.validating = True
        self.val_loop.end(self._hooks)
        self.trainer.training = True

    def _end_step(self) -> None:
        self._step_schedulers(plateau=True)
        if not internals.accumulates(self):
            self._batches_that_stepped += 1
        self._save_loggers_on_train_batch_end()
        self._begin_batch()
