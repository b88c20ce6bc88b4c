"""Values and paths that no run can use, refused before torch is imported: alone, and with each other."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta
from omegaconf import DictConfig, ListConfig, OmegaConf

from assay.analysis.objective import BASELINES
from assay.build.trainer_options import is_distributed, is_stopped, is_unbounded
from assay.compose.recipe import is_chosen
from assay.config.serialize import LARGEST_SEED, is_number, is_whole, value_of
from assay.config.tree import follow, source_key, target_nodes, walk
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.data.limits import NAMES, check_limits
from assay.data.source_files import SourcePath, check_path, missing_path_error
from assay.data.source_info import info_of
from assay.errors import ConfigError
from assay.files.symlinks import RESULTS, TEXTS
from assay.record.run_record import no_run_error
from assay.targets.annotation import as_typed, check_value
from assay.targets.external_values import WRITING, is_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_LIBRARIES = ("torch", "torchvision", "torchmetrics", "lightning", "assay")
MICRO_BATCH = "trainer.micro_batch"
WHOLE_BATCH = f"{MICRO_BATCH}=null"

_COUNT = Annotated[int, Meta(ge=1)]
_NOT_NEGATIVE = Annotated[float, Meta(ge=0)]
_BELOW_ONE = Annotated[float, Meta(ge=0, lt=1)]
SEED = Annotated[int, Meta(ge=0, le=LARGEST_SEED)]
_KEPT = Annotated[int, Meta(ge=0, le=1000)]
_TIME = str | dict[Literal["weeks", "days", "hours", "minutes", "seconds"], Annotated[float, Meta(gt=0)]]
_BATCHES = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0, le=1)]
_SOME_BATCHES = Annotated[int, Meta(ge=1)] | Annotated[float, Meta(gt=0, le=1)]
STEP_COUNTS = (
    *("T_0", "T_max", "T_mult", "epochs", "milestones", "step_size", "step_size_down", "step_size_up"),
    *("steps_per_epoch", "total_iters", "total_steps"),
)
"""Arguments of torch's schedulers that count steps or epochs."""
_LIMITS: Mapping[str, Mapping[str, Any]] = {
    "optimizer": {
        "lr": Annotated[float, Meta(gt=0, le=100)],
        **dict.fromkeys(("momentum", "alpha"), _BELOW_ONE),
        **dict.fromkeys(("max_iter", "max_eval", "history_size", "ns_steps"), _COUNT),
    },
    "scheduler": {
        **dict.fromkeys(STEP_COUNTS, _COUNT),
        **dict.fromkeys(("cooldown", "patience"), Annotated[int, Meta(ge=0)]),
        "gamma": Annotated[float, Meta(gt=0)],
        "last_epoch": Annotated[int, Meta(le=-1)],
    },
    "callbacks": {
        "patience": _NOT_NEGATIVE,
        "decay": _BELOW_ONE,
        **dict.fromkeys(("update_every_n_steps", "every_n_train_steps", "every_n_epochs"), _COUNT),
    },
    "model": dict.fromkeys(("dropout", "attention_dropout", "stochastic_depth_prob"), _BELOW_ONE),
    "data": dict.fromkeys(("size", "image_size"), _COUNT),
}
"""By group and argument: what the classes of known libraries take, and nothing comes of."""
_TRAINER: Mapping[str, Any] = {
    **dict.fromkeys(("accumulate_grad_batches", "check_val_every_n_epoch", "log_every_n_steps"), _COUNT),
    **dict.fromkeys(("min_epochs", "min_steps"), Annotated[int, Meta(ge=0)]),
    **dict.fromkeys(("max_epochs", "max_steps", "num_sanity_val_steps"), Annotated[int, Meta(ge=-1)]),
    **dict.fromkeys(("limit_val_batches", "limit_test_batches", "limit_predict_batches"), _BATCHES),
    "limit_train_batches": _SOME_BATCHES,
    "max_time": _TIME,
    "val_check_interval": _SOME_BATCHES | _TIME,
    "gradient_clip_val": _NOT_NEGATIVE,
    "devices": Annotated[int, Meta(ge=-1, le=10_000)] | str | list[Annotated[int, Meta(ge=0)]],
    "profiler": str | dict[str, Any],
    "num_nodes": Annotated[int, Meta(ge=1, le=10_000)],
    "timeout_s": Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)],
    "interface": str,
    "micro_batch": _COUNT | Literal["auto"],
    "matmul_precision": Literal["highest", "high", "medium"],
    "compile": bool | Literal["blocks", "reduce-overhead", "max-autotune"],
    "channels_last": bool,
}
_DURATION = r"(?=.*[1-9])\d+:\d\d:\d\d:\d\d", "days:hours:minutes:seconds above zero", "00:01:30:00"
_TEXTS = {
    "max_time": _DURATION,
    "val_check_interval": _DURATION,
    "devices": (r"auto|-1|\d+(,\d+)*,?", "a number of devices, their indices, or auto", "1"),
}
"""What a text of the trainer must match, in words, and an example."""
_NOT_HERE = {
    "barebones": "it leaves out checkpoints and metrics; trainer.profiler=simple shows where time goes",
    "fast_dev_run": "debug=one_batch tries one batch of everything, debug=small ten",
    "overfit_batches": "debug=overfit trains on one batch over and over",
    "model_registry": "leave it out: checkpoints are uploaded nowhere",
}
"""Arguments of Lightning's that end without a trained model, or do nothing, with what to type."""
_OTHERS: Mapping[str, Any] = {
    "baseline": Literal["auto", "none", *BASELINES],
    "optimizer.fused": bool | Literal["auto"],
    "optimizer.line_search_fn": Literal["strong_wolfe"],
    "scheduler.frequency": _COUNT,
    "scheduler.interval": Literal["step", "epoch"],
    "scheduler.monitor": str,
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
        raise ConfigError(f"expected a name, got {as_typed(name)}", key="name", hint="name=my_run")
    if str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau"):
        monitor = value_of(config, "scheduler.monitor")
        check_value("scheduler.monitor", monitor, Annotated[str, Meta(min_length=1)])
    if value_of(config, "data._target_") == OUR_DATA:
        check_limits({name: value_of(config, f"data.{name}") for name in NAMES})
    check_numbers(config)
    check_trainer(config)


def check_numbers(config: DictConfig) -> None:
    """Refuse numbers with which a class of a known library does nothing, or nothing that anyone means."""
    for entry, value in follow(config):
        # What is quick comes first: OmegaConf is slow to say that a key is missing.
        is_list = isinstance(entry.node, ListConfig) and entry.is_container
        if not (is_list or is_number(value)) or not isinstance(entry.parent, DictConfig):
            continue
        if "_target_" not in entry.parent:
            continue
        if str(entry.parent.get("_target_")).partition(".")[0] not in _LIBRARIES:
            continue
        full_key = source_key(config, entry.key)
        group = entry.key.partition(".")[0]
        container = OmegaConf.select(config, full_key.rpartition(".")[0]) if "." in full_key else None
        full_key = entry.key if isinstance(container, DictConfig) and "_target_" in container else full_key
        kind = _LIMITS.get(group, {}).get(str(entry.name))
        numbers = {full_key: value}
        if is_list:  # an item may wait for the data
            items = follow(entry.node, full_key)
            numbers = {item.key: number for item, number in items if item.parent is entry.node}
        for key, number in numbers.items():
            if not is_number(number):
                continue
            if kind is not None:
                check_value(key, number, kind)
            # Infinity has a meaning for activations.
            if math.isnan(number) or (math.isinf(number) and (group != "model" or kind is not None)):
                raise ConfigError(f"expected a finite number, got {number}", key=key, hint=f"{key}=0.1")


def check_trainer(config: DictConfig) -> None:
    """Refuse values with which Lightning's trainer fails late, hangs, or finishes without having trained."""
    node = config.get("trainer")
    if not isinstance(node, DictConfig):
        return
    values = {name: value_of(config, f"trainer.{name}") for name in map(str, node)}
    for name, kind in _TRAINER.items():
        if values.get(name) is not None:
            check_value(f"trainer.{name}", values[name], kind)
    for name, (pattern, expected, example) in _TEXTS.items():
        if isinstance(value := values.get(name), str) and not re.fullmatch(pattern, value.strip()):
            key = f"trainer.{name}"
            raise ConfigError(f"expected {expected}, got {value!r}", key=key, hint=f"{key}={example}")
    for name, instead in _NOT_HERE.items():
        if values.get(name):
            raise ConfigError("assay does not use this argument", key=f"trainer.{name}", hint=instead)
    if (values.get("num_nodes") or 1) > 1 and not is_distributed(values):
        raise ConfigError(
            f"expected a distributed strategy, because trainer.num_nodes={values['num_nodes']}",
            key="trainer.strategy",
            hint="device=ddp for the GPUs of each node, or device=ddp_cpu",
        )
    _check_length(config, values)
    if values.get("check_val_every_n_epoch", 1) is None and not is_whole(values.get("val_check_interval")):
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
    for least, most in (("min_epochs", "max_epochs"), ("min_steps", "max_steps")):
        low = values.get(least)
        high = values.get(most)
        if most == "max_epochs" and is_chosen(config, "trainer.max_epochs"):
            continue
        if is_whole(low) and is_whole(high) and -1 < high < low:
            hint = f"trainer.{most}={low}, or trainer.{least}={high}"
            raise ConfigError(f"expected at most {most}={high}, got {low}", key=f"trainer.{least}", hint=hint)


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
    elif size is not None and OmegaConf.select(config, "module._target_") not in (None, OUR_MODULE):
        message = "a custom LightningModule takes its steps itself"
    elif size == "auto" and is_lbfgs(config):
        message = "LBFGS computes the loss several times per step"
        hint = f"{MICRO_BATCH}=32"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def is_lbfgs(config: DictConfig) -> bool:
    """Whether the optimizer asks for the loss and its gradient several times in a step."""
    return str(value_of(config, "optimizer._target_")).endswith(".LBFGS")


def check_manual(config: DictConfig, module: Any) -> None:
    """Refuse what Lightning does not do for a module that steps its optimizers by hand."""
    if getattr(module, "automatic_optimization", True):
        return
    for name, nothing, instead in (
        ("accumulate_grad_batches", 1, "let training_step count batches"),
        ("gradient_clip_val", 0, "let training_step call self.clip_gradients(optimizer, …)"),
    ):
        if (value := value_of(config, f"trainer.{name}")) not in (None, nothing):
            raise ConfigError(
                f"got {value}, but {type(module).__name__} steps its optimizers by hand, where "
                "Lightning leaves this to the module",
                key=f"trainer.{name}",
                hint=f"leave it out, and {instead}",
            )


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
                f"{error.strerror}: {str(error.filename)[:80]}", key=key, hint="choose another path"
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
        expected = "folder" if download is None else f"folder, and {key}.download is false"
        raise missing_path_error(full, path, expected, f"to have it downloaded: {key}.download=true")


def _check_run(full: str, path: Path | None) -> None:
    if path is not None and not (path / "config.yaml").is_file():
        error = no_run_error(path.absolute())
        if not path.is_dir():
            raise missing_path_error(full, path, "run directory", error.hint)
        raise ConfigError(error.message, key=full, hint=error.hint)


def _path(full: str, node: DictConfig, name: str) -> Path | None:
    value = value_of(node, name)
    if value == "":
        raise ConfigError("expected a path, got an empty text", key=full, hint=f"{full}=PATH")
    return Path(value) if isinstance(value, str) else None


_KIND: Final = ".ModelCheckpoint"
_OURS: Final = ("assay.", "lightning.")
_FILES: Final = ("path", "file", "filepath")
"""Arguments of theirs that name a file; other paths are folders."""
_LOCAL: Final = ("sqlite:///", "file://", "file:")
_OWN: Final = (*TEXTS, *RESULTS, "record.json", "encoder.json", "log.txt", ".lock", "checkpoints")
"""What assay itself writes into a run directory, beside its metrics.csv."""


def check_output_paths(config: DictConfig) -> None:
    """Refuse a job that could not write its run directory, or what its callbacks and loggers are to write."""
    run_dir = str(config.get("run_dir") or "")
    check_folder("hydra.run.dir", run_dir)
    _check_checkpoint_dirs(config, run_dir)
    for key, value, is_file in _places(config):
        if not value:
            kind = "file" if is_file else "folder"
            raise ConfigError(
                f"expected a {kind}, got an empty path", key=key, hint=f"{key}='${{run_dir}}/…'"
            )
        if why := _why_unwritable(value, is_file=is_file):
            raise ConfigError(f"{value!r}: {why}", key=key, hint=f"{key}='${{run_dir}}/…'")
        inside = os.path.relpath(value, run_dir).partition(os.sep)[0]
        if is_file and inside in _OWN:
            raise ConfigError(
                "the run itself writes this file", key=key, hint=f"{key}='${{run_dir}}/metrics.csv'"
            )


def check_folder(key: str, path: str) -> None:
    """Refuse a directory for a run or a sweep that cannot be made, or is not writable."""
    why = _why_unwritable(path) if path else "expected a folder, got an empty path"
    if why:
        raise ConfigError(f"{path!r}: {why}" if path else why, key=key, hint=f"{key}=SOMEWHERE/ELSE")


def _why_unwritable(path: str, *, is_file: bool = False) -> str:
    """Why nothing can be written there; empty where it can."""
    full_path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    existing = next(place for place in (full_path, *full_path.parents) if os.path.lexists(place))
    if existing == full_path and existing.is_dir() is is_file:
        return "expected a file, but this is a folder" if is_file else "this is not a folder"
    if existing != full_path and not existing.is_dir():
        return f"{existing} is not a folder"
    return "" if os.access(existing, os.W_OK) else f"{existing} is not writable"


def _check_checkpoint_dirs(config: DictConfig, run_dir: str) -> None:
    """Refuse checkpoints that resuming, testing and comparing would not find."""
    expected = os.path.normpath(os.path.join(run_dir, "checkpoints"))  # noqa: PTH118 - nothing is opened
    for name, node in (config.get("callbacks") or {}).items():
        if not (
            isinstance(node, DictConfig) and ("dirpath" in node or str(node.get("_target_")).endswith(_KIND))
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


def _places(config: DictConfig) -> Iterator[tuple[str, str, bool]]:
    """Key and value of each path that a class of a known library writes to, and whether it is a file's."""
    for group in WRITING:
        node = config.get(group)
        for entry in walk(node, group) if isinstance(node, DictConfig) else ():
            if not isinstance(entry.parent, DictConfig) or entry.is_container:
                continue
            if not str(entry.parent.get("_target_")).startswith(_OURS):
                continue  # custom code may do anything with a path
            name = str(entry.name)
            value = value_of(entry.parent, entry.name)
            if not isinstance(value, str):
                continue
            local = next((value[len(scheme) :] for scheme in _LOCAL if value.startswith(scheme)), None)
            if local is not None:
                yield entry.key, local, value.startswith("sqlite")
            elif is_path(name) and "://" not in value:
                yield entry.key, value, name in _FILES
