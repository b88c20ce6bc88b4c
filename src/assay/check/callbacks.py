"""Callbacks and loggers that cannot be used, metrics they wait for, and processes assay does not start."""

from __future__ import annotations

import math
import os
import re
import zlib
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

import lightning.pytorch.callbacks as lightning_callbacks
import torch
from lightning.pytorch.accelerators import CPUAccelerator, CUDAAccelerator, MPSAccelerator
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, WeightAveraging
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.build.monitor_mode import monitors
from assay.build.run_length import num_validations, run_length, why_no_validation
from assay.build.trainer_options import is_rank, num_local_processes, requested_devices
from assay.check.output_paths import TEMPORARY, too_long
from assay.check.values import is_lbfgs
from assay.compose.recipe import is_chosen
from assay.config.did_you_mean import did_you_mean
from assay.config.omegaconf_internals import child_node, raw_value
from assay.config.serialize import is_whole, value_of
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.quoting import counted
from assay.targets.allowed_targets import trusted_in
from assay.targets.call_signature import call_of
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import lightning as L

    from assay.build.run_length import RunLength


_KINDS = {CPUAccelerator: "cpu", CUDAAccelerator: "cuda", MPSAccelerator: "mps"}


def check_processes(config: DictConfig, trainer: L.Trainer) -> None:
    """Refuse what Lightning would start processes for by itself."""
    strategy, devices = trainer.strategy, trainer.num_devices
    name = config.trainer.get("strategy", "auto")
    shown = name if isinstance(name, str) else type(strategy).__name__
    gpus = not isinstance(trainer.accelerator, CPUAccelerator)
    kind, asked = _KINDS.get(type(trainer.accelerator)), requested_devices(config.trainer)
    started = num_local_processes(config)
    key, message, hint = "trainer.strategy", "", "trainer.strategy=auto"
    if strategy.launcher is not None and not isinstance(strategy.launcher, _SubprocessScriptLauncher):
        message = (
            f"{shown} starts processes by itself, which cannot work from a config; assay starts those of ddp"
        )
        several = "device=ddp for all GPUs" if gpus else "device=ddp_cpu for several processes on the CPU"
        hint = f"trainer.strategy=auto for one device; {several}"
    elif kind is not None and strategy.root_device.type != kind:
        message = f"{shown} computes on {strategy.root_device}, not on {kind}"
    elif isinstance(asked, int) and asked != devices:
        key, hint = "trainer.devices", f"trainer.devices={devices}, or trainer.strategy=ddp"
        message = f"{asked} devices were asked for, but {shown} computes on {devices}"
    elif not is_rank() and started != devices:
        instead = "trainer.strategy=ddp" if gpus else f"device=ddp_cpu trainer.devices={devices}"
        key, hint = "trainer.devices", f"trainer.devices={started}, or {instead}"
        message = f"{devices} devices need a strategy that assay starts their processes for; {shown} is none"
    if message:
        raise ConfigError(message, key=key, hint=hint)


_OTHERWISE: Final = {
    "LearningRateFinder": (
        "it changes the learning rate after the schedule was made from it",
        "assay train -m sweep=lr finds one, and with it the weight decay",
    ),
    "BatchSizeFinder": (
        "it changes the batch size after the length of the schedule was computed from it",
        "`assay check` says what memory a batch takes; data.batch_size=…",
    ),
    "BackboneFinetuning": (
        "it takes parameters out of the optimizer and puts them back, and needs a module with a `backbone`",
        "finetune=gradual unfreezes layer by layer",
    ),
    "StochasticWeightAveraging": (
        "it averages once training is over: no checkpoint holds the mean, so it is never tested",
        "callbacks=swa",
    ),
}
"""Callbacks of Lightning's that do not do here what they say, why, and what does."""
_OF_A_FILE: Final = ("path", "save_dir", "name", "version", "prefix")
_LEFT: Final = 0.01
"""Share of the initial weights in an average that is worth a word."""


def check_callbacks(config: DictConfig) -> None:
    """Refuse callbacks that contradict each other, and loggers that write into one file."""
    chosen = dict(kinds(config, "callbacks"))
    for key, kind in chosen.items():
        for name, (why, instead) in _OTHERWISE.items():
            if issubclass(kind, getattr(lightning_callbacks, name)):
                raise ConfigError(f"{name} cannot be used: {why}", key=key, hint=instead)
    averaging = [key for key, kind in chosen.items() if issubclass(kind, WeightAveraging)]
    if len(averaging) > 1:
        raise ConfigError(
            f"{averaging[0]} averages the weights already, and a checkpoint holds one average",
            key=averaging[1],
            hint=f"~{averaging[1]}, or ~{averaging[0]}",
        )
    for key, kind in chosen.items():
        if issubclass(kind, lightning_callbacks.GradientAccumulationScheduler):
            _check_accumulation(config, key)
        every = OmegaConf.select(config, f"{key}.update_every_n_steps")
        steps = OmegaConf.select(config, "spec.total_steps")
        if (
            issubclass(kind, WeightAveraging)
            and steps
            and isinstance(every, int)
            and every > max(1, int(steps) // 10)
        ):
            raise ConfigError(
                f"{every} was given, and the run has {steps} steps: the average would lag a tenth of it",
                key=f"{key}.update_every_n_steps",
                hint=f"{key}.update_every_n_steps=1",
            )
    _check_logs(config)


def notes_on(config: DictConfig) -> list[str]:
    """What a job will do that is hardly meant: averages that look back further than the run is long."""
    steps = int(OmegaConf.select(config, "spec.total_steps") or 0)
    found = []
    for key, kind in kinds(config, "callbacks"):
        call = call_of(kind) if issubclass(kind, WeightAveraging) else None
        if not steps or call is None or "decay" not in call.parameters:
            continue
        defaults = {name: parameter.default for name, parameter in call.parameters.items()}
        node, warms_up = OmegaConf.select(config, key), "warmup_fraction" in defaults
        decay, share = (node.get(name, defaults.get(name)) for name in ("decay", "warmup_fraction"))
        horizon = int(node.get("update_every_n_steps") or 1) / (1 - decay)
        left = math.exp(-steps / horizon)
        way = (
            f"{key}.warmup_fraction=0.1"
            if warms_up
            else f"{key}.decay={round(1 - 1 / max(2.0, steps / 10), 3)}"
        )
        if share is None and left > _LEFT:
            found.append(
                f"{key}.decay={decay}: after the {steps:,} steps of the run {100 * left:.0f} % of the "
                f"average are the initial weights; {way}"
            )
        elif share is not None and horizon > steps:
            found.append(
                f"{key}.decay={decay} looks back {horizon:,.0f} steps, and the run has {steps:,}; "
                f"the warm-up keeps it to {100 * share:.0f} % of them"
            )
    return found


def kinds(config: DictConfig, group: str) -> Iterator[tuple[str, Any]]:
    """Key and class of each callback or logger; those made by a function are left out."""
    for name, node in (config.get(group) or {}).items():
        if isinstance(node, DictConfig):
            kind = resolve(f"{group}.{name}", str(node._target_), trusted_in(config))
            if isinstance(kind, type):
                yield f"{group}.{name}", kind


def _check_accumulation(config: DictConfig, key: str) -> None:
    given = config.trainer.get("accumulate_grad_batches")
    message, hint = "", f"~{key}, or trainer.accumulate_grad_batches=1"
    if given not in (None, 1):
        message = f"trainer.accumulate_grad_batches={given} accumulates already"
    elif is_lbfgs(config):
        message, hint = "LBFGS cannot accumulate batches", f"~{key}, or optimizer=adamw"
    else:
        for entry in walk(config):
            text = str(entry.raw) if entry.is_interpolation else ""
            if "${spec.total_steps}" in text or "${spec.steps_per_epoch}" in text:
                message = f"it changes the number of optimizer steps, which {entry.key} is computed from"
                hint = "scheduler=none or scheduler=plateau, or a fixed trainer.accumulate_grad_batches=…"
    if message:
        raise ConfigError(message, key=key, hint=hint)


def _check_logs(config: DictConfig) -> None:
    written: dict[tuple[str, ...], str] = {}
    nodes = config.get("logger") or {}
    if nodes.get("csv") is None:  # it is there all the same
        written[_of_file(f"{config.run_dir}/metrics.csv")] = "assay itself"
    for key, kind in kinds(config, "logger"):
        node = OmegaConf.select(config, key)
        values = {name: _text(node, name) for name in _OF_A_FILE if node.get(name) is not None}
        if not values:
            continue
        place = (kind.__name__, *(f"{name}={value}" for name, value in sorted(values.items())))
        if values.keys() == {"path"}:
            place = _of_file(values["path"])
        elif issubclass(kind, CSVLogger) and isinstance(node.get("version"), str):  # a number is a new file
            name = values.get("name", "") if "name" in node else "lightning_logs"
            place = _of_file(Path(_text(node, "save_dir"), name, node.version, "metrics.csv"))
        if place in written:
            raise ConfigError(
                f"{written[place]} writes the same file already",
                key=key,
                hint=f"~{key}, or another place for it",
            )
        written[place] = key


def _of_file(path: str | Path) -> tuple[str, ...]:
    return (os.path.normpath(path),)


def _text(node: Any, name: str) -> str:
    try:
        return str(node.get(name))
    except OmegaConfBaseException:
        return str(raw_value(child_node(node, name)))


_COUNTS: Final = ("epoch", "step")
"""What Lightning logs, or has at hand, in every run."""


def scores(config: DictConfig, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of the metrics that a job will log."""
    is_tested = config.spec.num_test and config.trainer.get("limit_test_batches") != 0
    tested = [f"test/{name.removeprefix('val/')}" for name in names["val"]] if is_tested else []
    return [*names["train"], *(() if why_no_validation(config)[0] else names["val"]), *tested]


def check_monitors(config: DictConfig, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse the name of a metric that nobody will log."""
    without, instead = why_no_validation(config)
    known = [*names["train"], *(() if without else names["val"])]
    for node, monitor in monitors(config):
        key = f"{node}.monitor"
        if monitor in known or monitor in _COUNTS or monitor.startswith("lr-"):
            continue
        if without and monitor in names["val"]:
            raise ConfigError(
                f"there will be no {monitor!r}: {without}", key=key, hint=f"{instead}, or {key}=train/loss"
            )
        raise no_metric(key, monitor, sorted(known))


def no_metric(key: str, metric: str, known: Sequence[str]) -> ConfigError:
    """What to tell of a metric that nothing logs."""
    return ConfigError(
        f"there is no metric {metric!r}{did_you_mean(metric, known, '; ')}",
        key=key,
        hint=f"there is: {', '.join(known)}",
    )


_OF_LIGHTNING, _OF_TORCH = 3, 10
"""What `patience` is where a config does not say it."""


def out_of_reach(config: DictConfig) -> Iterator[str]:
    """What waits longer for a metric to improve than the run looks at it, in words."""
    length = run_length(config, config.spec.num_train)
    if not length.is_known or length.total_batches is None:
        return
    waiting = [
        (key, _early_stopping_looks(config, key, length), _OF_LIGHTNING, 1, "it cannot stop the run")
        for key, kind in kinds(config, "callbacks")
        if issubclass(kind, EarlyStopping)
    ]
    if str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau"):
        asked = _plateau_looks(config, length)
        waiting.append(("scheduler", asked, _OF_TORCH, 2, "the learning rate cannot be lowered"))
    for key, looks, otherwise, least, so in waiting:
        given = value_of(config, f"{key}.patience")
        patience = given if is_whole(given) else otherwise
        follows_length = is_chosen(config, f"{key}.patience")
        # The first look sets what is best; so many more have to be no better.
        if looks is not None and looks < max(1, patience) + least and not follows_length:
            monitor = value_of(config, f"{key}.monitor")
            yield f"{key}.patience={patience}: {so}, which looks at {monitor} {counted(looks, 'time')} in all"


def _early_stopping_looks(config: DictConfig, key: str, length: RunLength) -> int | None:
    """At the end of an epoch where each is validated once, else after each validation."""
    at_epochs = value_of(config, f"{key}.check_on_train_epoch_end")
    if at_epochs is None:
        once = value_of(config, "trainer.val_check_interval") in (None, 1.0)
        at_epochs = once and OmegaConf.select(config, "trainer.check_val_every_n_epoch", default=1) == 1
    if not at_epochs:
        return num_validations(config, length)
    return -(-(length.total_batches or 0) // length.used_batches)


def _plateau_looks(config: DictConfig, length: RunLength) -> int:
    total = length.total_batches or 0
    every = int(value_of(config, "scheduler.frequency") or 1)
    if value_of(config, "scheduler.interval") != "step":
        return -(-total // length.used_batches) // every
    steps = range(1, (length.total_steps or 0) + 1)
    return sum(length.batch_of(step) % every == 0 for step in steps)


_WIDE: Final = re.compile(r"\d{4,}")
_FOLDER: Final = "checkpoints"
_LAST: Final = f"{ModelCheckpoint.CHECKPOINT_NAME_LAST}{ModelCheckpoint.FILE_EXTENSION}"
_HINT: Final = "'best-{epoch:02d}'"


def check_checkpoint_names(config: DictConfig, names: Sequence[str] | None) -> None:
    """Refuse a `filename` that no checkpoint can have, and two that write one file."""
    chosen = [key for key, kind in kinds(config, "callbacks") if issubclass(kind, ModelCheckpoint)]
    written: dict[str, tuple[str, bool]] = {}
    for key in chosen:
        node = OmegaConf.select(config, key)
        path, filename = _path(f"{key}.filename", node, names), node.get("filename")
        if path == _LAST and node.get("monitor") is not None:
            raise ConfigError(
                "last.ckpt is what a run that is stopped leaves, and would take the place of the best",
                key=f"{key}.filename",
                hint=f"{key}.filename=best",
            )
        counts = not filename and node.get("enable_version_counter", True)  # a second one is called …-v1.ckpt
        if path in written and not (counts and written[path][1]):
            typed = f"{key}.filename" if "filename" in node else f"+{key}.filename"
            pattern = filename or "{epoch}-{step}"
            said = f"{pattern}.ckpt" if "{" in pattern else path
            raise _written_twice(f"{key}.filename", written[path][0], said, f"{typed}={_HINT}")
        written.setdefault(path, (key, counts))
    for key in chosen:
        if OmegaConf.select(config, f"{key}.save_last"):
            if _LAST in written:
                raise _written_twice(f"{key}.save_last", written[_LAST][0], _LAST, f"{key}.save_last=null")
            written[_LAST] = (key, False)


def _written_twice(key: str, writer: str, path: str, hint: str) -> ConfigError:
    return ConfigError(f"{writer} writes {path} already", key=key, hint=hint)


def _path(key: str, node: DictConfig, names: Sequence[str] | None) -> str:
    """Where in the folder of checkpoints one would lie, filled in with a number of its own for each name."""
    filename, inserts = node.get("filename"), bool(node.get("auto_insert_metric_name", True))
    values = {name: torch.tensor(count) for count, name in enumerate(_COUNTS, 1)}
    for name in _fields(key, str(filename or "")):
        if names is not None and not (name in (*_COUNTS, *names) or name.startswith("lr-")):
            raise no_metric(key, name, [*_COUNTS, *names])
        values.setdefault(name, torch.tensor(zlib.crc32(name.encode()) / 1000))
    callback = ModelCheckpoint(dirpath=_FOLDER, filename=filename, auto_insert_metric_name=inserts)
    try:
        path = callback.format_checkpoint_name(values)
    except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise _refusal(key, str(filename), str(error)) from error
    place = Path(os.path.normpath(path))
    if not place.is_relative_to(str(callback.dirpath)):
        raise _refusal(key, str(filename), "it is not a name of a file in the run's folder of checkpoints")
    if why := too_long(place.name, TEMPORARY):
        raise _refusal(key, f"{str(filename)[:40]}…", why)
    return str(place.relative_to(str(callback.dirpath)))


def _fields(key: str, filename: str) -> Iterator[str]:
    try:
        for _, name, form, conversion in Formatter().parse(filename):
            if name is None:
                continue
            if not name or conversion or _WIDE.search(form or ""):
                raise ValueError(f"{{{name}}} cannot be filled in")
            yield name
    except ValueError as error:
        raise _refusal(key, filename, str(error)) from error


def _refusal(key: str, filename: str, why: str) -> ConfigError:
    return ConfigError(f"{filename!r} was given; {why}", key=key, hint=f"{key}={_HINT}")
