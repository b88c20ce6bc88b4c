"""Lightning's trainer with the callbacks and loggers of a job, on the device that was asked for."""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.model_helpers import is_overridden
from typing_extensions import override

from assay.assemble.node import build, mode_argument, plain_node
from assay.assemble.recipe import early_validation
from assay.assemble.trainer_options import is_rank
from assay.callbacks.progress_bar import RunLog
from assay.callbacks.seed_each_step import SeedEachStep
from assay.callbacks.unsaved_state import UnsavedState
from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.errors import ConfigError, DeviceError
from assay.logger.run_csv import RunCSV
from assay.loop.fit_loop import MovedRun, install
from assay.loop.lightning_internals import leave_signals
from assay.loop.stop_on_signal import StopOnSignal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightning.pytorch.loggers import Logger
    from omegaconf import DictConfig


def check_device(trainer: DictConfig) -> None:
    """Refuse early, in one line, what Lightning would refuse late."""
    # What is left out is what Lightning takes by itself.
    accelerator = trainer.get("accelerator", "auto")
    cuda = torch.cuda.device_count() > 0
    mps = torch.backends.mps.is_available()
    hint = "device=auto or device=cpu; `assay info` shows what is available"
    if accelerator in ("gpu", "cuda") and not cuda and not (accelerator == "gpu" and mps):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        because = ""
        if visible is not None:
            because = f": CUDA_VISIBLE_DEVICES={visible!r} leaves none"
        raise DeviceError(
            f"device: this machine has no GPU that torch can use{because}", hint=hint
        )
    if accelerator == "mps" and not mps:
        raise DeviceError(
            "device=mps: this machine has no Apple GPU that torch can use", hint=hint
        )
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not cuda and not mps)
    if on_cpu and str(trainer.get("precision")) in ("16-mixed", "16-true", "16"):
        message = "precision=fp16 needs a GPU; this run is on the CPU"
        raise DeviceError(message, hint="precision=bf16, or device=gpu")


def gpu_names() -> list[str]:
    """Names of the GPUs of this machine, as torch reports them."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


_CONVOLUTIONS = (
    *(torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d),
    *(torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d),
)


def notes_on_gpu(config: DictConfig, module: torch.nn.Module, device: torch.device) -> list[str]:
    """Note what a run on a GPU does otherwise than on a CPU, one sentence each."""
    notes: list[str] = []
    if device.type != "cuda":
        return notes
    convolves = any(isinstance(layer, _CONVOLUTIONS) for layer in module.modules())
    if convolves and not config.trainer.get("deterministic"):
        notes.append(
            "on a GPU, gradients of convolutions are summed in no fixed order, so that the same run may "
            "differ in the last digits; trainer.deterministic=true repeats it bit for bit"
        )
    uses_bfloat16 = str(config.trainer.get("precision")).startswith("bf16")
    if uses_bfloat16 and not torch.cuda.is_bf16_supported(including_emulation=False):
        notes.append("this GPU emulates bfloat16, which is slow; precision=fp16 is faster")
    return notes


_MEANT = (
    r".*is smaller than the logging interval",  # every epoch is logged anyway
    r".*does not have many workers",  # what fits in memory needs none
    r".*`srun` command is available on your system but is not used",  # the ranks need none
    r".*LeafSpec.* is deprecated",  # Lightning 2.6 with torch 2.15
    r".*Total length of `list` across ranks is zero",  # a config may ask for no validation or test subset
    r"Checkpoint directory .* exists and is not empty",  # it is the run's own
    r"Found \d+ module\(s\) in eval mode at the start",  # norms that a fine-tuning has frozen
    r".*dataloader is not resumable",  # the position is computed from the loop's progress
    r"GPU available but not used",  # device=cpu says so
    r"TensorFloat32 tensor cores .* available but not enabled",  # precision=tf32 enables them
)


_TALKATIVE = {
    "lightning.pytorch": logging.WARNING,
    "lightning.fabric": logging.WARNING,
    "torch._subclasses.fake_tensor": logging.CRITICAL,  # what fails on fake tensors is reported otherwise
}


@contextmanager
def silence_lightning() -> Iterator[None]:
    """Suppress Lightning's advertisements and its hints about intended settings."""
    levels = {name: logging.getLogger(name).level for name in _TALKATIVE}
    with warnings.catch_warnings():
        for message in _MEANT:
            warnings.filterwarnings("ignore", message=message)
        for name, level in _TALKATIVE.items():
            logging.getLogger(name).setLevel(level)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


VARIABLE = "PYTORCH_NVML_BASED_CUDA_CHECK"


@final
class WithoutNvmlCheck(Callback):
    """Takes `PYTORCH_NVML_BASED_CUDA_CHECK` away from when a run is set up until it ends."""

    # Lightning sets the variable when it is imported, so that a process can ask for GPUs and be forked
    # afterwards: torch then asks NVML in place of the CUDA runtime, which no fork survives. torch's
    # optimizers ask in each step and load NVML anew each time, which takes as long as a small step. Each
    # rank is set up after it was forked, with its device settled.

    def __init__(self) -> None:
        self._before: str | None = None

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._before = os.environ.pop(VARIABLE, self._before)

    @override
    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if self._before is not None:
            os.environ[VARIABLE] = self._before
            self._before = None

    @override
    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Put it back as it was: Lightning tears no callback down after an exception."""
        self.teardown(trainer, pl_module, "")


def trainer_nodes(config: DictConfig) -> list[Any]:
    """What a job's trainer and its callbacks are made from."""
    return [plain_node(config, key) for key in ("trainer", "callbacks")]


def build_trainer(config: DictConfig) -> L.Trainer:
    """Lightning's trainer with its callbacks, and without its loggers: some write to disk at once."""
    L.seed_everything(config.seed, workers=True, verbose=False)  # a callback may draw, too
    keys = [
        f"callbacks.{name}"
        for name, node in (config.get("callbacks") or {}).items()
        if node is not None
    ]
    callbacks = [build(config, key, **mode_argument(config, key)) for key in keys]
    check_distinct_state_keys(keys, callbacks)
    kinds = [type(callback).__name__ for callback in callbacks]
    stop = StopOnSignal(f"{config.run_dir}/checkpoints/last.ckpt")
    trainer: L.Trainer = build(
        config,
        "trainer",
        callbacks=[
            MovedRun(),
            SeedEachStep(config.seed),
            UnsavedState(),
            WithoutNvmlCheck(),
            *callbacks,
            RunLog(),
            stop,
        ],
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
        **early_validation(config),
    )
    leave_signals(trainer)
    if type(trainer) is L.Trainer:  # a custom subclass may change its loops
        install(trainer, config.trainer.get("micro_batch"))
    return trainer


def build_loggers(config: DictConfig) -> list[Logger]:
    """Build the loggers of a job."""
    chosen = config.get("logger") or {}
    loggers = [
        build(config, f"logger.{name}") for name, node in chosen.items() if node is not None
    ]
    if chosen.get("csv") is None:  # a run directory always has its metrics.csv
        loggers.insert(0, RunCSV(f"{config.run_dir}/metrics.csv"))
    return loggers


def check_distinct_state_keys(keys: Sequence[str], callbacks: Sequence[L.Callback]) -> None:
    """Refuse callbacks whose state has the same key in a checkpoint."""
    owners: dict[str, str] = {}
    for key, callback in zip(keys, callbacks, strict=True):
        if is_overridden("state_dict", callback, parent=L.Callback):
            other = owners.setdefault(callback.state_key, key)
            if other != key:
                raise ConfigError(
                    f"has the same settings as {other}, so a checkpoint could not distinguish the two",
                    key=key,
                    hint=f"leave one out: {key}=null, or let it monitor or save at another time",
                )
