"""YAML files as OmegaConf's containers."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.errors import AssayError, first_line

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import ListConfig


def load_yaml(path: Path) -> DictConfig | ListConfig:
    """What a YAML file says."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return OmegaConf.load(path)


def load_mapping(path: Path) -> DictConfig:
    """What a YAML file says that holds keys and values."""
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
