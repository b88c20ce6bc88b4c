"""From a composed config to the objects that train: datamodule, trainer, and the module of its parts."""

from __future__ import annotations

import functools
import tarfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import nn

from assay.assemble.model import (
    build_model,
    check_fit,
    equal_blocks,
    notes_on_model,
    num_outputs,
    pretrained_inputs,
    takes_codes,
)
from assay.assemble.node import (
    NOT_ARGUMENTS,
    build,
    build_error,
    build_metrics,
    mode_argument,
    plain_node,
)
from assay.assemble.recipe import balance_loss, choose_recipe, notes_on_length, notes_on_pictures
from assay.assemble.trainer import build_loggers, build_trainer, check_device, trainer_nodes
from assay.checkpoint.checkpoint_file import serializable_part
from assay.config.serialize import copy_of, to_resolved_dict
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.core.data_module import DataModule
from assay.data.core.normalize import target_scale
from assay.data.core.seeded_loader import seed_loaders
from assay.errors import AssayError, ConfigError, DataError, describe_error, is_users_class
from assay.targets.resolve import resolve_class
from assay.task.task_of import custom_output_kind, task_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.data.core.spec import Spec
    from assay.finetune.interface import FineTuning
    from assay.module import Module


# Archives that torchvision unpacks are untrusted: no member leaves the folder by `..` or a link. This is the
# default from Python 3.14 on.
tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)


def open_data(config: DictConfig, *, prepare: bool = True) -> L.LightningDataModule:
    """Build the datamodule and let it read."""
    L.seed_everything(config.seed, workers=True, verbose=False)
    arguments: dict[str, Any] = {}
    if config.data._target_ == OUR_DATA:
        arguments = {
            "pretrained_inputs": pretrained_inputs(config),
            "takes_codes": takes_codes(config),
        }
    datamodule: L.LightningDataModule = build(config, "data", **arguments)
    try:
        if prepare:
            datamodule.prepare_data()
        datamodule.setup("fit")
    except (AssayError, MemoryError):
        raise
    except ModuleNotFoundError as error:
        raise build_error(error, config, "data") from error
    except Exception as error:  # raised by a custom data set, transform or datamodule
        raise DataError(
            f"data: cannot be read: {describe_error(error)}",
            hint="the same command with --debug shows the traceback",
        ) from error
    return datamodule


def add_spec(
    config: DictConfig, spec: Spec | None, own: Mapping[str, int | None] | None = None
) -> None:
    """Write what the data tells, and the recipe that follows from it, into the config as node `spec`."""
    if spec is not None:
        with open_dict(config):
            config.spec = {**spec.as_config(), **(own or {})}
            balance_loss(config)
            config.spec.update(asdict(choose_recipe(config)))
    elif config.module._target_ == OUR_MODULE:
        raise ConfigError(
            "a datamodule needs a `spec` attribute after setup()",
            key="data",
            hint="see assay.data.core.spec.Spec",
        )


def add_outputs(config: DictConfig) -> None:
    """Write into node `spec` how many outputs a model needs, which data and loss decide together."""
    loss = None
    if config.module._target_ == OUR_MODULE:
        loss = resolve_class("loss", config.loss)
        check_fit(config, loss)
    with open_dict(config):
        config.spec.num_outputs = num_outputs(config, loss)


def settle(
    config: DictConfig, spec: Spec | None, own: Mapping[str, int | None] | None = None
) -> DictConfig:
    """The job with all that follows from its data, in a copy that nothing changes any more."""
    settled = copy_of(config)
    add_spec(settled, spec, own)
    if "spec" in settled:
        add_outputs(settled)
    OmegaConf.set_readonly(settled, True)
    return settled


def custom_batches(datamodule: L.LightningDataModule) -> dict[str, int | None]:
    """Number and size of the batches of a custom datamodule, for node `spec`; nothing is read."""
    if isinstance(datamodule, DataModule):
        return {}
    try:
        with torch.random.fork_rng(devices=[]):
            given: Any = datamodule.train_dataloader()
            loaders = given
            if not isinstance(given, CombinedLoader):
                loaders = CombinedLoader(given, "max_size_cycle")
            counts = [sized_len(loader) for loader in loaders.flattened]
            first: Any = loaders.flattened[0]
            sampler = getattr(first, "batch_sampler", None)
            size = getattr(first, "batch_size", None) or getattr(sampler, "batch_size", None)
    except Exception:  # it may need the trainer, or what the run makes first
        return {"train_batches": None, "train_batch_size": None}
    known_counts = [count for count in counts if count is not None]
    least = max
    if loaders._mode == "min_size":
        least = min
    count = None
    if known_counts and len(known_counts) == len(counts):
        count = least(known_counts)
    known_size = None
    if isinstance(size, int) and size > 0:
        known_size = size
    return {"train_batches": count, "train_batch_size": known_size}


def build_module(
    config: DictConfig, trainer: L.Trainer, judged: Mapping[str, Any] | None = None
) -> L.LightningModule:
    """Build assay's module from the parts of a job, or a custom LightningModule."""
    if config.module._target_ != OUR_MODULE:
        # In the dtype of the run: a checkpoint is loaded before Lightning converts the weights.
        with trainer.precision_plugin.module_init_context():
            custom: L.LightningModule = build(config, "module")
        custom_output_kind(custom)
        return custom
    parts = dict(judged or {})
    if "loss" not in parts:
        parts |= build_objective(config)
    if "optimizer" not in parts:
        parts |= build_optimization(config)
    # The weights must not depend on what a custom datamodule, callback, logger or part drew.
    L.seed_everything(config.seed, workers=True, verbose=False)
    with trainer.init_module(empty_init=False):
        model, finetune = build_model(config)
    module = assemble_module(
        config,
        model,
        parts,
        channels_last=bool(config.trainer.get("channels_last")),
        target_scale=target_scale(config.spec),
        finetune=finetune,
    )
    how = config.trainer.get("compile")
    if how == "blocks":
        for block in equal_blocks(model):
            block.compile()
    elif how is True:
        model.compile()
    elif how:
        model.compile(mode=how)
        module.uses_cuda_graphs = how in ("reduce-overhead", "max-autotune")
    # Buffers, too: a copy that averages them is made before Lightning converts the module.
    converted: L.LightningModule = trainer.precision_plugin.convert_module(module)  # type: ignore[assignment]  # the same
    return converted


def assemble_module(
    config: DictConfig, model: nn.Module, parts: Mapping[str, Any], **more: Any
) -> Module:
    """Build assay's module from a model and the other parts, real or fake."""
    task = task_of(config.spec.task)
    module: Module = build(config, "module", model=model, task=task, **parts, **more)
    return module


OBJECTIVE = ("metrics", "loss", "augment")
OPTIMIZATION = ("optimizer", "param_groups", "scheduler")


def part_nodes(
    config: DictConfig, names: Iterable[str] = (*OBJECTIVE, *OPTIMIZATION)
) -> dict[str, Any]:
    """What the parts of a job are made from, apart from the model: those that were judged train."""
    return {name: plain_node(config, name) for name in names}


def build_objective(config: DictConfig) -> dict[str, Any]:
    """Arguments of `assay.module.Module` that say what is to be learnt."""
    L.seed_everything(config.seed, workers=True, verbose=False)  # a custom part may draw
    return {
        "metrics": build_metrics(config),
        "loss": build(config, "loss"),
        "augment": build(config, "augment"),
    }


def notes_on_parts(
    config: DictConfig, model: nn.Module, finetune: FineTuning | None
) -> list[str]:
    """Notes on assay's own module with these parts, one sentence each."""
    return [
        *notes_on_length(config),
        *notes_on_pictures(config),
        *notes_on_model(config, finetune, model),
        *notes_on_unregistered(model),
    ]


def notes_on_unregistered(model: nn.Module) -> list[str]:
    """Note layers that are not trained, and tensors that no checkpoint holds, in a custom model."""
    registered = {id(one) for one in (*model.modules(), *model.parameters(), *model.buffers())}
    layers, tensors = [], []
    for module in model.modules():
        if not is_users_class(type(module)):
            continue
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            within = value.values() if isinstance(value, dict) else value
            items = list(within) if isinstance(value, list | tuple | dict) else [value]
            full_name = f"{type(module).__name__}.{name}"
            lost = [one for one in items if id(one) not in registered]
            if any(isinstance(one, nn.Module | nn.Parameter) for one in lost):
                layers.append(full_name)
            elif any(isinstance(one, torch.Tensor) for one in lost):
                tensors.append(full_name)
    notes = []
    if layers:
        notes.append(
            f"model: {', '.join(layers)} is not trained: keep layers in a torch.nn.ModuleList or ModuleDict, "
            "parameters in a ParameterList or ParameterDict"
        )
    if tensors:
        notes.append(
            f"model: {', '.join(tensors)} is in no checkpoint: self.register_buffer keeps a tensor"
        )
    return notes


def notes_on_hyper_parameters(
    module: L.LightningModule, datamodule: L.LightningDataModule | None
) -> list[str]:
    """Note hyper-parameters that a checkpoint cannot store."""
    hyper_parameters = {**getattr(datamodule, "hparams", {}), **module.hparams}
    _, dropped = serializable_part(hyper_parameters)
    if not dropped:
        return []
    noun = "hyper-parameters"
    if len(dropped) == 1:
        noun = "hyper-parameter"
    return [
        f"checkpoints leave out the {noun} "
        f"{', '.join(dropped)}: they are not plain data, and a run is loaded from its config"
    ]


def build_optimization(config: DictConfig) -> dict[str, Any]:
    """Arguments of `assay.module.Module` for optimization."""
    node = config.get("scheduler") or {}
    return {
        "optimizer": build(config, "optimizer"),
        "param_groups": build(config, "param_groups"),
        "scheduler": build(config, "scheduler", **mode_argument(config, "scheduler")),
        "schedule": {
            key: node[key] for key in NOT_ARGUMENTS["scheduler"] if node.get(key) is not None
        },
    }


@dataclass(frozen=True, eq=False)
class Assembly:
    """The objects that a config describes."""

    module: L.LightningModule
    datamodule: L.LightningDataModule
    trainer: L.Trainer
    config: DictConfig

    @property
    def callbacks(self) -> list[L.Callback]:
        """The trainer's own list."""
        return self.trainer.callbacks  # type: ignore[attr-defined, no-any-return]  # a plain attribute

    @property
    def holds_whole_model(self) -> bool:
        """Whether this process alone can run the module; other strategies hold shards of it."""
        return isinstance(self.trainer.strategy, SingleDeviceStrategy | DDPStrategy)

    @functools.cached_property
    def plain(self) -> dict[str, Any]:
        """The config as plain data, as of the first access."""
        return to_resolved_dict(self.config)


def assemble(
    config: DictConfig,
    *,
    prepare: bool = True,
    datamodule: L.LightningDataModule | None = None,
    trainer: tuple[L.Trainer, Any] | None = None,
    parts: tuple[Mapping[str, Any], Any] | None = None,
) -> Assembly:
    """Build datamodule, module and trainer, or take those of the check; nothing is written.

    Trainer and parts come with the nodes that they were made from.
    """
    # The data comes first, because the other parts ask for its `spec`.
    check_device(config.trainer)
    torch.set_float32_matmul_precision(config.trainer.get("matmul_precision") or "highest")
    if datamodule is None:
        datamodule = open_data(config, prepare=prepare)
    config = settle(config, getattr(datamodule, "spec", None), custom_batches(datamodule))
    if not isinstance(datamodule, DataModule):
        seed_loaders(datamodule, int(config.seed))
    if trainer and trainer[1] == trainer_nodes(config):
        built = trainer[0]
    else:
        built = build_trainer(config)
    built.loggers = build_loggers(config)
    L.seed_everything(config.seed, workers=True, verbose=False)
    judged = None
    if parts and parts[1] == part_nodes(config):
        judged = parts[0]
    return Assembly(build_module(config, built, judged), datamodule, built, config)
