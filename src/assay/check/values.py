"""Values and paths that no run can use, refused before torch is imported: alone, and with each other."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta
from omegaconf import DictConfig, ListConfig, OmegaConf

from assay.assemble.trainer_options import is_distributed, is_stopped, is_unbounded
from assay.config.omegaconf_internals import parent_of
from assay.config.serialize import LARGEST_SEED, is_number, is_whole, value_of
from assay.config.tree import places, source_key, split_key, target_nodes
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.core.options import NAMES, check_limits
from assay.data.core.source_files import SourcePath, check_path, missing_path_error
from assay.data.core.source_info import info_of
from assay.errors import ConfigError
from assay.record.run_record import no_run_error
from assay.record.scores import BASELINES
from assay.rooms import ROOMS
from assay.targets.annotation import as_typed, check_value

if TYPE_CHECKING:
    from collections.abc import Mapping


_LIBRARIES = ("torch", "torchvision", "torchmetrics", "lightning", "assay", *ROOMS)
MICRO_BATCH = "trainer.micro_batch"
WHOLE_BATCH = f"{MICRO_BATCH}=null"

_COUNT = Annotated[int, Meta(ge=1)]
_NOT_NEGATIVE = Annotated[float, Meta(ge=0)]
_BELOW_ONE = Annotated[float, Meta(ge=0, lt=1)]
SEED = Annotated[int, Meta(ge=0, le=LARGEST_SEED)]
_KEPT = Annotated[int, Meta(ge=0, le=1000)]
_SOME_BATCHES = Annotated[int, Meta(ge=1)] | Annotated[float, Meta(gt=0, le=1)]
LIMITS: Mapping[str, Mapping[str, Any]] = {
    "optimizer": {
        "lr": Annotated[float, Meta(gt=0, le=100)],
        **dict.fromkeys(("momentum", "alpha"), _BELOW_ONE),
        **dict.fromkeys(("max_iter", "max_eval", "history_size", "ns_steps"), _COUNT),
    },
    "scheduler": {
        **dict.fromkeys(
            ("T_0", "T_max", "T_mult", "milestones", "epochs", "steps_per_epoch"), _COUNT
        ),
        **dict.fromkeys(("step_size", "step_size_up", "step_size_down"), _COUNT),
        **dict.fromkeys(("total_iters", "total_steps"), _COUNT),
        **dict.fromkeys(("cooldown", "patience"), Annotated[int, Meta(ge=0)]),
        "gamma": Annotated[float, Meta(gt=0)],
        "last_epoch": Annotated[int, Meta(le=-1)],
    },
    "callbacks": {
        "patience": _NOT_NEGATIVE,
        "decay": _BELOW_ONE,
        **dict.fromkeys(
            ("update_every_n_steps", "every_n_train_steps", "every_n_epochs"), _COUNT
        ),
    },
    "model": dict.fromkeys(("dropout", "attention_dropout", "stochastic_depth_prob"), _BELOW_ONE),
    "data": dict.fromkeys(("size", "image_size"), _COUNT),
}
"""By group and argument: values that constructors of known libraries accept although they are useless."""
_TRAINER: Mapping[str, Any] = {
    **dict.fromkeys(
        ("accumulate_grad_batches", "check_val_every_n_epoch", "log_every_n_steps"), _COUNT
    ),
    "limit_train_batches": _SOME_BATCHES,
    "val_check_interval": _SOME_BATCHES | str | dict[str, float],
    "gradient_clip_val": _NOT_NEGATIVE,
    "devices": Annotated[int, Meta(ge=-1, le=10_000)] | str | list[int],
    "profiler": str | dict[str, Any],
    "matmul_precision": Literal["highest", "high", "medium"],
    "num_nodes": Annotated[int, Meta(ge=1, le=10_000)],
    "timeout_s": Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)],
    "micro_batch": _COUNT | Literal["auto"],
    "compile": bool | Literal["blocks", "reduce-overhead", "max-autotune"],
    "channels_last": bool,
}
_NOT_HERE = {
    "barebones": "it leaves out checkpoints and metrics; trainer.profiler=simple shows where time goes",
    "fast_dev_run": "debug=one_batch tries one batch of everything, debug=small ten",
    "overfit_batches": "debug=overfit trains on one batch repeatedly",
    "model_registry": "leave it out: checkpoints are uploaded nowhere",
}
"""Arguments of Lightning's that end without a trained model, or do nothing, with what to type."""
_OTHERS: Mapping[str, Any] = {
    "baseline": Literal["auto", "none", *BASELINES],
    "optimizer.fused": bool | Literal["auto"],
    "scheduler.frequency": _COUNT,
    "scheduler.interval": Literal["step", "epoch"],
    "tags": list[str | int | float],
    **dict.fromkeys(("predictions.max_megabytes", "predictions.num_samples"), _KEPT),
    **dict.fromkeys(("data.seed", "data.split.seed"), SEED),
}


def check_values(config: DictConfig) -> None:
    """Refuse values that no run can use, whatever else was chosen."""
    check_value("seed", OmegaConf.select(config, "seed"), SEED)
    for key, kind in _OTHERS.items():
        if (value := value_of(config, key)) is not None:
            check_value(key, value, kind)
    name = value_of(config, "name")
    if not (is_number(name) or isinstance(name, str)) or not str(name).strip():
        raise ConfigError(
            f"expected a name, got {as_typed(name)}", key="name", hint="name=my_run"
        )
    if str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau"):
        monitor = value_of(config, "scheduler.monitor")
        check_value("scheduler.monitor", monitor, Annotated[str, Meta(min_length=1)])
    if value_of(config, "data._target_") == OUR_DATA:
        check_limits({name: value_of(config, f"data.{name}") for name in NAMES})
    check_numbers(config)
    check_trainer(config)


def check_numbers(config: DictConfig) -> None:
    """Refuse numbers with which a class of a known library does nothing, or nothing that anyone means."""
    for entry in places(config):
        value = entry.value
        # What is quick comes first: OmegaConf is slow to say that a key is missing.
        if not is_number(value):
            continue
        place = entry.parent
        name = entry.name
        if isinstance(place, ListConfig):
            place = parent_of(place)
            name = split_key(entry.key)[-2]
        if not isinstance(place, DictConfig) or "_target_" not in place:
            continue
        if str(place.get("_target_")).partition(".")[0] not in _LIBRARIES:
            continue
        key = source_key(config, entry.key)
        group = entry.key.partition(".")[0]
        kind = LIMITS.get(group, {}).get(str(name))
        if kind is not None:
            check_value(key, value, kind)
        # Infinity has a meaning for activations.
        if math.isnan(value) or (math.isinf(value) and (group != "model" or kind is not None)):
            raise ConfigError(
                f"expected a finite number, got {value}", key=key, hint=f"{key}=0.1"
            )


def check_trainer(config: DictConfig) -> None:
    """Refuse values with which Lightning's trainer fails late, hangs, or finishes without having trained."""
    node = config.get("trainer")
    if not isinstance(node, DictConfig):
        return
    values = {name: value_of(config, f"trainer.{name}") for name in map(str, node)}
    for name, kind in _TRAINER.items():
        if values.get(name) is not None:
            check_value(f"trainer.{name}", values[name], kind)
    devices = values.get("devices")
    if isinstance(devices, str) and not re.fullmatch(r"auto|-1|\d+(,\d+)*,?", devices):
        expected = "a number of devices, their indices, or auto"
        raise ConfigError(
            f"expected {expected}, got {devices!r}",
            key="trainer.devices",
            hint="trainer.devices=1",
        )
    for name, instead in _NOT_HERE.items():
        if values.get(name):
            raise ConfigError(
                "assay does not use this argument", key=f"trainer.{name}", hint=instead
            )
    if (values.get("num_nodes") or 1) > 1 and not is_distributed(values):
        raise ConfigError(
            f"expected a distributed strategy, because trainer.num_nodes={values['num_nodes']}",
            key="trainer.strategy",
            hint="device=ddp for the GPUs of each node, or device=ddp_cpu",
        )
    _check_length(config, values)
    if values.get("check_val_every_n_epoch", 1) is None and not is_whole(
        values.get("val_check_interval")
    ):
        raise ConfigError(
            "expected a number of batches, because trainer.check_val_every_n_epoch is null",
            key="trainer.val_check_interval",
            hint="trainer.val_check_interval=100, or trainer.check_val_every_n_epoch=1",
        )
    _check_micro_batch(config, values)


def _check_length(config: DictConfig, values: Mapping[str, Any]) -> None:
    for name in ("max_epochs", "max_steps"):
        if values.get(name) == 0:
            message = "expected at least 1, or -1 for no end, got 0"
            raise ConfigError(message, key=f"trainer.{name}", hint=f"trainer.{name}=10")
    if values.get("max_time") is None and is_unbounded(values) and not is_stopped(config):
        raise ConfigError(
            "the run would never end: neither max_epochs, max_steps nor max_time is set",
            key="trainer.max_epochs",
            hint="trainer.max_epochs=30, trainer.max_time=00:01:00:00, or callbacks=[default,early_stopping]",
        )


def _check_micro_batch(config: DictConfig, values: Mapping[str, Any]) -> None:
    """Refuse micro-batches where assay does not take the steps, and LBFGS with what changes its loss."""
    size = values.get("micro_batch")
    accumulated = values.get("accumulate_grad_batches")
    key = MICRO_BATCH
    message = ""
    hint = WHOLE_BATCH
    if accumulated not in (None, 1) and is_lbfgs(config):
        key = "trainer.accumulate_grad_batches"
        hint = "a larger data.batch_size"
        message = f"expected 1 with LBFGS, which computes the loss several times per step, got {accumulated}"
    elif size is not None and values.get("_target_") != "lightning.Trainer":
        message = "a custom trainer takes its steps itself"
    elif size is not None and OmegaConf.select(config, "module._target_") not in (
        None,
        OUR_MODULE,
    ):
        message = "a custom LightningModule takes its steps itself"
    elif size == "auto" and is_lbfgs(config):
        message = "LBFGS computes the loss several times per step"
        hint = f"{MICRO_BATCH}=32"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def is_lbfgs(config: DictConfig) -> bool:
    """Whether the optimizer asks for the loss and its gradient several times in a step."""
    return str(value_of(config, "optimizer._target_")).endswith(".LBFGS")


_TORCHVISION = SourcePath("root", "the files of the data set", downloads=False)
"""Its data sets download where they are told to."""


def check_data_root(config: DictConfig) -> None:
    """Refuse paths that do not exist or are of the wrong kind."""
    for key, node in target_nodes(config):
        target = str(node.get("_target_"))
        try:
            if target == "assay.load":
                _check_run(f"{key}.run", _path(f"{key}.run", node, "run"))
            for source in info_of(target).paths:
                full = f"{key}.{source.argument}"
                if source.downloads:
                    _check_download(key, node, source)
                elif source.or_url and "://" in str(value_of(node, source.argument)):
                    continue
                elif (path := _path(full, node, source.argument)) is not None:
                    check_path(path, source, full)
            if target.startswith("torchvision.datasets.") and "root" in node:
                _check_download(key, node, _TORCHVISION)
        except OSError as error:  # too long, or not to be looked into
            raise ConfigError(
                f"{error.strerror}: {str(error.filename)[:80]}",
                key=key,
                hint="choose another path",
            ) from error


def _check_download(key: str, node: DictConfig, source: SourcePath) -> None:
    if node.get("_partial_"):  # its root comes from somewhere else
        return
    full = f"{key}.{source.argument}"
    download = value_of(node, "download")
    path = _path(full, node, source.argument)
    if path is None or not isinstance(download, bool | None):
        return  # reported when arguments are checked
    path = path.expanduser()  # as torchvision does
    if path.exists():
        check_path(path, source, full)
    elif not (source.downloads if download is None else download):
        expected = "folder"
        if download is not None:
            expected = f"folder, and {key}.download is false"
        raise missing_path_error(
            full, path, expected, f"to have it downloaded: {key}.download=true"
        )


def _check_run(full: str, path: Path | None) -> None:
    if path is not None and not (path / "config.yaml").is_file():
        if not path.is_dir():
            raise missing_path_error(
                full, path, "run directory", "`assay ls` lists those in outputs/"
            )
        error = no_run_error(path.absolute())
        raise ConfigError(error.message, key=full, hint=error.hint)


def _path(full: str, node: DictConfig, name: str) -> Path | None:
    value = value_of(node, name)
    if value == "":
        raise ConfigError("expected a path, got an empty text", key=full, hint=f"{full}=PATH")
    if isinstance(value, str):
        return Path(value)
    return None


_KIND = ".ModelCheckpoint"


def check_output_paths(config: DictConfig) -> None:
    """Refuse a job that could not write its run directory, or keeps its checkpoints elsewhere."""
    run_dir = str(config.get("run_dir") or "")
    check_folder("hydra.run.dir", run_dir)
    _check_checkpoint_dirs(config, run_dir)


def check_folder(key: str, path: str) -> None:
    """Refuse a directory for a run or a sweep that cannot be made, or is not writable."""
    why = "expected a folder, got an empty path"
    if path:
        why = _why_unwritable(path)
    if why:
        message = why
        if path:
            message = f"{path!r}: {why}"
        raise ConfigError(message, key=key, hint=f"{key}=SOMEWHERE/ELSE")


def _why_unwritable(path: str) -> str:
    """Why no folder can be made there; empty where it can."""
    full_path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    existing = next(place for place in (full_path, *full_path.parents) if os.path.lexists(place))
    if not existing.is_dir():
        if existing == full_path:
            return "this is not a folder"
        return f"{existing} is not a folder"
    if os.access(existing, os.W_OK):
        return ""
    return f"{existing} is not writable"


def _check_checkpoint_dirs(config: DictConfig, run_dir: str) -> None:
    """Refuse checkpoints that resuming, testing and comparing would not find."""
    expected = os.path.normpath(os.path.join(run_dir, "checkpoints"))  # noqa: PTH118 - nothing is opened
    for name, node in (config.get("callbacks") or {}).items():
        if not (
            isinstance(node, DictConfig)
            and ("dirpath" in node or str(node.get("_target_")).endswith(_KIND))
        ):
            continue
        key = f"callbacks.{name}.dirpath"
        value = value_of(node, "dirpath")
        if value is None or os.path.normpath(str(value)) != expected:
            raise ConfigError(
                f"a run keeps its checkpoints in its own directory, not in {value}",
                key=key,
                hint=f"{key}='${{run_dir}}/checkpoints', and hydra.run.dir=… for the whole run elsewhere",
            )
