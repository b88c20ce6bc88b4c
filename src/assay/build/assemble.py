"""From a composed config to the objects that train: the only place that instantiates."""

from __future__ import annotations

import functools
import re
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning.pytorch.utilities.model_helpers import is_overridden
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from assay.build.build_error import build_error
from assay.build.compatibility import check_fit, num_outputs
from assay.build.device import check_device
from assay.build.monitor_mode import mode_of
from assay.build.own_batches import own_batches
from assay.build.run_length import run_length
from assay.callbacks.run_log import RunLog
from assay.callbacks.seed_each_step import SeedEachStep
from assay.check.signatures.signature import check_signatures
from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.config.serialize import known
from assay.config.tree import written_at
from assay.config.unread_keys import OUR_MODULE
from assay.data.data_module import DataModule
from assay.data.declared import Stated
from assay.data.loading.seeded_loader import seed_loaders
from assay.data.transform.target_scale import TargetScale
from assay.error_location import one_line_of
from assay.errors import AssayError, ConfigError, DataError
from assay.logger.run_csv import RunCSV
from assay.loop.resume_point import ResumePoint
from assay.loop.stop_on_signal import StopOnSignal
from assay.metrics.direction import directions
from assay.targets.judge_name import trusted_in
from assay.targets.resolve import ready, resolve
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.build.own_batches import OwnBatches
    from assay.data.spec import Spec
    from assay.metrics.direction import Mode

# What torchvision unpacks may be anybody's: no member leads out of the folder by `..` or a link. This is the
# default from Python 3.14 on.
tarfile.TarFile.extraction_filter = staticmethod(tarfile.data_filter)

DATA_EXTRAS = ("spec",)
SCHEDULE_EXTRAS = ("interval", "frequency", "monitor")
TRAINER_EXTRAS = ("compile", "channels_last", "matmul_precision")


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
    checked: bool = False,
) -> Assembly:
    """Build datamodule, module and trainer.

    The data comes first, because the other parts ask for its `spec`. Nothing is written.

    Args:
        config: One job, without its `hydra` node.
        prepare: Let the data be downloaded; further ranks find it there.
        datamodule: What `open_data` gave for this job, where it was read already.
        checked: The job's signatures were checked before.

    Raises:
        ConfigError: A node cannot be built as it is written.
        DataError: The data cannot be read or used.
        DeviceError: This machine lacks what `device` or `precision` ask for.
    """
    check_device(config.trainer)
    if not checked:  # whether a target may be called is asked again right before each call, in any case
        check_signatures(config)
    torch.set_float32_matmul_precision(config.trainer.get("matmul_precision") or "highest")
    if datamodule is None:
        datamodule = open_data(config, prepare=prepare)
    # Anew: the weights must not depend on what somebody's datamodule drew while it read.
    L.seed_everything(config.seed, workers=True, verbose=False)
    describe(config, getattr(datamodule, "spec", None), own_batches(datamodule))
    if not isinstance(datamodule, DataModule):
        seed_loaders(datamodule, int(config.seed))
    trainer = build_trainer(config)
    module = _module(config, trainer)
    return Assembly(module, datamodule, trainer, config)


def open_data(config: DictConfig, *, prepare: bool = True) -> L.LightningDataModule:
    """Build the datamodule and let it read.

    Args:
        config: One job.
        prepare: Let the data be downloaded.

    Raises:
        ConfigError: The node cannot be built as it is written.
        DataError: The data cannot be read or used.
    """
    L.seed_everything(config.seed, workers=True, verbose=False)
    datamodule: L.LightningDataModule = build(config, "data", without=DATA_EXTRAS)
    try:
        if prepare:
            datamodule.prepare_data()
        datamodule.setup("fit")
    except (AssayError, MemoryError):
        raise
    except Exception as error:  # of somebody's own data set, transform or datamodule
        raise DataError(
            f"data: reading it fails: {one_line_of(error)}",
            hint="the same command with --debug shows the traceback",
        ) from error
    return datamodule


def open_stated(config: DictConfig) -> L.LightningDataModule:
    """The datamodule over the data as its YAML's `spec` describes it: nothing is read.

    Args:
        config: One job, whose `data` has a `spec`; changed in place.

    Raises:
        ConfigError: The description, or another key of the node, cannot be used.
        DataError: Not with so many samples.
    """
    if not isinstance(config.data.spec, DictConfig):
        raise ConfigError("a mapping was expected", key="data.spec", hint="leave it out: ~data.spec")
    stated: Any = OmegaConf.to_container(config.data.spec, resolve=True)
    try:
        source = Stated(**stated)
    except (TypeError, ValueError) as error:
        raise _of_stated(config, str(error).replace("Stated.__init__() ", "")) from error
    with open_dict(config):
        if OmegaConf.select(config, "data.transform.normalize") == "data":
            config.data.transform.normalize = None  # there are no values to take a mean of
        config.data.standardize_targets = False
    without = (*DATA_EXTRAS, "source")
    datamodule: L.LightningDataModule = _build_with(config, "data", without, source=source)
    try:
        datamodule.setup("fit")
    except DataError as error:
        counts = "num_samples" if stated.get("class_counts") is None else "class_counts"
        told = ", ".join(f"data.spec.{counts}.{part}" for part in stated[counts])
        raise DataError(f"{error.message} (by {told})", hint=error.hint) from error
    return datamodule


def _of_stated(config: DictConfig, text: str) -> ConfigError:
    """The error at the key that its text begins with, or at where that one's value comes from."""
    name, _, rest = text.partition("=")
    key = f"data.spec.{name}"
    if not re.fullmatch(r"[\w.]+", name) or OmegaConf.select(config, key) is None:
        return ConfigError(text, key="data.spec")
    return ConfigError(rest.replace(": ", " was given; ", 1), key=written_at(config, key))


def build(config: DictConfig, key: str, without: tuple[str, ...] = (), mode: str | None = None) -> Any:
    """Instantiate one node of a config.

    Args:
        config: The job.
        key: Dotted path of the node.
        without: Keys of the node that are not arguments.
        mode: What its `mode` comes to, for a node that follows a metric.

    Returns:
        The object; a `functools.partial` for `_partial_` nodes; None for an empty node.

    Raises:
        ConfigError: A target in it is not allowed, or the call failed; the message names the full key.
    """
    node = OmegaConf.select(config, key)
    if not node:
        return None
    try:
        final = ready(config, key, node, without)
        if mode is not None:
            final["mode"] = mode
        final["_convert_"] = "all"  # as a keyword Hydra would merge it: one more copy of everything
        return _plain_partial(instantiate(final))
    except (InstantiationException, OmegaConfBaseException) as error:
        raise build_error(error, config, key) from error


def _build_with(config: DictConfig, key: str, without: tuple[str, ...] = (), **objects: Any) -> Any:
    """Instantiate a node that takes finished objects, which Hydra would copy on their way through."""
    with open_dict(config):
        config[key]._partial_ = True
    try:
        partial = build(config, key, without)
    finally:
        with open_dict(config):
            del config[key]._partial_
    try:
        return partial(**objects)
    except AssayError:
        raise
    except Exception as error:
        raise build_error(error, config, key) from error


def _plain_partial(built: Any) -> Any:
    # Hydra's deferred target costs about 130 µs a call, a functools.partial next to nothing.
    if type(built).__name__ == "_DeferredTarget":
        return functools.partial(built.func, *built.args, **built.keywords)
    return built


def describe(config: DictConfig, spec: Spec | None, own: OwnBatches | None = None) -> None:
    """Put what the data tells into the config as node `spec`.

    Args:
        config: The job; changed in place.
        spec: Of the data; None where a datamodule of somebody's own tells nothing.
        own: What the loaders of such a datamodule say.

    Raises:
        ConfigError: There is none, and assay's own module needs it.
    """
    if spec is not None:
        with open_dict(config):
            config.spec = {**spec.as_config(), **(own.as_config() if own is not None else {})}
            length = run_length(config, spec.num_train)
            config.spec.steps_per_epoch = length.steps_per_epoch if length.is_known else None
            config.spec.total_steps = length.total_steps
    elif config.module._target_ == OUR_MODULE:
        raise ConfigError(
            "a datamodule needs a `spec` attribute after setup()", key="data", hint="see assay.data.spec.Spec"
        )


def _module(config: DictConfig, trainer: L.Trainer) -> L.LightningModule:
    if config.module._target_ != OUR_MODULE:
        if "spec" in config:
            with open_dict(config):
                config.spec.num_outputs = num_outputs(config, None)
        own: L.LightningModule = build(config, "module")
        return own
    check_fit(config, resolve("loss", str(config.loss._target_), trusted_in(config)))
    loss = build(config, "loss")
    with open_dict(config):
        config.spec.num_outputs = num_outputs(config, loss)
    with trainer.init_module(empty_init=False):
        model = build(config, "model")
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    module: L.LightningModule = _build_with(
        config,
        "module",
        model=model,
        task=task_of(config.spec.task),
        loss=loss,
        metrics=metrics,
        augment=build(config, "augment"),
        channels_last=bool(config.trainer.get("channels_last")),
        target_scale=TargetScale(config.spec.target_mean, config.spec.target_std),
        **build_optimization(config),
    )
    if config.trainer.get("compile"):
        model.compile()
    return module


def build_optimization(config: DictConfig) -> dict[str, Any]:
    """What `assay.module.Module` is told about optimizing.

    Args:
        config: The job, with its `spec`.

    Returns:
        `optimizer`, `param_groups`, `scheduler` and `schedule`.

    Raises:
        ConfigError: A node cannot be built as it is written.
    """
    node = config.get("scheduler") or {}
    return {
        "optimizer": build(config, "optimizer"),
        "param_groups": build(config, "param_groups"),
        "scheduler": build(config, "scheduler", without=SCHEDULE_EXTRAS, mode=_mode(config, "scheduler")),
        "schedule": {key: value for key in SCHEDULE_EXTRAS if (value := node.get(key)) is not None},
    }


def known_directions(config: DictConfig) -> dict[str, Mode]:
    """Which way each score of a job is better, as far as its metrics say it.

    Args:
        config: The job, with its `spec`.
    """
    if config.module._target_ != OUR_MODULE:
        return {}
    found: dict[str, Mode] = {}
    for stage, name in (("train", "train"), ("val", "eval"), ("test", "eval")):
        found |= directions(build(config, f"metrics.{name}"), stage)
    return found


def _mode(config: DictConfig, key: str) -> Mode | None:
    return mode_of(config, key, lambda: known_directions(config))


def build_trainer(config: DictConfig, *, loggers: bool = True) -> L.Trainer:
    """Lightning's trainer with its callbacks and loggers.

    Args:
        config: The job, with its `spec`.
        loggers: Make them, too; some write to disk at once.

    Raises:
        ConfigError: A node cannot be built as it is written.
    """
    keys = [f"callbacks.{name}" for name, node in (config.get("callbacks") or {}).items() if node is not None]
    callbacks = [build(config, key, mode=_mode(config, key)) for key in keys]
    _check_told_apart(keys, callbacks)
    chosen = config.get("logger") or {}
    made = [build(config, f"logger.{name}") for name, node in chosen.items() if loggers and node is not None]
    if chosen.get("csv") is None:  # a run directory always has its metrics.csv
        made.insert(0, RunCSV(f"{config.run_dir}/metrics.csv"))
    kinds = [type(callback).__name__ for callback in callbacks]
    stop = StopOnSignal(f"{config.run_dir}/checkpoints/last.ckpt")
    trainer: L.Trainer = _build_with(
        config,
        "trainer",
        without=TRAINER_EXTRAS,
        callbacks=[ResumePoint(), SeedEachStep(config.seed), *callbacks, RunLog(), stop],
        logger=made if loggers else False,
        plugins=[CheckpointFile(background=True)],
        enable_checkpointing=True,
        enable_progress_bar=any("ProgressBar" in kind for kind in kinds),
        enable_model_summary=any("ModelSummary" in kind for kind in kinds),
        use_distributed_sampler=False,
        default_root_dir=config.run_dir,
    )
    return trainer


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


def model_only(config: DictConfig, run_dir: Path) -> torch.nn.Module:
    """The untrained model of a finished run's config.

    Args:
        config: A run's `config.yaml`.
        run_dir: For messages.

    Raises:
        ConfigError: The config has no model of its own.
    """
    model = build(config, "model")
    if model is None:
        raise ConfigError(f"{run_dir} has no model node", key="model")
    built: torch.nn.Module = model
    return built
