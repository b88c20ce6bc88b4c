"""Hydra's composition errors as one message that names the key and what was probably meant."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hydra.core.config_loader import ConfigLoader


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` or an empty string.

    Args:
        word: What was typed.
        known: What could have been meant.

    >>> did_you_mean("optimizr", ["optimizer", "model"])
    "did you mean 'optimizer'?"
    >>> did_you_mean("zzz", ["optimizer", "model"])
    ''
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def composition_error(error: Exception, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    """Turn what Hydra or OmegaConf raised while composing into one `ConfigError`.

    Args:
        error: The exception.
        overrides: What the user typed.
        loader: Hydra's loader, asked for the groups, options and keys there are.
    """
    text = str(error)
    if isinstance(error, OverrideParseException):
        return ConfigError(
            f"cannot be read: {text.splitlines()[0]}",
            key=error.override,
            hint="write key=value; put values with spaces, commas or brackets in quotes: 'key=\"a, b\"'",
        )
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _unknown_option(error, text, loader)
    if match := re.search(
        r"Could not (?:override|delete)[^']*'([^'@]+)[^']*'\. No match in the defaults list", text
    ):
        return _unknown_group(match[1], loader)
    if match := re.search(r"Could not override '([^']+)'", text):
        return _unknown_key(match[1], overrides, loader)
    if match := re.search(r"Could not append to config\. An item is already at '([^']+)'", text):
        return ConfigError("is there already", key=match[1], hint=f"leave out the plus: {match[1]}=…")
    if match := re.search(r"Could not delete from config\. '([^']+)' does not exist", text):
        return _unknown_key(match[1], overrides, loader)
    key = getattr(error, "full_key", None) or ""
    return ConfigError(" ".join(text.split("\n    full_key")[0].split()), key=str(key))


def _unknown_option(error: MissingConfigException, text: str, loader: ConfigLoader) -> ConfigError:
    group, _, option = str(error.missing_cfg_file).rpartition("/")
    options = [o for o in error.options or loader.get_group_options(group) if not o.startswith("_")]
    guess = did_you_mean(option, options)
    if not group:
        return ConfigError(" ".join(text.split()))
    return ConfigError(
        f"there is no option {option!r}{'; ' + guess if guess else ''}",
        key=group,
        hint=f"choose from: {', '.join(options)}" if options else f"see: assay configs {group}",
    )


def _unknown_group(group: str, loader: ConfigLoader) -> ConfigError:
    known = [name for name in loader.get_group_options("", None) if "." not in name and name != "hydra"]
    guess = did_you_mean(group, known)
    return ConfigError(
        f"there is no such group or key{'; ' + guess if guess else ''}",
        key=group,
        hint=f"groups: {', '.join(known)}",
    )


def _unknown_key(key: str, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    kept = [o for o in overrides if o.lstrip("+~").split("=", 1)[0] != key]
    known: list[str] = []
    try:
        config = loader.load_configuration("train", kept, run_mode=RunMode.RUN)
        known = [k for k in flat_keys(config) if not k.startswith("hydra.")]
    except HydraException:
        pass  # a second mistake in the same line; the first is reported without a guess
    parent = key.rpartition(".")[0]
    siblings = sorted({k[len(parent) + 1 :].split(".")[0] for k in known if k.startswith(f"{parent}.")})
    guess = did_you_mean(key, known)
    return ConfigError(
        f"there is no such key{'; ' + guess if guess else ''}",
        key=key,
        hint=f"{parent} has: {', '.join(siblings)} (to add a new key: +{key}=…)"
        if siblings
        else f"to add a new key: +{key}=…",
    )


def flat_keys(config: DictConfig, prefix: str = "") -> list[str]:
    """Every key of a config as a dotted path, inner nodes included.

    Args:
        config: A config; interpolations are not followed.
        prefix: Put before each key.

    >>> flat_keys(OmegaConf.create({"a": {"b": 1}, "c": 2}))
    ['a', 'a.b', 'c']
    """
    keys = []
    for name in config:
        keys.append(f"{prefix}{name}")
        node = config._get_node(name)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():
            keys += flat_keys(node, f"{prefix}{name}.")
    return keys
