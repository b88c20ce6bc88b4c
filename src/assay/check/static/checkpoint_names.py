"""Names of checkpoints, which may hold the epoch, the step and metrics."""

from __future__ import annotations

import os
import re
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Final

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import OmegaConf

from assay.check.static.callbacks import kinds
from assay.check.static.monitor import no_metric
from assay.check.static.output_paths import TEMPORARY, too_long
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from omegaconf import DictConfig

_COUNTS: Final = ("epoch", "step")
_WIDE: Final = re.compile(r"\d{4,}")
_FOLDER: Final = "checkpoints"
_HINT: Final = "'best-{epoch:02d}'"


def check_checkpoint_names(config: DictConfig, names: Sequence[str] | None) -> None:
    """Refuse a `filename` that no checkpoint can have.

    Lightning writes 0 where there is no metric of a name, and ends the run at the first checkpoint where a
    format cannot be read.

    Args:
        config: The job.
        names: Of the metrics that will be logged; None where nobody knows.

    Raises:
        ConfigError: Naming the key.
    """
    for key, kind in kinds(config, "callbacks"):
        node = OmegaConf.select(config, key)
        if issubclass(kind, ModelCheckpoint) and node.get("filename"):
            inserts = node.get("auto_insert_metric_name", True)
            _check(f"{key}.filename", str(node.filename), names, inserts=bool(inserts))


def _check(key: str, filename: str, names: Sequence[str] | None, *, inserts: bool) -> None:
    values = {name: torch.tensor(1) for name in _COUNTS}
    for name in _fields(key, filename):
        if names is not None and not (name in (*_COUNTS, *names) or name.startswith("lr-")):
            raise no_metric(key, name, [*_COUNTS, *names])
        values.setdefault(name, torch.tensor(0.5))
    callback = ModelCheckpoint(dirpath=_FOLDER, filename=filename, auto_insert_metric_name=inserts)
    try:
        path = callback.format_checkpoint_name(values)
    except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
        raise _refusal(key, filename, str(error)) from error
    if not Path(os.path.normpath(path)).is_relative_to(str(callback.dirpath)):
        raise _refusal(key, filename, "it is not a name of a file in the run's folder of checkpoints")
    if why := too_long(Path(path).name, TEMPORARY):
        raise _refusal(key, f"{filename[:40]}…", why)


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
