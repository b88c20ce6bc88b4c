"""From a composed config to the objects that train."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lightning as L
import torch

from assay.build.datamodule import describe, open_data, own_batches
from assay.build.module import build_module
from assay.build.trainer import build_loggers, build_trainer, check_device
from assay.config.serialize import known
from assay.data.data_module import DataModule
from assay.data.seeded_loader import seed_loaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from omegaconf import DictConfig


@dataclass(frozen=True)
class Assembly:
    """What a config stands for.

    Attributes:
        module: What is trained.
        datamodule: What it is trained on.
        trainer: What trains it.
        config: The config with its `spec` node filled in.
    """

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

    Args:
        config: One job, without its `hydra` node.
        prepare: Let the data be downloaded; further ranks find it there.
        datamodule: What `open_data` gave for this job, where it was read already.
        trainer_for: Gives what `build_trainer` gave for this job with its `spec`, where it was built already.

    Raises:
        ConfigError: A node cannot be built as it is written.
        DataError: The data cannot be read or used.
        DeviceError: This machine lacks what `device` or `precision` ask for.
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
