"""From a composed config to the objects that train: the module of its parts, datamodule and trainer."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from omegaconf import DictConfig, open_dict

from assay.build.compatibility import check_fit, check_model, num_outputs
from assay.build.datamodule import describe, open_data, own_batches
from assay.build.model import build_model
from assay.build.monitor_mode import mode_argument
from assay.build.node import NOT_ARGUMENTS, build, build_metrics
from assay.build.trainer import build_loggers, build_trainer, check_device
from assay.checkpoint.container import plain_part
from assay.config.serialize import known
from assay.config.unread_keys import OUR_MODULE
from assay.data.data_module import DataModule
from assay.data.normalize import target_scale
from assay.data.seeded_loader import seed_loaders
from assay.targets.allowed_targets import trusted_in
from assay.targets.resolve import resolve
from assay.task.task_of import kind_of_own_outputs, task_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from assay.module import Module


def build_module(config: DictConfig, trainer: L.Trainer) -> L.LightningModule:
    """Assay's own module over the parts of a job, or somebody's own."""
    if config.module._target_ != OUR_MODULE:
        if "spec" in config:
            with open_dict(config):
                config.spec.num_outputs = num_outputs(config, None)
        # In the dtype of the run: a checkpoint is loaded before Lightning converts the weights.
        with trainer.precision_plugin.module_init_context():
            own: L.LightningModule = build(config, "module")
        kind_of_own_outputs(own)
        return own
    check_fit(config, resolve("loss", str(config.loss._target_), trusted_in(config)))
    loss = build(config, "loss")
    with open_dict(config):
        config.spec.num_outputs = num_outputs(config, loss)
    with trainer.init_module(empty_init=False):
        model, finetune = build_model(config)
    augment = build(config, "augment")
    check_model(config, model)
    module = module_of(
        config,
        *(model, loss),
        augment=augment,
        channels_last=bool(config.trainer.get("channels_last")),
        target_scale=target_scale(config.spec),
        finetune=finetune,
    )
    if config.trainer.get("compile"):
        model.compile()
    # Buffers, too: a copy that averages them is made before Lightning converts the module.
    converted: L.LightningModule = trainer.precision_plugin.convert_module(module)  # type: ignore[assignment]  # the same
    return converted


def module_of(config: DictConfig, model: nn.Module, loss: nn.Module, **more: Any) -> Module:
    """Assay's module over parts that are made, or fake."""
    parts = {
        "model": model,
        "loss": loss,
        "task": task_of(config.spec.task),
        "metrics": build_metrics(config),
    }
    module: Module = build(config, "module", **parts, **more, **build_optimization(config))
    return module


def notes_on_hyper_parameters(
    module: L.LightningModule, datamodule: L.LightningDataModule | None
) -> list[str]:
    """A note where `save_hyperparameters` has kept what a checkpoint cannot hold."""
    kept = {**getattr(datamodule, "hparams", {}), **module.hparams}
    _, dropped = plain_part(kept)
    if not dropped:
        return []
    return [
        f"checkpoints leave out the {'hyper-parameter' if len(dropped) == 1 else 'hyper-parameters'} "
        f"{', '.join(dropped)}: not plain data; what loads a run builds from its config"
    ]


def build_optimization(config: DictConfig) -> dict[str, Any]:
    """What `assay.module.Module` is told about optimizing."""
    node = config.get("scheduler") or {}
    return {
        "optimizer": build(config, "optimizer"),
        "param_groups": build(config, "param_groups"),
        "scheduler": build(config, "scheduler", **mode_argument(config, "scheduler")),
        "schedule": {key: node[key] for key in NOT_ARGUMENTS["scheduler"] if node.get(key) is not None},
    }


@dataclass(frozen=True)
class Assembly:
    """What a config stands for."""

    module: L.LightningModule
    datamodule: L.LightningDataModule
    trainer: L.Trainer
    config: DictConfig

    @functools.cached_property
    def plain(self) -> dict[str, Any]:
        """The config as plain data, as it was when this was first asked for."""
        return known(self.config)


def assemble(
    config: DictConfig,
    *,
    prepare: bool = True,
    datamodule: L.LightningDataModule | None = None,
    trainer_for: Callable[[DictConfig], L.Trainer | None] = lambda _: None,
) -> Assembly:
    """Build datamodule, module and trainer.

    The data comes first, because the other parts ask for its `spec`. Nothing is written.
    """
    check_device(config.trainer)
    torch.set_float32_matmul_precision(config.trainer.get("matmul_precision") or "highest")
    if datamodule is None:
        datamodule = open_data(config, prepare=prepare)
    describe(config, getattr(datamodule, "spec", None), own_batches(datamodule))
    if not isinstance(datamodule, DataModule):
        seed_loaders(datamodule, int(config.seed))
    trainer = trainer_for(config) or build_trainer(config)
    trainer.loggers = build_loggers(config)
    # Anew: the weights must not depend on what somebody's datamodule, callback or logger drew.
    L.seed_everything(config.seed, workers=True, verbose=False)
    return Assembly(build_module(config, trainer), datamodule, trainer, config)
