"""YAML files: as OmegaConf's containers, line by line, and what is wrong with one."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from omegaconf import DictConfig
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from assay.config.omegaconf_internals import load_unlimited
from assay.errors import AssayError, ConfigError, first_line
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from omegaconf import ListConfig


def display_path(path: Path) -> str:
    """A path as shown to users: relative to the current directory, or from assay's own `conf`."""
    full = path.resolve()
    if full.is_relative_to(Path.cwd()):
        return full.relative_to(Path.cwd()).as_posix()
    if full.is_relative_to(CONF_DIR.resolve()):
        return f"conf/{full.relative_to(CONF_DIR.resolve()).as_posix()}"
    return str(path)


def file_error(error: Exception, path: Path) -> ConfigError:
    """Translate a library's error about a config file, with the file."""
    text = first_line(error)
    line = ""
    hint = ""
    if isinstance(error, UnicodeDecodeError | yaml.reader.ReaderError):
        text = "cannot be read: it is not UTF-8 text"
        hint = "save it as UTF-8"
    elif isinstance(error, yaml.MarkedYAMLError):
        text = f"invalid YAML: {error.problem}"
        line = ""
        if error.problem_mark:
            line = f":{error.problem_mark.line + 1}"
        if "could not determine a constructor" in text:
            text = "expected plain YAML, without tags"
            hint = "remove the tag"
        elif "cannot start any token" in text:
            hint = "indent with spaces; put text that begins with @, % or ` in quotes"
        elif "mapping values" in text:
            hint = "one `key: value` per line, the keys of a mapping in one column; quote text with ': '"
    elif isinstance(error, OSError):
        text = f"cannot be read: {error.strerror}"
    elif isinstance(error.__cause__ or error, GrammarParseError):
        text = f"invalid interpolation: {text}"
        hint = "write ${key}"
    elif text.startswith(("Expected header format", "Too many components")):
        text = "invalid first line"
        line = ":1"
        hint = "# @package _global_, or # @package trainer, with nothing after it"
    else:
        text = re.sub(r"^In '?[^']*?'?: ", "", text)
        hint = "write defaults:, then one line each, such as - override /model: mlp"
    return ConfigError(text, file=f"{display_path(path)}{line}", hint=hint)


def load_yaml(path: Path) -> DictConfig | ListConfig:
    """Load a YAML file."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return load_unlimited(path)


def load_mapping(path: Path) -> DictConfig:
    """Load a YAML file that holds a mapping."""
    try:
        config = load_yaml(path)
    except yaml.MarkedYAMLError as error:
        line = ""
        if error.problem_mark:
            line = f":{error.problem_mark.line + 1}"
        raise AssayError(f"{path}{line} is not YAML: {error.problem}") from error
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    if not isinstance(config, DictConfig):
        raise AssayError(f"{path} does not hold a mapping")
    return config


def describe(path: Path) -> str:
    """The first comment line of a YAML that is no `@package` directive; empty if there is none."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        if text and not text.startswith("@package"):
            return text
    return ""
