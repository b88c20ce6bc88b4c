"""Reports the score of a trial after each validation, and ends the run if its Optuna pruner decides so."""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from assay.errors import AssayError, Pruned, describe_error, write_failure
from assay.record.run_record import TRIAL
from assay.targets.resolve import CallError, call

if TYPE_CHECKING:
    from collections.abc import Iterator

    import lightning as L
    import optuna


log = logging.getLogger("assay")

_TRAIN = "train/"


def make_pruning() -> Pruning | None:
    """The callback of a run that is a trial of a study; None for any other run."""
    if TRIAL in os.environ:
        return Pruning(**json.loads(os.environ[TRIAL]))
    return None


@final
class Pruning(Callback):
    """Reports a score to an Optuna study after each validation, and ends the run if its pruner decides so."""

    def __init__(self, monitor: str, storage: str, trial: int, pruner: Mapping[str, Any]) -> None:
        self.monitor = monitor
        self.storage = storage
        self.trial = trial
        self.pruner = dict(pruner)
        self._opened: tuple[optuna.Study, optuna.storages.BaseStorage, int] | None = None
        self._unreachable = False
        self._end: Pruned | None = None

    # -- when ------------------------------------------------------------------------------------------------

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._end = None

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        if not self.monitor.startswith(_TRAIN):
            self._report_score(trainer, trainer.current_epoch)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End the run; report training scores, which are only known now."""
        if self.monitor.startswith(_TRAIN) and self.monitor in trainer.callback_metrics:
            self._report_score(trainer, trainer.current_epoch - 1)
        self._raise()

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._raise()

    def _raise(self) -> None:
        if self._end is not None:
            raise self._end

    # -- what ------------------------------------------------------------------------------------------------

    def _report_score(self, trainer: L.Trainer, epoch: int) -> None:
        if self.monitor not in trainer.callback_metrics:
            names = ", ".join(sorted(trainer.callback_metrics))
            raise AssayError(
                f"{self.monitor} is not a metric of this job",
                hint=f"hydra.sweeper.objective=…; metrics: {names}",
            )
        value = float(trainer.callback_metrics[self.monitor])
        step = trainer.global_step
        where = f"step {step}"
        if _validates_each_epoch(trainer):
            step = epoch
            where = f"epoch {epoch + 1}"
        ends = False
        if trainer.is_global_zero:
            ends = self._should_prune(value, step)
        if trainer.world_size > 1:
            ends = trainer.strategy.broadcast(ends)
        if ends:
            self._end = Pruned(f"pruned at {where}: {self.monitor} was {value:.6g}")

    def _should_prune(self, value: float, step: int) -> bool:
        if self._unreachable:
            return False
        try:
            study, storage, trial_id = self._study()
            trial = storage.get_trial(trial_id)
            if trial.state.is_finished():  # for example, the study continued without this run
                return False
            if step not in trial.intermediate_values:  # a resumed run repeats steps
                storage.set_trial_intermediate_value(trial_id, step, value)
                trial = storage.get_trial(trial_id)
            with quiet_optuna():
                return bool(study.pruner.prune(study, trial))
        except (OSError, KeyError, ValueError) as error:
            if write_failure(error):
                raise
            self._unreachable = True
            why = describe_error(error.__cause__ or error)
            log.warning("the study cannot be reached, so nothing is pruned: %s", why)
            return False

    def _study(self) -> tuple[optuna.Study, optuna.storages.BaseStorage, int]:
        if self._opened is None:
            import optuna

            storage = open_storage(self.storage)
            with quiet_optuna():
                study = optuna.load_study(
                    study_name=STUDY, storage=storage, pruner=build_part("pruner", self.pruner)
                )
            trial_id = storage.get_trial_id_from_study_id_trial_number(
                study._study_id, self.trial
            )
            self._opened = study, storage, trial_id
        return self._opened


def _validates_each_epoch(trainer: L.Trainer) -> bool:
    interval = getattr(trainer, "val_check_batch", None)
    if trainer.check_val_every_n_epoch is None or interval is None:
        return False
    return bool(interval == math.inf or interval >= trainer.num_training_batches)


STUDY = "sweep"
"""Name of the one study in a file."""


def open_storage(path: str) -> optuna.storages.BaseStorage:
    """Open the file of a study: one line of JSON per event."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    with quiet_optuna():
        return JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path)))


def build_part(kind: str, node: Mapping[str, Any], **defaults: Any) -> Any:
    """Build a sampler or pruner of Optuna."""
    with quiet_optuna():
        part = _find_class(kind, str(node.get("_target_")))
        parameters = inspect.signature(part).parameters
        arguments = {
            key: _build_value(key, value) for key, value in node.items() if key != "_target_"
        }
        for key, value in defaults.items():
            if key in parameters and key in arguments:
                raise ValueError(
                    f"{part.__name__}() got multiple values for keyword argument {key!r}"
                )
            if key in parameters:
                arguments[key] = value
        try:
            return call(kind, part, **arguments)
        except CallError as error:
            raise ValueError(f"{part.__name__}: {error.reason}") from error.reason


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Silence Optuna's progress messages and its warnings about experimental parts."""
    from optuna import logging
    from optuna.exceptions import ExperimentalWarning

    before = logging.get_verbosity()
    logging.set_verbosity(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        logging.set_verbosity(before)


def _find_class(kind: str, target: str) -> Any:
    import optuna

    home, _, name = target.rpartition(".")
    modules = {"optuna.samplers": optuna.samplers, "optuna.pruners": optuna.pruners}
    # Otherwise a custom class, imported already from a trusted package.
    part = getattr(modules.get(home) or sys.modules.get(home), name, None)
    parent = optuna.samplers.BaseSampler if kind == "sampler" else optuna.pruners.BasePruner
    if not (inspect.isclass(part) and issubclass(part, parent)) or inspect.isabstract(part):
        raise ValueError(f"{target!r} is not one of Optuna's {kind}s; expected optuna.{kind}s.…")
    return part


def _build_value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping) and "_target_" in value:
        return build_part("pruner" if "pruner" in key else "sampler", value)
    return value
