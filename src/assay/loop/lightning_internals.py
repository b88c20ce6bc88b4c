"""The private names of Lightning that a run needs; `tests/contract/test_private_names.py` watches them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, WeightAveraging
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop as LightningEvaluationLoop
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher
from lightning.pytorch.loops.fetchers import _PrefetchDataFetcher as PlainFetcher
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.optimization.automatic import ClosureResult
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop as LightningEpochLoop
from lightning.pytorch.loops.utilities import (
    _block_parallel_sync_behavior as without_gradient_sync,
)
from lightning.pytorch.loops.utilities import _no_grad_context as without_gradients
from lightning.pytorch.loops.utilities import _verify_dataloader_idx_requirement
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.strategies import DDPStrategy, Strategy
from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
)
from typing_extensions import override

from assay.callbacks.lr_monitor import LRMonitor
from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import lightning as L


__all__ = [
    "CURRENT_HOOK",
    "ClosureResult",
    "LightningEpochLoop",
    "LightningEvaluationLoop",
    "LightningFitLoop",
    "without_gradient_sync",
    "without_gradients",
]

CURRENT_HOOK = "_current_fx_name"
"""Attribute of a module that says to `self.log` which hook is running."""

# -- the logger connector: what `self.log` gave, and who is shown it when


def connector(trainer: L.Trainer) -> Any:
    """What collects the metrics of a trainer."""
    return trainer._logger_connector


@final
class _Placed(_ResultMetric):
    """A logged value, which Lightning moves to where it is each time that it is logged."""

    @override
    def to(self, *args: Any, **kwargs: Any) -> _ResultMetric:  # type: ignore[override]  # as Lightning's
        current_device: torch.device | None = None
        if self.is_tensor:
            current_device = self.value.device
        if args == (current_device,) and not kwargs:
            return self
        return super().to(*args, **kwargs)


@final
class LoggedValues(_ResultCollection):
    """What `self.log` gave a loop, half a millisecond sooner than Lightning's."""

    @override
    def __setitem__(self, key: str, result: _ResultMetric) -> None:
        if type(result) is _ResultMetric:
            result.__class__ = _Placed
        super().__setitem__(key, result)


def begin_batch(loop: Any, collector: Any, batch: Any, dataloader_idx: int | None = None) -> None:
    """What the connector does as a batch begins."""
    collector._first_loop_iter = collector._first_loop_iter is None
    results = loop._results
    results.batch = batch
    results.batch_size = None
    results.dataloader_idx = dataloader_idx


def end_batch(loop: Any, collector: Any) -> bool:
    """What the connector does as a batch ends; whether a value of this step was logged."""
    results = loop._results
    for result in results.values():
        if not result.has_reset and result.meta.on_step:
            collector.on_batch_end()
            return True
    results.batch = results.batch_size = None
    return False


def first_of_loop(collector: Any) -> bool | None:
    """Whether the batch is the first since the epoch began; None between epochs."""
    first: bool | None = collector._first_loop_iter
    return first


def set_first_of_loop(collector: Any, first: bool | None) -> None:
    """Have `first_of_loop` give this."""
    collector._first_loop_iter = first


def end_of_dataloaders(collector: Any) -> None:
    """No dataloader is the one that is read."""
    collector._evaluation_epoch_end()


def log_epoch(loop: Any, collector: Any) -> None:
    """Write what was logged in an epoch, at the step before: so loggers count the end of an epoch."""
    loop._batches_that_stepped -= 1
    collector.update_train_epoch_metrics()
    loop._batches_that_stepped += 1


def callback_metrics(trainer: L.Trainer) -> dict[str, Any]:
    """The metrics that callbacks see, to be changed in place."""
    metrics: dict[str, Any] = trainer._logger_connector._callback_metrics
    return metrics


# -- data


class LightningFitLoop(_FitLoop):
    """Lightning's, which gives its state also to a loader whose epoch was over."""

    @override
    def _load_combined_loader_states(self) -> None:
        loader = self._combined_loader
        states = self._combined_loader_states_to_load
        if loader is not None and states:
            loader._load_state_dicts(states)
            self._combined_loader_states_to_load = []


def reopen(loop: LightningFitLoop) -> None:
    """Open the training data again, after its state was loaded."""
    loop._load_combined_loader_states()
    fetcher: Any = loop._data_fetcher  # the loop has set it up
    iter(fetcher)


def refuse_unsupported(fetcher: Any, *, training: bool = True) -> None:
    """Refuse a module whose steps read their batches, and loaders that are read one after another."""
    if training and fetcher.combined_loader._mode == "sequential":
        raise ValueError(
            'training does not support CombinedLoader(mode="sequential"); expected mode "min_size", '
            '"max_size" or "max_size_cycle"'
        )
    if isinstance(fetcher, _DataLoaderIterDataFetcher):
        raise AssayError(
            "a step with the argument dataloader_iter is not supported",
            hint="take (batch, batch_idx), or a trainer class of your own",
        )


def single_iterator(fetcher: Any) -> Iterator[Any] | None:
    """The iterator of the one dataloader, if no more is done with a batch than to hand it on."""
    inner = getattr(getattr(fetcher, "iterator", None), "_iterator", None)
    iterators: Any = getattr(inner, "iterators", None)
    plain = type(fetcher) is PlainFetcher and fetcher.length is not None and iterators is not None
    loader = fetcher.combined_loader
    known_mode = loader._mode in ("max_size_cycle", "sequential")
    is_single = (
        plain and known_mode and len(iterators) == 1 and loader.iterables is loader.flattened[0]
    )
    return iterators[0] if is_single else None


def next_batch(iterator: Iterator[Any], fetcher: Any) -> Any:
    """The next batch of `single_iterator`, counted as the fetcher would."""
    if fetcher.done:
        raise StopIteration
    batch = next(iterator)
    fetcher.fetched += 1
    fetcher.done = fetcher.fetched >= fetcher.length
    return batch


def profile_fetching(fetcher: Any, trainer: Any, loop: type, action: str) -> None:
    """Time each batch that is fetched, under the name that Lightning gives it."""
    name = f"[{loop.__name__}].{action}"
    fetcher._start_profiler = lambda: trainer.profiler.start(name)
    fetcher._stop_profiler = lambda: trainer.profiler.stop(name)


def seed_samplers(fit_loop: LightningFitLoop) -> None:
    """Tell the samplers which epoch it is."""
    assert fit_loop._combined_loader is not None  # noqa: S101 - the loop has set it up
    progress: Any = fit_loop.epoch_progress.current
    for loader in fit_loop._combined_loader.flattened:
        _set_sampler_epoch(loader, progress.processed)


def batch_hook_owner(trainer: L.Trainer, hook: str) -> Any:
    """The module or datamodule whose hook moves batches."""
    return trainer._data_connector._datahook_selector.get_instance(hook)  # type: ignore[union-attr]  # in fit


def move_batch(trainer: L.Trainer, batch: Any, dataloader_idx: int) -> Any:
    """A batch after all hooks that move it, called as Lightning calls them."""
    return trainer.lightning_module._on_before_batch_transfer(
        batch, dataloader_idx=dataloader_idx
    )


def check_dataloader_idx(
    loop: LightningEvaluationLoop, hooks: tuple[str, ...], *, several: bool
) -> None:
    """Refuse hooks that want, or lack, the number of the dataloader."""
    _verify_dataloader_idx_requirement(hooks, several, loop._stage, loop.trainer.lightning_module)


# -- state of the loops


def clear_restart_flags(loop: Any) -> None:
    """After its state was loaded: nothing that follows is a restart in Lightning's sense."""
    for restarting in (
        loop,
        *(value for value in vars(loop).values() if hasattr(value, "_restarting")),
    ):
        restarting._restarting = restarting._loaded_from_state_dict = (
            restarting._resuming_from_checkpoint
        ) = False
        if restarting is not loop:
            clear_restart_flags(restarting)


def accumulates(loop: LightningEpochLoop) -> bool:
    """Whether the batch's gradients are added to, and the optimizer does not step."""
    num_batches: int = loop.trainer.accumulate_grad_batches
    return num_batches != 1 and loop._should_accumulate()


def at_last_batch(loop: LightningEpochLoop) -> bool:
    """Whether the epoch has no further batch."""
    return loop._num_ready_batches_reached()


def validation_is_due(loop: LightningEpochLoop, fetcher: Any) -> bool:
    """Whether to validate after this batch."""
    trainer: Any = loop.trainer
    interval = trainer.val_check_batch
    progress = loop.batch_progress
    counts = (
        type(interval) is int
        and trainer.check_val_every_n_epoch
        and trainer._val_check_time_interval is None
    )
    if (
        counts
        and not progress.is_last_batch
        and not trainer.should_stop
        and progress.current.ready % interval
    ):
        return False  # which Lightning finds out in a longer way
    return loop._should_check_val_fx(fetcher)


def skips_backward(loop: LightningEpochLoop) -> bool:
    """Whether a callback asked for forward passes alone, as weight averaging does for batch normalisation."""
    return loop.automatic_optimization._skip_backward


def optimizer_of(trainer: L.Trainer) -> Any:
    """The one optimizer of automatic optimization, as its hooks are given it."""
    return trainer.strategy._lightning_optimizers[0]


def loop_arguments(loop: LightningEvaluationLoop) -> tuple[Any, ...]:
    """Arguments by which a loop of the same kind is made."""
    return loop.trainer, loop._trainer_fn, loop._stage, loop.verbose, loop.inference_mode


def note_time(trainer: Any) -> None:
    """Count the time to the next validation from now, where validation goes by the clock."""
    trainer._last_val_time = time.monotonic()


def batches_seen(loop: LightningEvaluationLoop) -> dict[int, int]:
    """Batches of each dataloader so far, by which loggers count what a step of the evaluation logs."""
    return dict(loop._seen_batches_per_dataloader)


def leave_signals(trainer: L.Trainer) -> None:
    """Have Lightning set no handler for SIGTERM: its own ends a run without saving, or hangs for ever."""
    trainer._signal_connector.register_signal_handlers = _no_handlers  # type: ignore[method-assign]


def _no_handlers() -> None:
    """In place of Lightning's."""


# -- what may be called directly


def _is_inherited(instance: Any, kind: type, *names: str) -> bool:
    return all(getattr(type(instance), name) is getattr(kind, name) for name in names)


def backward_is_plain(strategy: Strategy) -> bool:
    """Whether nothing but hooks surrounds the module's backward pass."""
    precision = strategy.precision_plugin
    scaled = isinstance(precision, MixedPrecision) and precision.scaler is not None
    return (
        _is_inherited(strategy, Strategy, "backward", "pre_backward", "post_backward")
        and _is_inherited(precision, Precision, "backward", "post_backward")
        and not scaled
        and (
            type(precision) is MixedPrecision
            or _is_inherited(precision, Precision, "pre_backward")
        )
    )


def forward_is_plain(strategy: Strategy, step: str) -> bool:
    """Whether nothing surrounds the module's step: no other precision, and no wrapper around the model."""
    return (
        type(strategy.precision_plugin) is Precision
        and _is_inherited(strategy, Strategy, step, "post_training_step")
        and strategy.model is strategy.lightning_module
    )


def step_is_plain(strategy: Strategy) -> bool:
    """Whether nothing but hooks and the clipping of gradients surrounds the optimizer's step."""
    precision = strategy.precision_plugin
    of_strategy = _is_inherited(strategy, Strategy, "optimizer_step") or (
        _is_inherited(strategy, DDPStrategy, "optimizer_step")
        and strategy._model_averager is None  # type: ignore[attr-defined]  # DDP's
    )
    of_precision = _is_inherited(precision, Precision, "optimizer_step") or (
        type(precision) is MixedPrecision and precision.scaler is None
    )
    return (
        of_strategy
        and of_precision
        and _is_inherited(precision, Precision, "_wrap_closure", "_after_closure")
    )


def clip_gradients(trainer: L.Trainer, optimizer: Any) -> None:
    """What comes before the optimizer's step, of the precision."""
    trainer.precision_plugin._clip_gradients(
        trainer.lightning_module,
        optimizer,
        trainer.gradient_clip_val,
        gradient_clip_algorithm=trainer.gradient_clip_algorithm,
    )


def lean_hook(
    callback: object, hook: str, method: Callable[..., Any]
) -> Callable[..., Any] | None:
    """A hook of a callback, without what only finds out that there is nothing to do; None: there never is."""

    def is_stock(kind: type) -> bool:
        return isinstance(callback, kind) and getattr(type(callback), hook, None) is getattr(
            kind, hook
        )

    if hook == "on_train_batch_end" and is_stock(ModelCheckpoint):
        saver: Any = callback
        by_epoch = saver._every_n_train_steps < 1 and saver._train_time_interval is None
        if by_epoch:
            return None
        return method
    if hook != "on_train_batch_start" or not (
        is_stock(LearningRateMonitor) or is_stock(LRMonitor)
    ):
        return method

    def when_due(trainer: Any, *args: Any) -> None:
        interval = trainer.log_every_n_steps
        if trainer.should_stop or (
            interval and not (trainer.fit_loop.epoch_loop._batches_that_stepped + 1) % interval
        ):
            method(trainer, *args)

    return when_due


_KEPT = ("_last_global_step_saved", "_last_checkpoint_saved", "_defer_save_until_validation")


def bookkeeping(callback: ModelCheckpoint) -> dict[str, Any]:
    """What a callback keeps for itself and leaves out of its state."""
    return {name: getattr(callback, name) for name in _KEPT}


def bookkeeping_after(callback: ModelCheckpoint, path: str | Path, step: int) -> dict[str, Any]:
    """The same, once it has saved what it is saving."""
    return bookkeeping(callback) | {
        "_last_global_step_saved": step,
        "_last_checkpoint_saved": path,
    }


def restore_bookkeeping(callback: ModelCheckpoint, state: Mapping[str, Any]) -> None:
    """Give a callback back what a checkpoint says of it."""
    for name in state.keys() & {*_KEPT}:
        setattr(callback, name, state[name])
    _link_within_folder(callback)


def _link_within_folder(callback: ModelCheckpoint) -> None:
    """Have a later `save_last=link` point to what lies in the callback's folder, wherever that is now."""
    saved = Path(callback._last_checkpoint_saved)
    folder = Path(callback.dirpath or "")
    if ".." in saved.parts or not saved.is_relative_to(folder):
        saved = folder / saved.name
    if saved.is_file():
        callback._last_checkpoint_saved = str(saved)
    else:
        callback._last_checkpoint_saved = ""


def note_saved(callback: ModelCheckpoint, step: int) -> None:
    """Have a callback know that it has saved at this step."""
    callback._last_global_step_saved = step


def average_of(callback: WeightAveraging) -> torch.nn.Module | None:
    """The averaged copy of the model."""
    return callback._average_model


_META = (
    *("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph"),
    *("add_dataloader_idx", "dataloader_idx", "metric_attribute"),
)
_REDUCTIONS = ("mean", "min", "max", "sum")
_VALUES = ("value", "cumulated_batch_size", "_forward_cache")


def logged_state(loop: LightningEpochLoop) -> dict[str, Any]:
    """Numbers that a module has logged in an epoch that is not over; metric objects are the module's own."""
    return {
        key: {
            "meta": {name: getattr(result.meta, name) for name in _META},
            "reduce": result.meta.reduce_fx.__name__,
            "together": result.meta.sync.should,
            "first_only": result.meta.sync.rank_zero_only,
            "updates": result._update_count,
            "values": {name: getattr(result, name) for name in _VALUES if hasattr(result, name)},
        }
        for key, result in loop._results.items()
        if result.is_tensor and not result.has_reset
    }


def restore_logged(loop: LightningEpochLoop, state: dict[str, Any]) -> None:
    """Put what `logged_state` gave back."""
    strategy: Any = loop.trainer.strategy
    for key, saved in state.items():
        if saved["reduce"] not in _REDUCTIONS or not {*saved["values"]} <= {*_VALUES}:
            raise AssayError(
                f"the checkpoint has an unexpected entry for {key!r}: it was changed"
            )
        meta = _Metadata(**saved["meta"], reduce_fx=getattr(torch, saved["reduce"]))
        reduce: Callable[..., Any] = strategy.reduce
        meta.sync = _Sync(
            _should=saved["together"], fn=reduce, rank_zero_only=saved["first_only"]
        )
        result = _ResultMetric(meta, is_tensor=True)
        for name, value in saved["values"].items():
            if isinstance(value, torch.Tensor):
                held = value.to(strategy.root_device)
            else:
                held = value
            setattr(result, name, held)
        result._update_count = saved["updates"]
        loop._results[key] = result
