"""Lightning's trainer with the callbacks and loggers of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lightning as L
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.utilities.model_helpers import is_overridden

from assay.build.node import build
from assay.build.trainer.monitor_mode import mode_argument
from assay.build.trainer.num_processes import is_rank
from assay.callbacks.run_log import RunLog
from assay.callbacks.seed_each_step import SeedEachStep
from assay.callbacks.without_nvml_check import WithoutNvmlCheck
from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.compose.recipe import is_chosen
from assay.errors import ConfigError
from assay.logger.run_csv import RunCSV
from assay.loop.install import MovedRun, install
from assay.loop.lightning_internals import leave_signals
from assay.loop.stop_on_signal import StopOnSignal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightning.pytorch.loggers import Logger
    from omegaconf import DictConfig


def build_trainer(config: DictConfig) -> L.Trainer:
    """Lightning's trainer with its callbacks, and without its loggers: some write to disk at once.

    Raises:
        ConfigError: A node cannot be built as it is written.
    """
    L.seed_everything(config.seed, workers=True, verbose=False)  # a callback may draw, too
    keys = [f"callbacks.{name}" for name, node in (config.get("callbacks") or {}).items() if node is not None]
    callbacks = [build(config, key, **mode_argument(config, key)) for key in keys]
    _check_told_apart(keys, callbacks)
    kinds = [type(callback).__name__ for callback in callbacks]
    run_log = RunLog(patience_is_typed=not is_chosen(config, "callbacks.early_stopping.patience"))
    stop = StopOnSignal(f"{config.run_dir}/checkpoints/last.ckpt")
    trainer: L.Trainer = build(
        config,
        "trainer",
        callbacks=[MovedRun(), SeedEachStep(config.seed), WithoutNvmlCheck(), *callbacks, run_log, stop],
        logger=False,
        # By itself Lightning asks the environment, and takes an allocation of Slurm for ranks started by it.
        plugins=[
            CheckpointFile(background=True),
            TorchElasticEnvironment() if is_rank() else LightningEnvironment(),
        ],
        enable_checkpointing=True,
        enable_progress_bar=any("ProgressBar" in kind for kind in kinds),
        enable_model_summary=any("ModelSummary" in kind for kind in kinds),
        use_distributed_sampler=False,
        default_root_dir=config.run_dir,
    )
    leave_signals(trainer)
    if type(trainer) is L.Trainer:  # one of somebody's own class may do anything with its loops
        install(trainer, config.trainer.get("micro_batch"))
    return trainer


def build_loggers(config: DictConfig) -> list[Logger]:
    """What the trainer logs to.

    Raises:
        ConfigError: A node cannot be built as it is written.
    """
    chosen = config.get("logger") or {}
    made = [build(config, f"logger.{name}") for name, node in chosen.items() if node is not None]
    if chosen.get("csv") is None:  # a run directory always has its metrics.csv
        made.insert(0, RunCSV(f"{config.run_dir}/metrics.csv"))
    return made


def _check_told_apart(keys: Sequence[str], callbacks: Sequence[L.Callback]) -> None:
    """A checkpoint holds the state of callbacks by a key that some of their settings make up."""
    known: dict[str, str] = {}
    for key, callback in zip(keys, callbacks, strict=True):
        if is_overridden("state_dict", callback, parent=L.Callback):
            other = known.setdefault(callback.state_key, key)
            if other != key:
                raise ConfigError(
                    f"has the settings of {other}, and a checkpoint could not tell the two apart",
                    key=key,
                    hint=f"leave one out: {key}=null, or let it monitor or save at another time",
                )
