"""Callbacks and loggers that cannot be used together, or at all."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lightning.pytorch.callbacks as lightning_callbacks
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.loggers import CSVLogger
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.check.static.trainer import is_lbfgs
from assay.config.omegaconf_internals import child_node, raw_value
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.targets.allowed_targets import trusted_in
from assay.targets.call_signature import call_of
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """Refuse callbacks that contradict each other, and loggers that write into one file.

    Args:
        config: The job, with its `spec` where the data tells one.

    Raises:
        ConfigError: Naming the key of one, and what to type.
    """
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
        if _averages(kind):
            _check_updates(config, key)
    _check_logs(config)


def notes_on(config: DictConfig) -> list[str]:
    """What a job will do that is hardly meant: averages that look back further than the run is long.

    Args:
        config: The job, with its `spec` where the data tells one.
    """
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
    """Key and class of each callback or logger; those made by a function are left out.

    Args:
        config: The job.
        group: `callbacks` or `logger`.
    """
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


def _check_updates(config: DictConfig, key: str) -> None:
    node, steps = OmegaConf.select(config, key), OmegaConf.select(config, "spec.total_steps")
    every = node.get("update_every_n_steps")
    if steps and isinstance(every, int) and every > max(1, int(steps) // 10):
        raise ConfigError(
            f"{every} was given, and the run has {steps} steps: the average would lag a tenth of it",
            key=f"{key}.update_every_n_steps",
            hint=f"{key}.update_every_n_steps=1",
        )


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
        is_csv = issubclass(kind, CSVLogger) and isinstance(node.get("version"), str)
        place = _of_csv_logger(node) if is_csv else _place(kind, values)
        if place in written:
            raise ConfigError(
                f"{written[place]} writes the same file already",
                key=key,
                hint=f"~{key}, or another place for it",
            )
        written[place] = key


def _of_csv_logger(node: Any) -> tuple[str, ...]:
    """The file of Lightning's own; with a number for a version it is a new one."""
    name = _text(node, "name") if node.get("name", "lightning_logs") else ""
    folder = Path(_text(node, "save_dir"), name if "name" in node else "lightning_logs", node.version)
    return _of_file(folder / "metrics.csv")


def _of_file(path: str | Path) -> tuple[str, ...]:
    return (os.path.normpath(path),)


def _place(kind: type, values: dict[str, str]) -> tuple[str, ...]:
    if values.keys() == {"path"}:
        return _of_file(values["path"])
    return (kind.__name__, *(f"{name}={value}" for name, value in sorted(values.items())))


def _text(node: Any, name: str) -> str:
    try:
        return str(node.get(name))
    except OmegaConfBaseException:
        return str(raw_value(child_node(node, name)))
