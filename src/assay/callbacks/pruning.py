"""A trial of a study reports its score after each validation, and ends when the study's pruner says so."""

from __future__ import annotations

import logging
import math
import os
from typing import TYPE_CHECKING, Any, Final, final

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from assay.callbacks.optuna_study import build_part, close_storage, no_news, open_storage
from assay.errors import AssayError, cannot_write, one_line_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lightning as L
    import optuna

log = logging.getLogger("assay")

_TRAIN: Final = "train/"


class Pruned(Exception):  # noqa: N818 - it is not an error
    """The study's pruner has ended the run."""

    def __init__(self, monitor: str, value: float, where: str) -> None:
        super().__init__(f"pruned at {where}: {monitor} was {value:.6g}")


@final
class Pruning(Callback):
    """Reports a score to an Optuna study after each validation, and ends the run when its pruner says so."""

    def __init__(
        self, monitor: str | None, storage: str, study: str, trial: int, pruner: Mapping[str, Any]
    ) -> None:
        self.monitor, self.storage, self.study, self.trial = monitor or "", storage, study, trial
        self.pruner = dict(pruner)
        self._opened: tuple[int, optuna.Study, optuna.storages.BaseStorage, int] | None = None
        self._unreachable = False
        self._end: Pruned | None = None

    # -- when ------------------------------------------------------------------------------------------------

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._end = None
        if not self.monitor:
            self.monitor = next((m for m in map(_monitor, trainer.checkpoint_callbacks) if m), "")
        if not self.monitor:
            raise AssayError(
                "the study has no objective and no callback says which checkpoint is the best",
                hint="hydra.sweeper.objective=val/loss",
            )

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        if not self.monitor.startswith(_TRAIN):
            self._ask(trainer, trainer.current_epoch)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End the run; report a score of the training, which is known only now."""
        if self.monitor.startswith(_TRAIN) and self.monitor in trainer.callback_metrics:
            self._ask(trainer, trainer.current_epoch - 1)
        self._raise()

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._raise()

    @override
    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close()

    @override
    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self._close()

    def _raise(self) -> None:
        if self._end is not None:
            raise self._end

    # -- what ------------------------------------------------------------------------------------------------

    def _ask(self, trainer: L.Trainer, epoch: int) -> None:
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics))
            raise AssayError(
                f"{self.monitor} is not a metric of this job",
                hint=f"hydra.sweeper.objective=…; there is: {known}",
            )
        value = float(trainer.callback_metrics[self.monitor])
        by_epoch = _one_an_epoch(trainer)
        ends = False
        if trainer.is_global_zero:
            ends = self._report(value, epoch if by_epoch else trainer.global_step)
        if trainer.world_size > 1:
            ends = trainer.strategy.broadcast(ends)
        if ends:
            where = f"epoch {epoch + 1}" if by_epoch else f"step {trainer.global_step}"
            self._end = Pruned(self.monitor, value, where)

    def _report(self, value: float, step: int) -> bool:
        from optuna.exceptions import StorageInternalError

        if self._unreachable:
            return False
        try:
            study, storage, trial_id = self._study()
            trial = storage.get_trial(trial_id)
            if trial.state.is_finished():  # such as one of a study that went on without this run
                return False
            if step not in trial.intermediate_values:  # a resumed run comes by the same step again
                storage.set_trial_intermediate_value(trial_id, step, value)
                trial = storage.get_trial(trial_id)
            with no_news():
                return bool(study.pruner.prune(study, trial))
        except (StorageInternalError, OSError, KeyError) as error:
            if cannot_write(error):
                raise
            self._unreachable = True
            why = one_line_of(error.__cause__ or error)
            log.warning("the study cannot be reached, so nothing is pruned: %s", why)
            return False

    def _study(self) -> tuple[optuna.Study, optuna.storages.BaseStorage, int]:
        if self._opened is None or self._opened[0] != os.getpid():
            import optuna

            with no_news():
                storage = optuna.storages.get_storage(open_storage(self.storage, is_new=False))
                study = optuna.load_study(
                    study_name=self.study, storage=storage, pruner=build_part("pruner", self.pruner)
                )
            trial_id = storage.get_trial_id_from_study_id_trial_number(study._study_id, self.trial)
            self._opened = os.getpid(), study, storage, trial_id
        return self._opened[1:]

    def _close(self) -> None:
        if self._opened is not None and self._opened[0] == os.getpid():
            close_storage(self._opened[2])
        self._opened = None


def pruning_from(trial: Mapping[str, Any]) -> Pruning:
    """The callback for a job of a study."""
    return Pruning(**trial)


def _monitor(callback: Callback) -> str | None:
    monitor = getattr(callback, "monitor", None)
    return monitor if isinstance(monitor, str) else None


def _one_an_epoch(trainer: L.Trainer) -> bool:
    every = getattr(trainer, "val_check_batch", None)
    if trainer.check_val_every_n_epoch is None or every is None:
        return False
    return bool(every == math.inf or every >= trainer.num_training_batches)
