"""Hydra's composition errors as one message that names the key and what was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean, named
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.config_loader import ConfigLoader

_NO_SUCH_DEFAULT = re.compile(r"Could not (override|delete)[^']*'([^'@]*)[^']*'\. No match in the defaults list")
_MANY_OPTIONS = ("callbacks", "logger")
_OPTIONAL = ("augment", "debug", "experiment", "param_groups", "scheduler")
_NO_OPTION = "Config group override must be a string or a list"


def composition_error(error: Exception, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    """Turn what Hydra or OmegaConf raised while composing into one `ConfigError`.

    Args:
        error: The exception.
        overrides: What the user typed.
        loader: Hydra's loader, asked for the groups, options and keys there are.
    """
    text = str(error)
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, text)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _unknown_option(error, text, loader)
    if text.startswith(_NO_OPTION):
        return _no_option(overrides, loader)
    if match := re.search(r"Ambiguous value for argument '([^=]+)=(.*?)'(?:\s|$)", text):
        return _several_values(match[1], match[2])
    if match := _NO_SUCH_DEFAULT.search(text):
        return _unknown_group(match[2], overrides, loader, leaving_out=match[1] == "delete")
    if match := re.search(r"Could not override '([^']+)'", text):
        return _unknown_key(match[1], overrides, loader)
    if match := re.search(r"Could not append to config\. An item is already at '([^']+)'", text):
        return ConfigError("is there already", key=match[1], hint=f"leave out the plus: {match[1]}=…")
    if match := re.search(r"Multiple values for (\S+?)\. To override", text):
        return ConfigError("has an option already", key=match[1], hint=f"leave out the plus: {match[1]}=…")
    if match := re.search(r"Could not delete from config\. '([^']+)' does not exist", text):
        return _unknown_key(match[1], overrides, loader, leaving_out=True)
    if match := re.search(r"Could not delete from config\. The value of '([^']+)' is (.*)", text):
        return ConfigError(f"is {match[2].rstrip('.')}", key=match[1], hint=f"~{match[1]} takes it away, whatever it is")
    if match := re.search(r"'hydra\.runtime\.choices\.(\w+)' not found", text):
        options = named(_options(match[1], loader))
        return ConfigError("this group cannot be left out", key=match[1], hint=f"choose from: {options}")
    key = getattr(error, "full_key", None) or ""
    return ConfigError(" ".join(text.split("\n    full_key")[0].split()), key=str(key))


def _unreadable(override: str, text: str) -> ConfigError:
    if not override.strip("=+~ "):
        return ConfigError(f"{override!r} names no key", hint="write key=value")
    if override.startswith("="):
        return ConfigError(f"{override!r} has no key before the '='", hint=f"write key{override}")
    if "=" not in override:
        return ConfigError("has no value", key=override, hint=f"write {override}=VALUE, or ~{override} to leave it out")
    key, _, value = override.partition("=")
    return ConfigError(
        f"the value {value} cannot be read: {text.splitlines()[0]}",
        key=key.lstrip("+~"),
        hint="close every bracket; put text with spaces, commas or brackets in quotes: 'key=\"a, b\"'",
    )


def _several_values(key: str, values: str) -> ConfigError:
    return ConfigError(
        f"{values} are several values, and this is one run",
        key=key,
        hint=f"for a run of each: assay train -m {key}={values}; for a list: '{key}=[{values}]'",
    )


def _options(group: str, loader: ConfigLoader) -> list[str]:
    return [option for option in loader.get_group_options(group) if not option.startswith("_")]


def _no_option(overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    """`model=null` or `model=3`: a group takes the name of an option."""
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException:
            continue
        group, value = str(parsed.key_or_group), parsed.value()
        if not group:
            return _unreadable(override, "")
        if loader.get_group_options(group) and not isinstance(value, str | list):
            given = "null" if value is None else value
            return ConfigError(
                f"takes the name of an option; {given} is none",
                key=group,
                hint=f"choose from: {named(_options(group, loader))}" + _without(group),
            )
    return ConfigError("a group takes the name of an option", hint="see: assay configs")


def _without(group: str) -> str:
    if group in _MANY_OPTIONS:
        return f"; for none of them: {group}=[]"
    return f"; without: ~{group}" if group in _OPTIONAL else ""


def _unknown_option(error: MissingConfigException, text: str, loader: ConfigLoader) -> ConfigError:
    group, _, option = str(error.missing_cfg_file).rpartition("/")
    if not group:
        return ConfigError(" ".join(text.split()))
    options = [o for o in error.options or _options(group, loader) if not o.startswith("_")]
    guess = did_you_mean(option, options)
    return ConfigError(
        f"there is no option {option!r}{'; ' + guess if guess else ''}",
        key=group,
        hint=f"choose from: {named(options, option)}" if options else f"see: assay configs {group}",
    )


def _unknown_group(
    group: str, overrides: Sequence[str], loader: ConfigLoader, *, leaving_out: bool
) -> ConfigError:
    if not group:
        return _unreadable(next((o for o in overrides if o.startswith("=")), "="), "")
    known = [name for name in loader.get_group_options("", None) if name[0].isalpha() and name not in ("hydra", "train")]
    if group in known:
        if leaving_out:
            return ConfigError("is a list of options", key=group, hint=f"for none of them: {group}=[]")
        return ConfigError("has no option yet", key=group, hint=f"add one: +{group}=…; see: assay configs {group}")
    guess = did_you_mean(group, known)
    return ConfigError(
        f"there is no such group or key{'; ' + guess if guess else ''}",
        key=group,
        hint=f"groups: {', '.join(known)}",
    )


def _unknown_key(
    key: str, overrides: Sequence[str], loader: ConfigLoader, *, leaving_out: bool = False
) -> ConfigError:
    kept = [o for o in overrides if o.lstrip("+~").split("=", 1)[0] != key]
    known: list[str] = []
    try:
        config = loader.load_configuration("train", kept, run_mode=RunMode.RUN)
        known = [k for k in flat_keys(config) if k.startswith("hydra.") == key.startswith("hydra.")]
    except (HydraException, OmegaConfBaseException):
        pass  # a second mistake in the same line; the first is reported without a guess
    parent, _, last = key.rpartition(".")
    siblings = sorted({k.removeprefix(f"{parent}.").split(".")[0] for k in known if k.startswith(f"{parent}.")} if parent else set())
    siblings = [name for name in siblings if not name.startswith("_")]
    guess = did_you_mean(last, siblings).replace("'", f"'{parent}.", 1) if siblings else did_you_mean(key, known)
    hint = f"{parent} has: {named(siblings, last)}" if siblings else ""
    if not leaving_out:
        hint = f"{hint} (to add a new key: +{key}=…)" if hint else f"to add a new key: +{key}=…"
    if key == "run_dir":
        hint = "the run directory is set with hydra.run.dir=…"
    return ConfigError(
        f"there is no such key{'; ' + guess if guess else ''}",
        key=key,
        hint=hint or "`assay train --cfg` shows every key",
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
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation() and not node._is_missing():
            keys += flat_keys(node, f"{prefix}{name}.")
    return keys
