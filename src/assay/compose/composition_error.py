"""Errors of Hydra's as one message: the key or line, and what was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean, key_meant, named
from assay.config.hydra_internals import file_of
from assay.config.tree import walk
from assay.config.unread_keys import OF_MODULE, TOP
from assay.config.yaml_file import defaults_of_file, shown
from assay.errors import ConfigError, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.core.config_loader import ConfigLoader


_MERGED = re.compile(r"Cannot merge (\w+) with (\w+)")
_NAMES = {"DictConfig": "a mapping", "ListConfig": "a list"}
_OPTIONAL = ("augment", "debug", "experiment", "finetune", "param_groups", "scheduler")
_PLAIN = (
    (
        r"Ambiguous value for argument '([^=]+)=(.*?)'(?:\s|$)",
        "{1} are several values, and this is one run",
        "for a run of each: assay train -m {0}={1}; for a list: '{0}=[{1}]'",
    ),
    (
        r"Could not delete from config\. The value of '([^']+)' is (.*?)\.?$",
        "is {1}",
        "~{0} takes it away, whatever it is",
    ),
    (
        r"(?:Could not append to config\. An item is already at '|Multiple values for )([^']+?)(?:'|\. To)",
        "is there already",
        "leave out the plus: {0}=…",
    ),
    (
        r"'hydra\.runtime\.choices\.(\w+)' not found",
        "this group cannot be left out",
        "see: assay configs {0}",
    ),
)
"""What Hydra says, and what to say of the key and value in it."""
_NO_GROUP = re.compile(r"Could not (override|delete)[^']*'([^'@]*)[^']*'\. No match in the defaults list")
_NO_KEY = re.compile(r"Could not (override|delete)(?: from config\.)? '([^']+)'")
_NO_OPTION = re.compile(
    r"Config group override must be a string or a list|^argument of type '\w+' is not iter"
)


def composition_error(error: Exception, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    """Turn what Hydra or OmegaConf raised while composing into one `ConfigError`."""
    match = re.match(
        r"In '?([^\s':]+)'?: (?:\w+ raised while composing config:)?\s*(.*)", str(error), re.DOTALL
    )
    name, text = (match[1], match[2]) if match else ("", str(error))
    if merged := _MERGED.search(text):
        kept, given = (_NAMES.get(one, one) for one in merged.groups())
        text = f"{given} stands where {kept} belongs"
    found = _classify(error, text, overrides, loader)
    if isinstance(error, MissingConfigException):
        option = str(error.missing_cfg_file).rpartition("/")[2]
        files = [name, *(override.lstrip("+").replace("=", "/") for override in overrides)]
        lines = [] if any(one.endswith(f"/{option}") for one in files[1:]) else files
        found.add_file(next(filter(None, (_place_of(option, one, loader)[0] for one in lines)), ""))
    elif name and name != "train":
        found.add_file(next(filter(None, _place_of(found.key, name, loader)), ""))
    return found


def _place_of(word: str, name: str, loader: ConfigLoader) -> tuple[str, str]:
    """The line of a config's defaults list that names a group or option, and the file."""
    for source in loader.get_sources():
        if source.scheme() == "file" and source.is_config(name):
            path = file_of(source, name)
            items = defaults_of_file(path)
            lines = [line for item, line in items if word in re.split(r"[\s:,\[\]/@]+", item)]
            return f"{shown(path)}:{lines[0]}" if word and lines else "", shown(path)
    return "", ""


def _classify(  # noqa: PLR0911 - one for each kind of mistake
    error: Exception, text: str, overrides: Sequence[str], loader: ConfigLoader
) -> ConfigError:
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, text)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return _unknown_option(group, option, loader)
    if match := re.search(r"Error merging override ([~+]*)(.+)", text):
        return _unmergeable(match[1], match[2], error)
    if _NO_OPTION.search(text):
        return _no_option(overrides, loader)
    if text.startswith("list indices must be integers"):  # ~augment.transforms.0
        key = next((one[1:] for one in overrides if re.fullmatch(r"~.*\.\d+(=.*)?", one)), "")
        hint = f"give the whole list: {key.partition('=')[0].rpartition('.')[0]}=[…]"
        return ConfigError("one value of a list cannot be taken away", key=key, hint=hint)
    for pattern, message, hint in _PLAIN:
        if match := re.search(pattern, text, re.MULTILINE):
            return ConfigError(
                message.format(*match.groups()), key=match[1], hint=hint.format(*match.groups())
            )
    if match := _NO_GROUP.search(text):
        return _unknown_group(match[1], match[2], overrides, loader)
    if match := _NO_KEY.search(text):
        return _unknown_key(match[1], match[2], overrides, loader)
    key = getattr(error, "full_key", None) or ""
    message = " ".join(text.partition("\n    full_key")[0].split())
    return ConfigError(message or type(error).__name__, key=str(key))


def _options(group: str, loader: ConfigLoader) -> list[str]:
    return [option for option in loader.get_group_options(group) if not option.startswith("_")]


def _groups(loader: ConfigLoader) -> list[str]:
    names = loader.get_group_options("", None)
    return [name for name in names if name[0].isalpha() and name not in ("hydra", "train")]


def _unreadable(override: str, text: str) -> ConfigError:
    key, equals, value = override.partition("=")
    key = key.lstrip("+~ ")
    if not key:
        return ConfigError(f"{override!r} names no key", hint="write key=value")
    if not equals:
        hint = f"write {override}=VALUE, or ~{override} to leave it out"
        return ConfigError("has no value", key=override, hint=hint)
    return ConfigError(
        f"the value {value} cannot be read: {first_line(text)}",
        key=key,
        hint="close every bracket; put text with spaces, commas or brackets in quotes: 'key=\"a, b\"'",
    )


def _unmergeable(sign: str, override: str, error: Exception) -> ConfigError:
    key, cause = override.partition("=")[0], error
    while isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    text = first_line(cause)
    if "~" in sign and "Interpolation" in text:
        text = "its value comes with the data, so it cannot be taken away"
    return ConfigError(text, key=key, hint="`assay train --cfg` shows what is there")


_NETWORK = re.compile(r"(resne|vit|convnext|fcn|deeplab|efficientnet|densenet|vgg|swin|mobilenet|regnet)")
"""What names of networks begin with, which are no options of their own."""


def _unknown_option(group: str, option: str, loader: ConfigLoader) -> ConfigError:
    options = _options(group, loader) if group else []
    inner = group.rpartition("/")[2]
    if not options and inner in _groups(loader):  # in the list of an option: a group is looked for beside it
        hint = f"override /{inner}: {option}"
        return ConfigError(f"there is no such group; {inner} is one of its own", key=group, hint=hint)
    instead = ""
    if option in ("none", "null") and group in OF_MODULE:
        instead = f"leave the line out: a job with a custom `module` has no {group} unless that asks for one"
    if group == "model" and _NETWORK.match(option):
        instead = f"model=torchvision model.name={option}, or model=timm model.name={option}"
    return ConfigError(
        f"there is no option {option!r}{did_you_mean(option, options, '; ')}",
        key=group,
        hint=instead or (f"choose from: {named(options, option)}" if options else "see: assay configs"),
    )


def _no_option(overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    """`model=null`, `model=3` or `model=[1]`: a group takes the name of an option."""
    for override in overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException:
            continue
        group, value = str(parsed.key_or_group), parsed.value()
        if not group:
            return _unreadable(override, "")
        options = _options(group, loader)
        names = value if isinstance(value, list) else [value]
        if options and not all(isinstance(name, str) for name in names):
            without = f"; without: ~{group}" if group in _OPTIONAL else ""
            without = f"; for none of them: {group}=[]" if group in ("callbacks", "logger") else without
            what = "null" if value is None else "a mapping" if isinstance(value, dict) else value
            hint = f"choose from: {named(options)}{without}"
            return ConfigError(f"takes the name of an option; {what} is none", key=group, hint=hint)
    return ConfigError("a group takes the name of an option", hint="see: assay configs")


def _unknown_group(what: str, group: str, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    known = _groups(loader)
    if not group:
        return _unreadable(next((one for one in overrides if one.startswith("=")), "="), "")
    if group in known and what == "delete":
        return ConfigError("is a list of options", key=group, hint=f"for none of them: {group}=[]")
    if group in known:
        hint = f"add one: +{group}=…; see: assay configs {group}"
        return ConfigError("has no option yet", key=group, hint=hint)
    if group in ("hydra/sweeper/pruner", "hydra/sweeper/sampler"):
        why = "belongs to hydra/sweeper=optuna, which is not the one chosen"
        return ConfigError(why, key=group, hint="hydra/sweeper=optuna; sampler=random draws at random")
    guess = did_you_mean(group, known, "; ")
    hint = f"groups: {', '.join(known)}"
    return ConfigError(f"there is no such group or key{guess}", key=group, hint=hint)


def _unknown_key(what: str, key: str, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    if key in _groups(loader):
        return _no_option(overrides, loader)
    known = _keys(key, overrides, loader)
    parent, _, last = key.rpartition(".")
    inside = {one[len(parent) + 1 :].partition(".")[0] for one in known if one.startswith(f"{parent}.")}
    siblings = sorted(name for name in inside if not name.startswith("_"))
    if siblings:
        guess = did_you_mean(last, siblings).replace("'", f"'{parent}.", 1)
        hint = f"{parent} has: {named(siblings, last)}"
    else:
        guess = did_you_mean(key, known)
        hint = f"groups: {', '.join(_groups(loader))}" if guess and not parent else ""
    if what == "override" and parent.partition(".")[0] in TOP:  # anything else would be read by nothing
        hint = f"{hint} (to add a new key: +{key}=…)" if hint else f"to add a new key: +{key}=…"
    meant = "" if guess else key_meant(key, known)
    if meant.startswith("assay "):
        hint = meant
    elif meant:
        texts = dict(one.lstrip("+~").partition("=")[::2] for one in overrides)
        guess, hint = f"did you mean {meant!r}?", f"{meant}={texts.get(key, '…')}"
    if key == "run_dir":
        hint = "the run directory is set with hydra.run.dir=…"
    says = f"there is no such key{'; ' + guess if guess else ''}"
    return ConfigError(says, key=key, hint=hint or "`assay train --cfg` shows every key")


def _keys(without: str, overrides: Sequence[str], loader: ConfigLoader) -> list[str]:
    """Every key there is when one override is left out."""
    kept = [one for one in overrides if one.lstrip("+~").partition("=")[0] != without]
    try:
        config = loader.load_configuration("train", kept, run_mode=RunMode.RUN)
    except (HydraException, OmegaConfBaseException, ConfigError):
        return []  # a second mistake in the same line; the first is reported without a guess
    keys = [entry.key for entry in walk(config) if "[" not in entry.key]
    return [key for key in keys if key.startswith("hydra.") == without.startswith("hydra.")]
