"""Will there be the metrics that callbacks and the scheduler wait for, and a file for each checkpoint?"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Final

import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from omegaconf import DictConfig, OmegaConf

from assay.build.trainer.monitor_mode import monitors
from assay.build.trainer.run_length import num_validations, run_length, why_no_validation
from assay.check.static.callbacks import kinds
from assay.check.static.output_paths import TEMPORARY, too_long
from assay.compose.recipe import is_chosen
from assay.config.did_you_mean import did_you_mean
from assay.config.serialize import is_whole, value_of
from assay.errors import ConfigError
from assay.quoting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.build.trainer.run_length import RunLength

_COUNTS: Final = ("epoch", "step")
"""What Lightning logs, or has at hand, in every run."""


def scores(config: DictConfig, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of the metrics that a job will log.

    Args:
        config: The job, with its `spec`.
        names: As for `check_monitors`.
    """
    is_tested = config.spec.num_test and config.trainer.get("limit_test_batches") != 0
    tested = [f"test/{name.removeprefix('val/')}" for name in names["val"]] if is_tested else []
    return [*names["train"], *(() if why_no_validation(config)[0] else names["val"]), *tested]


def check_monitors(config: DictConfig, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse the name of a metric that nobody will log.

    Args:
        config: The job, with its `spec`.
        names: Of the stages `train` and `val`, see `assay.check.proof.smoke_batch.try_parts`.

    Raises:
        ConfigError: Naming the key of the monitor.
    """
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
    """What to tell of a metric that nothing logs.

    Args:
        key: That names it.
        metric: Its name.
        known: Those that are logged.
    """
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
    for key, kind in kinds(config, "callbacks"):
        if issubclass(kind, EarlyStopping):
            looks = _early_stopping_looks(config, key, length)
            yield from _said(config, key, looks, _OF_LIGHTNING, "it cannot stop the run", least=1)
    if str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau"):
        looks = _plateau_looks(config, length)
        yield from _said(
            config, "scheduler", looks, _OF_TORCH, "the learning rate cannot be lowered", least=2
        )


def _said(
    config: DictConfig, key: str, looks: int | None, patience: int, so: str, *, least: int
) -> Iterator[str]:
    """The first look sets what is best; so many more have to be no better."""
    if is_chosen(config, f"{key}.patience"):
        return  # it follows the length
    given = value_of(config, f"{key}.patience")
    patience = given if is_whole(given) else patience
    if looks is not None and looks < max(1, patience) + least:
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
    """Each time that Lightning steps it."""
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
    """Refuse a `filename` that no checkpoint can have, and two that write one file.

    Lightning writes 0 where there is no metric of a name, and ends the run at the first checkpoint where a
    format cannot be read. Of two callbacks that write one file each overwrites, or removes, the other's.

    Args:
        config: The job.
        names: Of the metrics that will be logged; None where nobody knows.

    Raises:
        ConfigError: Naming the key.
    """
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
