"""Callbacks and loggers that cannot be used, metrics they wait for, and processes assay does not start."""

from __future__ import annotations

import math
import os
import zlib
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

import lightning.pytorch.callbacks as lightning_callbacks
import torch
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from omegaconf import DictConfig, OmegaConf

from assay.build.monitor_mode import monitors
from assay.build.run_length import why_no_validation
from assay.build.trainer_options import is_rank, num_local_processes, requested_devices
from assay.check.output_paths import TEMPORARY, too_long
from assay.check.trainer import is_lbfgs
from assay.config.did_you_mean import did_you_mean
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.targets.allowed_targets import trusted_in
from assay.targets.call_signature import call_of
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import lightning as L


def check_processes(config: DictConfig, trainer: L.Trainer) -> None:
    """Refuse what Lightning would start processes for by itself, and devices that nothing would use."""
    strategy, devices = trainer.strategy, trainer.num_devices
    name = config.trainer.get("strategy", "auto")
    shown = name if isinstance(name, str) else type(strategy).__name__
    on_cpu = isinstance(trainer.accelerator, CPUAccelerator)
    several = "device=ddp_cpu" if on_cpu else "device=ddp"
    if strategy.launcher is not None and not isinstance(strategy.launcher, _SubprocessScriptLauncher):
        raise ConfigError(
            f"{shown} starts processes by itself, which cannot work from a config; assay starts those of ddp",
            key="trainer.strategy",
            hint=f"trainer.strategy=auto for one device; {several} for several",
        )
    if on_cpu != (strategy.root_device.type == "cpu"):
        raise ConfigError(
            f"{shown} computes on {strategy.root_device}",
            key="trainer.strategy",
            hint="trainer.strategy=auto",
        )
    asked, started = requested_devices(config.trainer), num_local_processes(config)
    if isinstance(asked, int) and asked != devices:
        raise ConfigError(
            f"{asked} devices were asked for, but {shown} computes on {devices}",
            key="trainer.devices",
            hint=f"trainer.devices={devices}, or trainer.strategy=ddp",
        )
    if not is_rank() and started != devices:
        raise ConfigError(
            f"{devices} devices need a strategy that assay starts processes for; {shown} starts {started}",
            key="trainer.devices",
            hint=f"trainer.devices={started}, or {several} trainer.devices={devices}",
        )


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
_LEFT: Final = 0.01
"""Share of the initial weights in an average that is worth a word."""


def check_callbacks(config: DictConfig) -> None:
    """Refuse callbacks that contradict each other."""
    chosen = dict(kinds(config, "callbacks"))
    for key, kind in chosen.items():
        for name, (why, instead) in _OTHERWISE.items():
            if issubclass(kind, getattr(lightning_callbacks, name)):
                raise ConfigError(f"{name} cannot be used: {why}", key=key, hint=instead)
    averaging = [key for key, kind in chosen.items() if _averages(kind)]
    if len(averaging) > 1:
        raise ConfigError(
            f"{averaging[0]} averages the weights already, and a checkpoint holds one average",
            key=averaging[1],
            hint=f"~{averaging[1]}, or ~{averaging[0]}",
        )
    for key, kind in chosen.items():
        if issubclass(kind, lightning_callbacks.GradientAccumulationScheduler):
            _check_accumulation(config, key)


def notes_on(config: DictConfig) -> list[str]:
    """What a job will do that is hardly meant: averages that look back further than the run is long."""
    steps = int(OmegaConf.select(config, "spec.total_steps") or 0)
    found = []
    for key, kind in kinds(config, "callbacks"):
        call = call_of(kind) if _averages(kind) else None
        if not steps or call is None or "decay" not in call.parameters:
            continue
        defaults = {name: parameter.default for name, parameter in call.parameters.items()}
        node, warms_up = OmegaConf.select(config, key), "warmup_fraction" in defaults
        decay, share = (node.get(name, defaults.get(name)) for name in ("decay", "warmup_fraction"))
        horizon = int(node.get("update_every_n_steps") or 1) / (1 - decay)
        left = math.exp(-steps / horizon)
        way = f"{key}.warmup_fraction=0.1" if warms_up else f"{key}.decay={_fitting(steps)}"
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


def _averages(kind: type) -> bool:
    return issubclass(kind, WeightAveraging) or getattr(kind, "averages_weights", False)


def _fitting(steps: int) -> float:
    return round(1 - 1 / max(2.0, steps / 10), 3)


def _check_accumulation(config: DictConfig, key: str) -> None:
    given = config.trainer.get("accumulate_grad_batches")
    if given not in (None, 1):
        raise ConfigError(
            f"trainer.accumulate_grad_batches={given} accumulates already",
            key=key,
            hint=f"~{key}, or trainer.accumulate_grad_batches=1",
        )
    if is_lbfgs(config):
        raise ConfigError("LBFGS cannot accumulate batches", key=key, hint=f"~{key}, or optimizer=adamw")
    for entry in walk(config):
        text = str(entry.raw) if entry.is_interpolation else ""
        if "${spec.total_steps}" in text or "${spec.steps_per_epoch}" in text:
            raise ConfigError(
                f"it changes the number of optimizer steps, which {entry.key} is computed from",
                key=key,
                hint="scheduler=none or scheduler=plateau, or a fixed trainer.accumulate_grad_batches=…",
            )


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


_FOLDER: Final = "checkpoints"
_LAST: Final = f"{ModelCheckpoint.CHECKPOINT_NAME_LAST}{ModelCheckpoint.FILE_EXTENSION}"
_HINT: Final = "'best-{epoch:02d}'"


def check_checkpoint_names(config: DictConfig, names: Sequence[str] | None) -> None:
    """Refuse a `filename` that no checkpoint can have, and two that write one file."""
    written: dict[str, tuple[str, bool]] = {}
    for key, kind in kinds(config, "callbacks"):
        if not issubclass(kind, ModelCheckpoint):
            continue
        node, at = OmegaConf.select(config, key), f"{key}.filename"
        path, filename = _path(at, node, names), node.get("filename")
        if path == _LAST and node.get("monitor") is not None:
            raise ConfigError(
                "last.ckpt is what a run that is stopped leaves, and would take the place of the best",
                key=at,
                hint=f"{at}=best",
            )
        counts = not filename and node.get("enable_version_counter", True)  # a second one is called …-v1.ckpt
        files = [(path, at, f"{at}={_HINT}", counts)]
        if node.get("save_last"):
            files.append((_LAST, f"{key}.save_last", f"{key}.save_last=null", False))
        for file, blamed, hint, numbered in files:
            if file in written and not (numbered and written[file][1]):
                raise ConfigError(f"{written[file][0]} writes {file} already", key=blamed, hint=hint)
            written.setdefault(file, (key, numbered))


def _path(key: str, node: DictConfig, names: Sequence[str] | None) -> str:
    """Where in the folder of checkpoints one would lie, filled in with a number of its own for each name."""
    filename, inserts = node.get("filename"), bool(node.get("auto_insert_metric_name", True))
    values = {name: torch.tensor(count) for count, name in enumerate(_COUNTS, 1)}
    callback = ModelCheckpoint(dirpath=_FOLDER, filename=filename, auto_insert_metric_name=inserts)
    try:
        for name in filter(None, (field for _, field, _, _ in Formatter().parse(str(filename or "")))):
            if names is not None and not (name in (*_COUNTS, *names) or name.startswith("lr-")):
                raise no_metric(key, name, [*_COUNTS, *names])
            values.setdefault(name, torch.tensor(zlib.crc32(name.encode()) / 1000))
        path = callback.format_checkpoint_name(values)
    except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise _refusal(key, str(filename), str(error)) from error
    place = Path(os.path.normpath(path))
    if not place.is_relative_to(str(callback.dirpath)):
        raise _refusal(key, str(filename), "a file in the run's folder of checkpoints was expected")
    if why := too_long(place.name, TEMPORARY):
        raise _refusal(key, f"{str(filename)[:40]}…", why)
    return str(place.relative_to(str(callback.dirpath)))


def _refusal(key: str, filename: str, why: str) -> ConfigError:
    return ConfigError(f"cannot use {filename!r}: {why}", key=key, hint=f"{key}={_HINT}")
