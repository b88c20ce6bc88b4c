"""The module of a job, from model, loss, metrics, augmentation, optimizer and scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, open_dict

from assay.build.compatibility import check_fit, check_parts, num_outputs
from assay.build.model import build_model
from assay.build.monitor_mode import mode_argument
from assay.build.node import NOT_ARGUMENTS, build
from assay.checkpoint.container import plain_part
from assay.config.unread_keys import OUR_MODULE
from assay.data.normalize import target_scale
from assay.targets.allowed_targets import trusted_in
from assay.targets.resolve import resolve
from assay.task.answers import kind_of_own_outputs
from assay.task.task_of import task_of

if TYPE_CHECKING:
    import lightning as L


def build_module(config: DictConfig, trainer: L.Trainer) -> L.LightningModule:
    """Assay's own module over the parts of a job, or somebody's own.

    Args:
        config: The job, with its `spec`; the number of outputs that the model needs is added to that.
        trainer: Says of what dtype, and where, the weights are made.

    Raises:
        ConfigError: A node cannot be built as it is written, or the parts do not go together.
    """
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
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    augment = build(config, "augment")
    check_parts(config, model, augment)
    module: L.LightningModule = build(
        config,
        "module",
        model=model,
        task=task_of(config.spec.task),
        loss=loss,
        metrics=metrics,
        augment=augment,
        channels_last=bool(config.trainer.get("channels_last")),
        target_scale=target_scale(config.spec),
        finetune=finetune,
        **build_optimization(config),
    )
    if config.trainer.get("compile"):
        model.compile()
    # Buffers, too: a copy that averages them is made before Lightning converts the module.
    converted: L.LightningModule = trainer.precision_plugin.convert_module(module)  # type: ignore[assignment]  # the same
    return converted


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
    """What `assay.module.Module` is told about optimizing.

    Returns:
        `optimizer`, `param_groups`, `scheduler` and `schedule`.

    Raises:
        ConfigError: A node cannot be built as it is written.
    """
    node = config.get("scheduler") or {}
    return {
        "optimizer": build(config, "optimizer"),
        "param_groups": build(config, "param_groups"),
        "scheduler": build(config, "scheduler", **mode_argument(config, "scheduler")),
        "schedule": {key: node[key] for key in NOT_ARGUMENTS["scheduler"] if node.get(key) is not None},
    }
