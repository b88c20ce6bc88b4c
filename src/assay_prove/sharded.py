"""What a model in shards does not go with, and what each of its devices holds: without any of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch.distributed.device_mesh import init_device_mesh

from assay.assemble.trainer_options import is_sharded, world_size
from assay.config.serialize import value_of
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.errors import ConfigError
from assay.targets.resolve import require
from assay.task.task_of import task_of
from assay.torch_internals import begin_fake_world
from assay_prove.fit import classes_in
from assay_prove.step import StepError, build_fake_module, take_step

if TYPE_CHECKING:
    import lightning as L
    from omegaconf import DictConfig

    from assay.check.report import Memory
    from assay.torch_internals import FakeTensorMode
    from assay_prove.step import Batch, TriedParts


_PRECISIONS = ("32-true", "32", "bf16-mixed", "bf16", "bf16-true")


def check_sharded(config: DictConfig) -> None:
    """Refuse what would be wrong or wait for ever where each device has a shard of the model."""
    if not is_sharded(config.trainer):
        return
    trainer = config.trainer
    require("device", "fsdp2", "safetensors")
    accelerator = trainer.get("accelerator")
    task = None
    if config.get("spec"):
        task = task_of(config.spec.task)
    on_mps = accelerator == "mps" or (accelerator == "auto" and torch.backends.mps.is_available())
    no_gpu = accelerator == "cpu" or not torch.cuda.is_available()
    _refuse(on_mps, "trainer.accelerator", "Apple's GPU cannot be one of several devices", "cpu")
    _refuse(
        str(trainer.get("precision") or "32-true") not in _PRECISIONS,
        "trainer.precision",
        "shards are trained in single precision or bfloat16",
        "bf16-mixed",
    )
    _refuse(
        bool(trainer.strategy.get("cpu_offload")) and no_gpu,
        "trainer.strategy.cpu_offload",
        "there is no GPU: shards lie in the CPU's memory already",
    )
    _refuse(bool(trainer.get("compile")), "trainer.compile", "a model in shards is not compiled")
    _refuse(
        bool(trainer.get("sync_batchnorm")),
        "trainer.sync_batchnorm",
        "all processes have the statistics of the first one",
    )
    frozen = bool(config.get("finetune"))
    _refuse(frozen, "finetune", "a model is sharded before anything is frozen or added", "none")
    lbfgs = value_of(config, "optimizer._target_") == "torch.optim.LBFGS"
    _refuse(lbfgs, "optimizer", "LBFGS needs all weights in one place", "adamw")
    _refuse(
        task is not None and (task.reconstructs or task.compares_views),
        "device",
        "this task uses parts of the model alone, which then are in shards",
        "ddp",
    )
    for key, kind in classes_in(config):
        _refuse(
            issubclass(kind, WeightAveraging),
            key,
            "an average is a whole copy of the model, and no device has it whole",
            "null",
        )


def _refuse(wrong: bool, key: str, message: str, instead: str = "false") -> None:
    if wrong:
        raise ConfigError(f"{message} (device=fsdp2)", key=key, hint=f"{key}={instead}")


def check_shares(config: DictConfig) -> None:
    """Refuse a custom module whose processes would evaluate different numbers of batches, and wait."""
    if config.data.get("_target_") != OUR_DATA or config.module._target_ == OUR_MODULE:
        return
    spec = config.get("spec") or {}
    processes = world_size(config)
    size = int(config.data.eval_batch_size)
    for subset in ("val", "test"):
        samples: Any = spec.get(f"num_{subset}") or 0
        fewest = samples // processes
        most = -(-samples // (size * processes))
        if samples and fewest < most:
            hint = f"trainer.devices={samples}"
            if fewest:
                hint = "data.eval_batch_size=2"
            raise ConfigError(
                f"{processes} processes cannot share {samples:,} {subset} samples so that each has as many "
                "batches, which a custom LightningModule needs",
                key=hint.partition("=")[0],
                hint=hint,
            )


def memory_in_shards(
    parts: TriedParts,
    batch: Batch,
    trainer: L.Trainer,
    mode: FakeTensorMode,
) -> Memory:
    """What a step needs on each of several devices, none of which has to be there."""
    config = parts.config
    strategy: Any = trainer.strategy
    hook = sys.excepthook
    module = build_fake_module(parts, mode)
    begin_fake_world(world_size(config))
    try:
        mesh = init_device_mesh("cpu", (world_size(config),))
        with mode:
            strategy.sharding(mesh).module(module)
        return take_step(module, batch, parts.precision, config.model, mode).memory
    except StepError as error:
        raise ConfigError(
            f"in shards a training step fails: {error}",
            key="device",
            hint="device=ddp, or a model that shards itself in configure_model(mesh)",
        ) from error
    finally:
        torch.distributed.destroy_process_group()
        sys.excepthook = hook  # torch's own would call this process a rank


def in_shards(config: DictConfig) -> bool:
    """Whether several processes will share a model, whose shards can be told apart in this one."""
    return (
        is_sharded(config.trainer)
        and world_size(config) > 1
        and not torch.distributed.is_initialized()
    )
