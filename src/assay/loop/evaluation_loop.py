from __future__ import annotations

from collections import ChainMap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, final

from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from typing_extensions import override

from assay.loop import lightning_internals as internals
from assay.loop.carried_state import Phase
from assay.loop.hook_plan import HookPlan, active_calls, picklable_state
from assay.loop.lightning_internals import LightningEvaluationLoop, LoggedValues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.loop.hook_plan import Call


@final
class EvaluationLoop(LightningEvaluationLoop):
    """All batches of one or several dataloaders, once."""

    hooks: HookPlan | None = None
    seen_before: Mapping[int, int] = MappingProxyType({})
    _asked: tuple[Any, str, bool] | None = None
    """Of which module, in which stage, signatures were looked at."""

    @classmethod
    def like(cls, loop: LightningEvaluationLoop) -> Self:
        """One that does what Lightning's does."""
        evaluation_loop = cls(*internals.loop_arguments(loop))
        evaluation_loop._results = LoggedValues(training=False)
        return evaluation_loop

    __getstate__ = picklable_state

    @override
    def setup_data(self) -> None:
        super().setup_data()
        if self.seen_before:
            self._seen_batches_per_dataloader.update(self.seen_before)
            self.seen_before = {}

    @override
    @internals.without_gradients
    def run(self) -> list[Any]:
        self.setup_data()
        if self.skip:
            return []
        self.reset()
        fitting = self.trainer.state.fn == TrainerFn.FITTING
        hooks = (self.hooks if fitting else None) or HookPlan(self.trainer)
        self._start(hooks)
        fetcher: Any = self._data_fetcher
        before = 0
        if hooks.profiled:
            action = "val_next"
            if self.trainer.testing:
                action = "test_next"
            internals.profile_fetching(fetcher, self.trainer, LightningEvaluationLoop, action)
        if hooks.profiled:
            single = None
        else:
            single = internals.single_iterator(fetcher)
        while True:
            try:
                if single is not None:
                    batch_idx = fetcher.fetched
                    number = 0
                    batch = internals.next_batch(single, fetcher)
                else:
                    batch, batch_idx, number = next(fetcher)
                if number != before:
                    self._store_dataloader_outputs()
                before = number
                self.batch_progress.is_last_batch = fetcher.done
                self._evaluate(hooks, batch, batch_idx, number if self._several else None)
            except StopIteration:
                break
        self._store_dataloader_outputs()
        return self._finish(hooks, fitting=fitting)

    def _name(self) -> str:
        if self.trainer.testing:
            return "test"
        return "validation"

    def _start(self, hooks: HookPlan) -> None:
        name = self._name()
        self._several = several = self._is_sequential and self.num_dataloaders > 1
        if self.trainer.state.fn == TrainerFn.FITTING:
            self.trainer.fit_loop.epoch_loop.phase = Phase.VALIDATION
        module = self.trainer.lightning_module
        if self._asked != (module, name, several):
            internals.refuse_unsupported(self._data_fetcher, training=False)
            numbered = f"{name}_step", f"on_{name}_batch_start", f"on_{name}_batch_end"
            internals.check_dataloader_idx(self, numbered, several=several)
            step = getattr(module, f"{name}_step")
            self._takes_index = is_param_in_hook_signature(step, "batch_idx", min_args=2)
            self._asked = module, name, several
        self._counts = not self.trainer.sanity_checking
        self._module_mode.capture(self.trainer.lightning_module)
        hooks.module(f"on_{name}_model_eval")()
        for hook in (f"on_{name}_start", f"on_{name}_epoch_start"):
            hooks.callbacks(hook)()
            hooks.module(hook)()
            if hook == f"on_{name}_start":
                hooks.strategy(hook)()
        self._bind(hooks)

    def _bind(self, hooks: HookPlan) -> None:
        name = self._name()
        self._bound = hooks.version
        begin = f"on_{name}_batch_start"
        end = f"on_{name}_batch_end"
        step = f"{name}_step"
        plain = not hooks.profiled and internals.forward_is_plain(self.trainer.strategy, step)
        hook: Any
        if plain:
            hook = hooks.module(step)
        else:
            hook = hooks.strategy(step)
        self._step: Call = hook
        self._begin = active_calls(hooks.callbacks(begin), hooks.module(begin))
        self._end = active_calls(hooks.callbacks(end), hooks.module(end))

    def _evaluate(self, hooks: HookPlan, batch: Any, batch_idx: int, number: int | None) -> None:
        progress = self.batch_progress
        collector = internals.connector(self.trainer)
        if hooks.version != self._bound:
            self._bind(hooks)
        batch = hooks.to_device(batch, number or 0)
        hook_arguments = (batch, batch_idx) if number is None else (batch, batch_idx, number)
        progress.increment_ready()
        internals.begin_batch(self, collector, batch, number)
        for call in self._begin:
            call(*hook_arguments)
        progress.increment_started()
        outputs = self._step(
            *(hook_arguments if self._takes_index else (batch, *hook_arguments[2:]))
        )
        progress.increment_processed()
        for call in self._end:
            call(outputs, *hook_arguments)
        logged = internals.end_batch(self, collector)
        progress.increment_completed()
        if self._counts:
            seen = self._seen_batches_per_dataloader[number or 0]
            self._seen_batches_per_dataloader[number or 0] += 1
            self._has_run = True
            if logged:
                collector.update_eval_step_metrics(seen)

    def _finish(self, hooks: HookPlan, *, fitting: bool) -> list[Any]:
        name = self._name()
        collector = internals.connector(self.trainer)
        collector.epoch_end_reached()
        internals.end_of_dataloaders(collector)
        hooks.callbacks(f"on_{name}_epoch_end")()
        hooks.module(f"on_{name}_epoch_end")()
        collector.on_epoch_end()
        outputs = self._logged_outputs
        self._logged_outputs = []
        of_epoch = collector.update_eval_epoch_metrics()
        collector.log_eval_end_metrics({**ChainMap(*outputs), **of_epoch})
        for output in outputs:
            output.update(of_epoch)
        hooks.callbacks(f"on_{name}_end", saving=False if fitting else None)()
        hooks.module(f"on_{name}_end")()
        hooks.strategy(f"on_{name}_end")()
        self.end(hooks, fitting=fitting)
        return outputs

    def end(self, hooks: HookPlan, *, fitting: bool = True) -> None:
        """All that follows when the scores are logged; it is left to a run that goes on from here."""
        trainer = self.trainer
        name = self._name()
        if fitting:
            trainer.fit_loop.epoch_loop.phase = Phase.VALIDATION_END
            hooks.callbacks(f"on_{name}_end", saving=True)()
        internals.connector(trainer).reset_results()
        if is_overridden(f"on_{name}_model_train", trainer.lightning_module):
            hooks.module(f"on_{name}_model_train")()
        else:
            self._module_mode.restore(trainer.lightning_module)
        internals.note_time(trainer)
