"""Training from the first epoch or a checkpoint to the last; puts the loops into Lightning's trainer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from typing_extensions import override

from assay.loop import lightning_internals as internals
from assay.loop.carried_state import (
    HALF_DONE,
    ChangedArguments,
    Phase,
    Position,
    bookkeeping,
    callback_states,
    copy_tensors,
    restore_extras,
    resume_extras,
    resumes_at_epochs_only,
    settle_buckets,
)
from assay.loop.epoch_loop import EpochLoop
from assay.loop.evaluation_loop import EvaluationLoop
from assay.loop.hook_plan import HookPlan, picklable_state
from assay.loop.lightning_internals import LightningFitLoop
from assay.loop.micro_batch import MicroBatch
from assay.torch_internals import keep_freed_memory

if TYPE_CHECKING:
    import lightning as L


KEY = "position"


@final
class FitLoop(LightningFitLoop):
    """Epochs, and in each checkpoint the position from which a run that loads it goes on."""

    epoch_loop: EpochLoop

    def __init__(self, loop: LightningFitLoop) -> None:
        super().__init__(loop.trainer, loop.min_epochs, loop.max_epochs)
        self.epoch_loop = EpochLoop(loop.trainer, loop.min_steps, loop.max_steps)
        self.changed = ChangedArguments()
        self.has_begun = False
        self.saves_to: str | Path | None = None
        """The checkpoint that is being saved."""
        self._loaded: dict[str, Any] | None = None
        self._built_schedulers: list[dict[str, Any]] = []
        self._csv: Any = None
        self._mark: dict[str, Any] = {}
        self._rest: dict[str, Any] | None = None
        """Where a longer run goes on: within the epoch that was cut off."""

    # -- training ------------------------------------------------------------------------------------------

    @override
    def run(self) -> None:
        loaded = self._loaded
        self._loaded = None
        self._rest = None
        if loaded is None:
            self.setup_data()
        else:
            self._open_data(Phase(loaded[KEY]["phase"]))
        if (loaded is None or not self.max_batches) and self.skip:
            return
        trainer = self.trainer
        loop = self.epoch_loop
        torch.set_grad_enabled(True)
        self._hooks = HookPlan(trainer)
        internals.refuse_unsupported(self._data_fetcher)
        settle_buckets(trainer)
        if trainer.strategy.root_device.type == "cpu":
            keep_freed_memory()
        loop.prepare(self._hooks)
        self._csv = next(
            (logger for logger in trainer.loggers if hasattr(type(logger), "rewind")), None
        )
        # not that of an earlier fit, or of the check before training
        loop.phase = Phase.EPOCH_START
        if loaded is None:
            start = loop.phase
        else:
            start = self._take_up(loaded)
        self.has_begun = True
        self.on_run_start()
        while start is not Phase.EPOCH_START or not self.done:
            try:
                self._epoch(start)
            except StopIteration:
                break
            start = Phase.EPOCH_START
        loop.phase = Phase.TRAIN_END
        self.on_run_end()

    def _open_data(self, start: Phase) -> None:
        """Open the training data at the position that was loaded, once."""
        progress: Any = self.epoch_loop.batch_progress.current
        done = progress.ready
        if start is Phase.EPOCH_END:
            progress.ready = 0  # a loader that reads ahead begins with the next epoch
        was_open = self._data_fetcher is not None
        self.setup_data()
        # by a module that asked for the length of training, before the state was loaded
        if was_open:
            internals.reopen(self)
        progress.ready = done
        self.epoch_loop.is_open = True

    def _epoch(self, start: Phase) -> None:
        self._rest = None
        self._hooks.forget()
        if start is Phase.EPOCH_START:
            self.epoch_loop.phase = start
            self.mark_log()
            self.on_advance_start()
        else:
            internals.seed_samplers(self)
        if start is Phase.EPOCH_END:
            internals.connector(self.trainer).epoch_end_reached()
            for epochs in (self.epoch_progress.current, self.epoch_progress.total):
                epochs.completed -= 1  # what is left belongs to the epoch
        else:
            with self._hooks.profile("run_training_epoch"):
                self.epoch_loop.run(self._data_fetcher, start)
            if self.epoch_loop.is_cut:
                self._rest = copy_tensors(self._state(self.epoch_loop.phase))
                self._rest["carried"]["states"] = callback_states(self.trainer)
            self._call_at_epoch_end()
        self.on_advance_end()

    def _count_epoch(self) -> None:
        internals.connector(self.trainer).epoch_end_reached()
        self.epoch_progress.increment_processed()

    def _call_at_epoch_end(self) -> None:
        """The hooks before those that save; who waits for a metric of the epoch comes after the module."""
        self.epoch_loop.phase = Phase.SCORES
        self._count_epoch()
        hooks = self._hooks
        hooks.callbacks("on_train_epoch_end", monitoring=False)()
        hooks.module("on_train_epoch_end")()
        hooks.callbacks("on_train_epoch_end", saving=False, monitoring=True)()

    @override
    def on_advance_end(self) -> None:
        """All that follows when an epoch's scores are known; it is left to a run that goes on from here."""
        loop = self.epoch_loop
        collector = internals.connector(self.trainer)
        loop.phase = Phase.EPOCH_END
        self._hooks.callbacks("on_train_epoch_end", saving=True)()
        collector.on_epoch_end()
        if internals.at_last_batch(loop):
            loop.update_lr_schedulers("epoch", update_plateau_schedulers=True)
        internals.log_epoch(loop, collector)
        self.epoch_progress.increment_completed()

    def mark_log(self) -> None:
        """Remember how long metrics.csv is: what is written from here on is done again after a checkpoint."""
        if self._csv is not None:
            self._mark = self._csv.mark()

    __getstate__ = picklable_state

    # -- into a checkpoint ---------------------------------------------------------------------------------

    @override
    def on_save_checkpoint(self) -> dict[str, Any]:
        phase = self.epoch_loop.phase
        if self._rest is None:
            state = self._state(phase)
        else:
            state = self._rest
        if state["carried"]:
            state["carried"] |= bookkeeping(self.trainer)
        return {**super().on_save_checkpoint(), **state, "scores": self._validation_scores(phase)}

    def _state(self, phase: Phase) -> dict[str, Any]:
        """Where training is, and what else a run needs to go on from there."""
        trainer = self.trainer
        loop = self.epoch_loop
        progress: Any = loop.batch_progress.current
        begun = phase not in (Phase.EPOCH_START, Phase.EPOCH_END, Phase.TRAIN_END)
        batch = 0
        if phase is not Phase.EPOCH_START:
            batch = progress.processed
        epoch = self.epoch_progress.current.completed - (phase is Phase.TRAIN_END)
        if self._csv is not None:
            log = self._csv.position()
        else:
            log = None
        if log is not None and phase in (Phase.EPOCH_START, Phase.BATCH_START):
            log |= self._mark
        position = None
        carried = {}
        if phase not in HALF_DONE:
            position = {"epoch": max(epoch, 0), "batch": batch, "phase": str(phase)}
            carried = resume_extras(trainer, phase)
        return {
            KEY: position,
            "epoch_lost": resumes_at_epochs_only(trainer) and begun and batch > 0,
            "log": log,
            "carried": carried,
        }

    def _validation_scores(self, phase: Phase) -> dict[str, float]:
        """Those of the weights in this checkpoint, as far as it is made where they are known."""
        is_known = self.trainer.validating or (
            phase is Phase.EPOCH_END and self.trainer.check_val_every_n_epoch == 1
        )
        scores: dict[str, Any] = {}
        if is_known:
            scores = self.trainer.callback_metrics
        return {name: float(score) for name, score in scores.items() if name.startswith("val")}

    # -- and out of one ------------------------------------------------------------------------------------

    @override
    def load_state_dict(self, state_dict: dict[str, Any], prefix: str = "") -> None:
        """Take note of a position; what it needs is put in place when training begins."""
        loaded = state_dict[f"{prefix}state_dict"]
        position = Position.of_state(loaded.get(KEY))
        super().load_state_dict(state_dict, prefix)
        self._loaded = loaded
        self._rest = None
        self.epoch_loop.phase = position.phase
        schedulers = (config.scheduler for config in self.trainer.lr_scheduler_configs)
        self._built_schedulers = [dict(scheduler.state_dict()) for scheduler in schedulers]
        over = position.phase is Phase.TRAIN_END
        done = position.epoch + (over or position.phase is Phase.EPOCH_END)
        started = position.epoch + (position.phase is not Phase.EPOCH_START)
        for epochs in (self.epoch_progress.current, self.epoch_progress.total):
            epochs.ready = epochs.started = started  # type: ignore[attr-defined]  # of this kind of progress
            epochs.processed = epochs.completed = done  # type: ignore[attr-defined]  # the same
        progress = self.epoch_loop.batch_progress
        progress.current.processed = position.batch  # type: ignore[attr-defined]  # as above
        for batches in (progress.current, progress.total):
            steps = batches.processed  # type: ignore[attr-defined]  # as above
            batches.ready = batches.started = steps  # type: ignore[attr-defined]  # as above
            batches.completed = steps - (position.phase is Phase.BATCH_END)
        if position.phase is Phase.BATCH_START:
            progress.is_last_batch = False  # which may be the one that is still to be trained
        if over:
            progress.current.reset()

    def _take_up(self, loaded: dict[str, Any]) -> Phase:
        """Put in place what the checkpoint carries, and say where to go on."""
        trainer = self.trainer
        phase = Phase(loaded[KEY]["phase"])
        internals.clear_restart_flags(self)
        # as a tuner saves it, without loggers
        if self._csv is not None and loaded["log"] is not None:
            self._csv.rewind(loaded["log"])
        restore_extras(trainer, loaded["carried"], stop=self.changed.stop)
        self.changed.apply(trainer, self._built_schedulers)
        # Lightning never removes what it has resumed from; here that is one of the run's own.
        trainer.ckpt_path = None
        self.epoch_loop.phase = phase
        if phase is Phase.TRAIN_END:
            return Phase.EPOCH_START
        return phase


def install(trainer: L.Trainer, micro_batch: int | Literal["auto"] | None = None) -> None:
    """Give a trainer loops that do what Lightning's do, and can go on after any step."""
    trainer.fit_loop = FitLoop(trainer.fit_loop)  # type: ignore[arg-type]  # Lightning names its private class
    trainer.save_checkpoint = partial(_save_checkpoint, trainer)  # type: ignore[method-assign]  # as Lightning calls it
    if micro_batch is not None:
        trainer.fit_loop.epoch_loop.micro_batch = MicroBatch(micro_batch)
    else:
        trainer.fit_loop.epoch_loop.micro_batch = None
    trainer.validate_loop = EvaluationLoop.like(trainer.validate_loop)
    trainer.test_loop = EvaluationLoop.like(trainer.test_loop)


def _save_checkpoint(trainer: Any, filepath: str | Path, *args: Any, **kwargs: Any) -> None:
    trainer.fit_loop.saves_to = filepath
    try:
        type(trainer).save_checkpoint(trainer, filepath, *args, **kwargs)
    finally:
        trainer.fit_loop.saves_to = None


_PATHS = ("best_model_path", "kth_best_model_path", "last_model_path")


@final
class MovedRun(Callback):
    """Has callbacks look for the checkpoints they keep where the run directory is now."""

    @override
    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        for callback in trainer.checkpoint_callbacks:
            state = checkpoint["callbacks"].get(callback.state_key)
            if isinstance(callback, ModelCheckpoint) and state:
                _move(callback, state)


def _move(callback: ModelCheckpoint, state: dict[str, Any]) -> None:
    before = state["dirpath"]
    now = str(callback.dirpath)

    def moved(path: str) -> str:
        inside = path and ".." not in Path(path).parts and Path(path).is_relative_to(before)
        # What lies elsewhere is not this run's: Lightning would remove it for a better one.
        if inside:
            return str(Path(now) / Path(path).relative_to(before))
        return ""

    state["dirpath"] = callback.dirpath
    for name in _PATHS:
        state[name] = moved(state[name])
    kept = {moved(path): score for path, score in state["best_k_models"].items()}
    state["best_k_models"] = best = {path: score for path, score in kept.items() if path}
    if best and state["kth_best_model_path"] not in best:  # Lightning looks its score up
        if callback.mode == "min":
            worst = max
        else:
            worst = min
        state["kth_best_model_path"] = worst(best, key=best.__getitem__)
