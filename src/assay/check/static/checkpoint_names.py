"""Names of checkpoints, which may hold the epoch, the step and metrics."""

from __future__ import annotations

import os
import re
import zlib
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
