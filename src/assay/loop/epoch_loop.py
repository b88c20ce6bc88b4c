"""Training over the batches of one epoch."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, final

from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from typing_extensions import override

from assay.loop.automatic_step import AutomaticStep
from assay.loop.evaluation_loop import EvaluationLoop
from assay.loop.hook_plan import HookPlan, there
from assay.loop.lightning_internals import (
    IteratorFetcher,
    LightningEpochLoop,
    LoggedValues,
    accumulates,
    at_last_batch,
    begin_batch,
    connector,
    count_step,
    end_batch,
    fetched,
    first_of_loop,
    flush_loggers_if_stopping,
    next_of,
    profile_fetching,
    set_first_of_loop,
    single_iterator,
    training_is_done,
    validation_is_due,
)
from assay.loop.position import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lightning as L

    from assay.loop.hook_plan import Call
    from assay.loop.micro_batch import MicroBatch


class _Calls(NamedTuple):
    """What is called in each step, besides what the step itself calls; see `HookPlan`."""

    begin: tuple[Call, ...]
    """Of callbacks, module and strategy."""
    end: tuple[Call, ...]
    """Of callbacks that save nothing, and of the module."""
    save: tuple[Call, ...]
    """Of callbacks that save."""


@final
class EpochLoop(LightningEpochLoop):
    """Batches of an epoch, from a phase on.

    Args:
        trainer: Which trains.
        min_steps: Optimizer steps before training may stop early.
        max_steps: Optimizer steps after which it stops; -1 for no limit.

    Attributes:
        phase: What is being done, see `Phase`.
        outputs: Of the last training step.
        micro_batch: Takes steps in pieces; None where each batch is taken whole.
    """

    val_loop: EvaluationLoop

    def __init__(self, trainer: L.Trainer, min_steps: int | None, max_steps: int) -> None:
        super().__init__(trainer, min_steps, max_steps)
        self._results = LoggedValues(training=True)
        self.val_loop = EvaluationLoop.like(self.val_loop)
        self.phase = Phase.EPOCH_START
        self.outputs: dict[str, Any] = {}
        self.micro_batch: MicroBatch | None = None
        self._hooks: HookPlan
        self._step: AutomaticStep
        self._arguments = 1
        self._automatic = False
        self._validates = True
        self._single: Iterator[Any] | None = None
        self._collector: Any = None
        self._bound = -1

    @property
    @override
    def done(self) -> bool:
        """Whether the epoch has no further batch, or training no further step, or shall stop."""
        progress: Any = self.batch_progress
        over = progress.is_last_batch or progress.current.ready == self.trainer.fit_loop.max_batches
        limited = self.max_steps != -1 and self.global_step >= self.max_steps
        return (over or limited or self.trainer.should_stop) and super().done

    @property
    @override
    def global_step(self) -> int:
        """Optimizer steps so far."""
        if self._automatic:
            steps: int = self.automatic_optimization.optim_progress.optimizer_steps
            return steps
        return super().global_step

    def prepare(self, hooks: HookPlan) -> None:
        """Ask what does not change while training.

        Args:
            hooks: Of the trainer.
        """
        self._hooks, self._step = hooks, AutomaticStep(self.trainer, hooks)
        self._strategy, self._collector = self.trainer.strategy, connector(self.trainer)
        self._bind()
        self.val_loop.hooks = hooks
        module = self.trainer.lightning_module
        self._automatic, step = module.automatic_optimization, module.training_step
        self._arguments = 2 if is_param_in_hook_signature(step, "batch_idx", min_args=2) else 1

    def _bind(self) -> None:
        """Ask who is called in each step."""
        hooks, begin, end = self._hooks, "on_train_batch_start", "on_train_batch_end"
        self._bound = hooks.version
        self._calls = _Calls(
            there(hooks.of_callbacks(begin), hooks.of_module(begin), hooks.of_strategy(begin)),
            there(hooks.of_callbacks(end, saving=False), hooks.of_module(end)),
            there(hooks.of_callbacks(end, saving=True)),
        )
        self._step.bind()

    @override
    def run(self, data_fetcher: Any, start: Phase = Phase.EPOCH_START) -> None:
        """Train what is left of the epoch.

        Args:
            data_fetcher: Gives the batches.
            start: Where to go on.
        """
        if start is Phase.EPOCH_START:
            for progress in (
                *(self.batch_progress, self.scheduler_progress),
                self.automatic_optimization.optim_progress,
            ):
                progress.reset_on_run()
            self.val_loop.batch_progress.total.reset()
            if self.trainer.current_epoch > 0:
                iter(data_fetcher)  # the first epoch's was made with the fetcher
        self._validates = self.trainer.enable_validation
        self._bind()
        data_fetcher.fetched += self.batch_progress.current.ready
        self._single = None if self._hooks.profiled else single_iterator(data_fetcher)
        if self._hooks.profiled:
            profile_fetching(data_fetcher, self.trainer, LightningEpochLoop, "train_dataloader_next")
        done = self.batch_progress.current.ready
        if start is Phase.VALIDATION_END:
            self._end_validation()
        if done:  # the next batch is not the first, at which what was logged before is forgotten
            set_first_of_loop(self._collector, start is not Phase.BATCH_END or done == 1)
        if start is Phase.VALIDATION_END:
            self._end_step()
        elif start is Phase.BATCH_END:
            self._end_batch(None, done - 1)
            self.on_advance_end(data_fetcher)
        else:
            self._begin_batch()
        while not self.done:
            try:
                self.advance(data_fetcher)
                self.on_advance_end(data_fetcher)
            except StopIteration:
                break

    def _next(self, fetcher: Any) -> Any:
        if self._single is None:
            batch, _, _ = next(fetcher)
            return batch
        return next_of(self._single, fetcher)

    @override
    def advance(self, data_fetcher: Any) -> None:
        """Train one batch.

        Args:
            data_fetcher: Gives it.

        Raises:
            StopIteration: There is none, or `on_train_batch_start` has returned -1.
        """
        hooks, progress = self._hooks, self.batch_progress
        if hooks.version != self._bound:
            self._bind()
        calls = self._calls
        iterator = next(data_fetcher) if isinstance(data_fetcher, IteratorFetcher) else None
        if iterator is None:
            batch, batch_idx = self._next(data_fetcher), progress.current.ready
            progress.is_last_batch = data_fetcher.done
            batch = hooks.to_device(batch)
        else:
            batch, batch_idx = fetched(data_fetcher)
            progress.is_last_batch = data_fetcher.done
        progress.increment_ready()
        begin_batch(self, self._collector, batch)
        outputs: dict[str, Any] = {}
        skips = False
        if batch is None and iterator is None:
            rank_zero_warn("train_dataloader gave None for a batch: it is skipped")
        else:
            skips = -1 in [call(batch, batch_idx) for call in calls.begin]
            if skips:
                progress.increment_by(0, is_last_batch=True)
            else:
                progress.increment_started()
                self.phase = Phase.STEP
                given = (iterator,) if iterator is not None else (batch, batch_idx)[: self._arguments]
                with hooks.profile("run_training_batch"):
                    outputs = self._optimize(given, batch_idx)
        progress.increment_processed()
        self._step_schedulers(plateau=False)
        if skips:
            raise StopIteration
        if iterator is not None:  # the step has taken it from the iterator
            batch, batch_idx = fetched(data_fetcher)
            progress.is_last_batch = data_fetcher.done
        for call in calls.end:
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
        if not plateau and at_last_batch(self):
            self.update_lr_schedulers("epoch", update_plateau_schedulers=False)

    def _begin_batch(self) -> None:
        """All of the batch before is done, also if the next one cannot be read."""
        self.phase = Phase.BATCH_START
        self.trainer.fit_loop.mark_log()

    def _optimize(self, arguments: tuple[Any, ...], batch_idx: int) -> dict[str, Any]:
        if self._automatic:
            return self._step.run(arguments, batch_idx, accumulates=accumulates(self))
        return self.manual_optimization.run(OrderedDict(enumerate(arguments)))

    def _end_batch(self, batch: Any, batch_idx: int) -> None:
        """All that follows a step, but the validation; it is in a checkpoint that the callbacks now save."""
        self.phase = Phase.BATCH_END
        for save in self._calls.save:
            save(self.outputs, batch, batch_idx)
        logged = end_batch(self, self._collector)
        self.batch_progress.increment_completed()
        if logged:
            self._collector.update_train_step_metrics()

    @override
    def on_advance_end(self, data_fetcher: Any) -> None:
        """Validate if it is time, and let plateau schedulers see the result.

        Args:
            data_fetcher: Of the epoch.
        """
        if self._validates and validation_is_due(self, data_fetcher):
            trainer, collector = self.trainer, self._collector
            trainer.validating = True
            first = first_of_loop(collector)
            if not accumulates(self):
                self._hooks.module("on_validation_model_zero_grad")  # frees memory
            self.val_loop.run()
            trainer.training = True
            set_first_of_loop(collector, first)
        self._end_step()

    def _end_validation(self) -> None:
        self.trainer.validating = True
        self.val_loop.end(self._hooks)
        self.trainer.training = True

    def _end_step(self) -> None:
        self._step_schedulers(plateau=True)
        if not accumulates(self):
            count_step(self)
        flush_loggers_if_stopping(self)
        self._begin_batch()
        if self.trainer.received_sigterm and not training_is_done(self):
            raise SIGTERMException
