"""YAML files as OmegaConf's containers, and what is wrong with one."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from assay.errors import AssayError, ConfigError, first_line
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from omegaconf import ListConfig


def shown(path: Path) -> str:
    """A path as a user knows it: from the current directory, or from assay's own `conf`."""
    full = path.resolve()
    if full.is_relative_to(Path.cwd()):
        return full.relative_to(Path.cwd()).as_posix()
    if full.is_relative_to(CONF_DIR.resolve()):
        return f"conf/{full.relative_to(CONF_DIR.resolve()).as_posix()}"
    return str(path)


def file_error(error: Exception, path: Path) -> ConfigError:
    """What a library says of a config file, with the file."""
    text, line, hint = first_line(error), "", ""
    if isinstance(error, UnicodeDecodeError | yaml.reader.ReaderError):
        text, hint = "cannot be read: it is no UTF-8 text", "save it as UTF-8"
    elif isinstance(error, yaml.MarkedYAMLError):
        text = f"this is no YAML: {error.problem}"
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        if "could not determine a constructor" in text:
            text, hint = "a config is plain YAML, without tags", "leave the tag out"
        elif r"'\t'" in text:
            hint = "indent with spaces"
        elif "mapping values" in text:
            hint = "one `key: value` a line, keys of one mapping in one column; text with ': ' in quotes"
    elif isinstance(error, OSError):
        text = f"cannot be read: {error.strerror}"
    elif isinstance(error.__cause__ or error, GrammarParseError):
        text, hint = f"an interpolation cannot be read: {text}", "write ${key}"
    elif text.startswith(("Expected header format", "Too many components")):
        text, line = "the first line cannot be read", ":1"
        hint = "# @package _global_, or # @package trainer, with nothing after it"
    else:
        text = re.sub(r"^In '?[^']*?'?: ", "", text)
        hint = "defaults:, then a line each: - override /model: mlp"
    return ConfigError(text, file=f"{shown(path)}{line}", hint=hint)


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
