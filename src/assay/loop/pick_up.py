"""Goes on from a checkpoint with what was left to do when it was saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelCheckpoint
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from assay.loop.logged_results import take_up_results
from assay.loop.resume_point import ResumePoint, averaged_too, claimed, take_up_bookkeeping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import lightning as L

_PROGRESS: Final = frozenset(
    (
        *("last_epoch", "_step_count", "_last_lr", "base_lrs", "_schedulers"),
        *("best", "num_bad_epochs", "cooldown_counter"),
    )
)
"""What of a scheduler's state says how far it is; all else says what it was built with."""


@final
class PickUp(Callback):
    """Ends the step, the validation or the epoch that a checkpoint was saved in the middle of.

    Lightning 2.6 would go on with the next one: no validation where a checkpoint was saved right before it,
    no step of a plateau scheduler in an epoch that was resumed, no row of an epoch saved at its end. Here the
    rest of Lightning's own loop is run from the point that `ResumePoint` noted, before the first new batch.

    Last of all callbacks, so that all others are ready for training.

    Args:
        optimizer: Arguments of the optimizer that are others than when the run began: name to old and new
            value.
        new_schedule: Whether the scheduler is built with other arguments than when the run began.
        stop: Whether a stop that was decided before the checkpoint still holds.
    """

    def __init__(
        self,
        optimizer: Mapping[str, tuple[Any, Any]] | None = None,
        *,
        new_schedule: bool = False,
        stop: bool = True,
    ) -> None:
        self._optimizer, self._new_schedule, self._stop = dict(optimizer or {}), new_schedule, stop
        self._fresh: list[dict[str, Any]] = []
        self.done = False
        """Whether the checkpoint is taken up, and what happens from here on is training."""

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep what the schedulers are built with: their state in the checkpoint is about to replace it."""
        self._fresh = [dict(config.scheduler.state_dict()) for config in trainer.lr_scheduler_configs]

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take up the state, do what was left to do, and put the loops before the next batch or epoch."""
        point = next(one for one in _callbacks(trainer) if isinstance(one, ResumePoint))
        if point.loaded is None:
            self.done = True
            return
        note, point.loaded = point.loaded, None
        self._take_up(trainer, pl_module, note)
        self.done = True
        phase = point.phase = note["phase"]
        fit_loop = trainer.fit_loop
        loop = fit_loop.epoch_loop
        for one in (fit_loop, loop, loop.val_loop):
            one._restarting = False  # what is run from here on is not a restart
        if phase in ("epoch_start", "train_end", "epoch_end"):
            if phase == "epoch_end":
                _end_epoch(trainer, pl_module)
            if phase != "epoch_start":
                _count_epoch(fit_loop.epoch_progress)
            _before_next_epoch(fit_loop)
        elif phase == "batch_start" or not _end_step(trainer, pl_module, note, point):
            _before_next_batch(trainer)
        else:
            _before_next_epoch(fit_loop)

    def _take_up(self, trainer: L.Trainer, pl_module: L.LightningModule, note: dict[str, Any]) -> None:
        trainer.should_stop = self._stop and note["should_stop"]
        device = pl_module.device
        metrics = {name: value.to(device) for name, value in note["metrics"].items()}
        trainer._logger_connector._callback_metrics.update(metrics)
        for callback in _callbacks(trainer):
            take_up_bookkeeping(callback, note["callbacks"].get(callback.state_key, {}))
            if isinstance(callback, ModelCheckpoint) and _has_saved(callback, str(trainer.ckpt_path)):
                callback._last_global_step_saved = trainer.global_step
        _remove_dropped(trainer, note.get("dropped", ()))
        # Lightning never removes what it has resumed from; here that is one of the run's own.
        trainer.ckpt_path = None
        own = note["processes"][trainer.global_rank]
        take_up_results(trainer, own["logged"])
        if "module" in own:
            pl_module.take_up_epoch(own["module"])  # type: ignore[operator]  # it gave that state
        gradients = own.get("gradients", {})
        for name, parameter in pl_module.named_parameters():
            if name in gradients:
                parameter.grad = gradients[name].to(parameter.device, parameter.dtype)
        with torch.no_grad():
            for module, saved in zip(averaged_too(trainer, pl_module), own.get("buffers", ()), strict=False):
                for name, buffer in module.named_buffers():
                    buffer.copy_(saved[name])
        if isinstance(trainer.strategy.model, DistributedDataParallel) and "buffers_due" in own:
            trainer.strategy.model.require_forward_param_sync = own["buffers_due"]
        if self._new_schedule:
            _reschedule(trainer, self._fresh)
        _change_optimizer(trainer, self._optimizer)


def _callbacks(trainer: L.Trainer) -> list[Callback]:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    return callbacks


def _remove_dropped(trainer: L.Trainer, names: Iterable[str]) -> None:
    """Remove what a better checkpoint has taken the place of, should the process have died in between."""
    folder = Path(str(trainer.ckpt_path)).parent
    kept = {Path(path).name for path in claimed(trainer)}
    for name in names:
        if name == Path(name).name and name.endswith(".ckpt") and name not in kept:
            trainer.strategy.remove_checkpoint(folder / name)


def _has_saved(callback: ModelCheckpoint, path: str) -> bool:
    """Whether this callback has saved the checkpoint, and would keep a second copy of it now."""
    several = callback.monitor is None and callback.save_top_k == -1 and callback.best_model_path == path
    return several or path in callback.best_k_models or path == callback.last_model_path


def _end_step(
    trainer: L.Trainer, pl_module: L.LightningModule, note: dict[str, Any], point: ResumePoint
) -> bool:
    """What comes after a training step, or after its validation; whether the epoch ended with it."""
    fit_loop, connector = trainer.fit_loop, trainer._logger_connector
    loop = fit_loop.epoch_loop
    checkpoints = [one for one in _callbacks(trainer) if isinstance(one, Checkpoint)]
    step = loop.batch_progress.current.completed
    if note["phase"] == "batch_end":
        outputs = {} if note["loss"] is None else {"loss": note["loss"]}
        point.outputs = outputs
        connector._first_loop_iter = step == 1
        for callback in checkpoints:
            callback.on_train_batch_end(trainer, pl_module, outputs, None, step - 1)
        if hasattr(pl_module, "end_step"):
            pl_module.end_step(outputs)  # type: ignore[operator]  # the module's own
        connector.on_batch_end()
        connector.update_train_step_metrics()
    else:
        trainer.validating = True
        for callback in checkpoints:
            callback.on_validation_end(trainer, pl_module)
        trainer.training = True
        loop._skip_next_val = True
    fetcher = fit_loop._data_fetcher
    assert fetcher is not None  # noqa: S101 - the loop has set it up
    loop.on_advance_end(fetcher)
    over = loop._is_training_done or (trainer.should_stop and fit_loop._can_stop_early)
    if over:
        fit_loop.on_advance_end()
    return bool(over)


def _end_epoch(trainer: L.Trainer, pl_module: L.LightningModule) -> None:
    """What comes after the hooks at the end of an epoch: the plateau scheduler and the epoch's row."""
    loop, connector = trainer.fit_loop.epoch_loop, trainer._logger_connector
    for callback in _callbacks(trainer):
        if isinstance(callback, Checkpoint):
            callback.on_train_epoch_end(trainer, pl_module)
    connector.epoch_end_reached()
    connector.on_epoch_end()
    if loop._num_ready_batches_reached():
        loop.update_lr_schedulers("epoch", update_plateau_schedulers=True)
    loop._batches_that_stepped -= 1  # as Lightning has it: the row belongs to the step before
    connector.update_train_epoch_metrics()
    loop._batches_that_stepped += 1


def _count_epoch(progress: Any) -> None:
    for counters in (progress.current, progress.total):
        counters.processed = counters.completed = counters.ready


def _before_next_epoch(fit_loop: Any) -> None:
    for loop in (fit_loop, fit_loop.epoch_loop, fit_loop.epoch_loop.val_loop):
        loop._restart_stage = "none"
        loop._resuming_from_checkpoint = False


def _before_next_batch(trainer: L.Trainer) -> None:
    loop = trainer.fit_loop.epoch_loop
    loop._restarting, loop._restart_stage = True, "none"
    trainer._logger_connector._first_loop_iter = True  # the next batch is not the first one
    if not loop._should_accumulate():
        loop._batches_that_stepped -= 1  # a loop that restarts counts the last step once more


def _reschedule(trainer: L.Trainer, fresh: list[dict[str, Any]]) -> None:
    """Go on with schedulers as they are now built, at the step they had reached."""
    for config, built in zip(trainer.lr_scheduler_configs, fresh, strict=True):
        scheduler: Any = config.scheduler
        scheduler.load_state_dict({name: value for name, value in built.items() if name not in _PROGRESS})
        if config.reduce_on_plateau:
            continue
        closed = getattr(scheduler, "_get_closed_form_lr", None)
        if closed is not None:  # the next lr is computed from the last one, which may be zero for good
            for group, lr in zip(scheduler.optimizer.param_groups, closed(), strict=True):
                group["lr"] = lr
            scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def _change_optimizer(trainer: L.Trainer, changed: Mapping[str, tuple[Any, Any]]) -> None:
    """Give every parameter group the new value; a learning rate keeps its proportion to the old one."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            for name, (old, new) in changed.items():
                if name == "lr":
                    for one in ("lr", "initial_lr", "max_lr", "min_lr"):
                        if one in group:
                            group[one] *= new / old
                elif group.get(name) == old or name not in group:
                    group[name] = new
    if "lr" in changed:
        old, new = changed["lr"]
        for config in trainer.lr_scheduler_configs:
            state = vars(config.scheduler)
            for name in ("base_lrs", "_last_lr"):
                if name in state:
                    state[name] = [lr * new / old for lr in state[name]]
