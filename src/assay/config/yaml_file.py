"""Reading YAML that somebody else may have written: time and memory are bounded by the size of the file."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

import yaml
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config import hydra_internals
from assay.errors import AssayError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hydra.plugins.config_source import ConfigResult
    from omegaconf import ListConfig

_LARGEST: Final = 8 << 20
"""Bytes of a config file."""
_MOST_REPEATED: Final = 100_000
"""Values that a file's aliases may stand for."""
_DEEPEST: Final = 100


def load_yaml(path: Path) -> DictConfig | ListConfig:
    """What a YAML file says.

    Args:
        path: A regular file.

    Raises:
        OSError: It cannot be read, or is a pipe or a device.
        yaml.YAMLError: It is not YAML, or would unfold into far more than it is.
        UnicodeDecodeError: It is not UTF-8.
    """
    check_yaml(path)
    return OmegaConf.load(path)


def load_mapping(path: Path) -> DictConfig:
    """What a YAML file says that holds keys and values.

    Raises:
        AssayError: It cannot be read, is not YAML, or holds something else.
    """
    try:
        config = load_yaml(path)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise AssayError(f"{path}{line} is not YAML: {error.problem}") from error
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    if not isinstance(config, DictConfig):
        raise AssayError(f"{path} does not hold a mapping")
    return config


def check_yaml(path: Path) -> None:
    """Refuse a file that would take time or memory out of all proportion to its size.

    Raises:
        OSError: As for `load_yaml`.
        yaml.YAMLError: As for `load_yaml`.
    """
    status = os.stat(path)  # noqa: PTH116 - a plain call; this is done for every file of every job
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"a config of more than {_LARGEST >> 20} MiB is not read", str(path))
    with path.open(encoding="utf-8") as file:  # errors of YAML name what a stream is called
        _check_events(file)


def _check_events(file: TextIO) -> None:
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    repeated = 0
    for event in _events(file):
        added = 0
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise _refusal("holds itself", event, file.name)
            added = sizes.get(str(event.anchor), 1)
            repeated += added
        elif isinstance(event, yaml.ScalarEvent):
            added = 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, added = open_nodes.pop()
            if anchor:
                sizes[anchor] = added
        anchor, size = open_nodes[-1]
        open_nodes[-1] = (anchor, size + added)
        if repeated > _MOST_REPEATED:
            raise _refusal(
                f"unfolds into more than {_MOST_REPEATED:,} values by its aliases", event, file.name
            )
        if len(open_nodes) > _DEEPEST:
            raise _refusal(f"is nested more than {_DEEPEST} deep", event, file.name)


def _events(file: TextIO) -> Iterator[yaml.Event]:
    """Up to an error, which whoever loads the file comes upon as well, and says in other words."""
    with suppress(yaml.YAMLError):
        yield from yaml.parse(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _refusal(problem: str, event: Any, name: str) -> yaml.MarkedYAMLError:
    at = event.start_mark
    mark = yaml.Mark(name, at.index, at.line, at.column, None, 0)
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class FileConfigSource(hydra_internals.FileConfigSource):
    """Hydra's reader of config folders, under its own name, which is how Hydra's registry knows it."""

    def load_config(self, config_path: str) -> ConfigResult:
        """Read one file.

        Args:
            config_path: Within the folder.
        """
        path = hydra_internals.file_of(self, config_path)
        if path.exists():  # otherwise Hydra says so
            check_yaml(path)
        result: ConfigResult = super().load_config(config_path)
        return result


def bound_hydra() -> None:
    """Have Hydra read folders of configs through `check_yaml`."""
    Plugins.instance()  # registers its own
    hydra_internals.read_folders_by(FileConfigSource)
