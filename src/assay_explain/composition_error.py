"""Errors of Hydra's as one message: the key or file, and what was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean, guess_key, list_names
from assay.config.hydra_internals import config_file
from assay.config.tree import walk
from assay.config.unread_keys import TOP, missing_header
from assay.config.yaml_file import display_path
from assay.errors import ConfigError, causes, first_line
from assay.paths import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader

_PLAIN = (
    (
        r"Ambiguous value for argument '([^=]+)=(.*?)'(?:\s|$)",
        "{1} are several values, but this is a single run",
        "for a run of each: assay train -m {0}={1}; for a list: '{0}=[{1}]'",
    ),
    (
        r"Could not delete from config\. The value of '([^']+)' is (.*?)\.?$",
        "is {1}",
        "~{0} removes it, whatever its value",
    ),
    (
        r"(?:Could not append to config\. An item is already at '|Multiple values for )([^']+?)(?:'|\. To)",
        "already exists",
        "leave out the plus: {0}=…",
    ),
    (
        r"'hydra\.runtime\.choices\.(\w+)' not found",
        "this group cannot be left out",
        "see: assay configs {0}",
    ),
    (
        r"Could not delete[^']*'(callbacks|logger)'\. No match in the defaults list",
        "is a list of options",
        "for none of them: {0}=[]",
    ),
    (
        r"(Parent traversal) \('\.\.'\)",
        "a config of another group cannot be reached by '..'",
        "name its group: group=OPTION; in a defaults list /group: OPTION",
    ),
    (
        r"Could not override[^']*'(hydra/sweeper/\w+)",
        "belongs to hydra/sweeper=optuna, which is not selected",
        "hydra/sweeper=optuna; sampler=random draws at random",
    ),
    (
        r"Sweeping over Hydra's configuration [^']*'\+*hydra\.sweeper\.params\.([^=]+)=(.*)'",
        "is swept where it is typed by itself",
        "{0}={1}",
    ),
    (
        r"Sweeping over Hydra's configuration [^']*'\+*([^=]+)=(.*)'",
        "got {1}, but all jobs of a sweep share this value",
        "type a command for each",
    ),
)
"""Patterns of Hydra's messages, and the message and hint that replace them."""
SWEEPS = "KEY=a,b, choice(a,b), range(1,10), interval(0.1,1) or tag(log, interval(1e-5, 1e-1))"
_UNKNOWN = re.compile(
    r"(?:Could not|Invalid Defaults List) (override|delete)(?: from config\.)?[^']*'/?([^'@:]+)"
)
_RENAMED = {
    "hydra.launcher.n_jobs": "hydra.launcher.jobs_at_once",
    "hydra.sweeper.n_jobs": "hydra.launcher.jobs_at_once",
    "hydra.sweeper.n_trials": "hydra.sweeper.num_trials",
    "run_dir": "hydra.run.dir",
}
"""Keys of Hydra's plugins and of records, and those that mean the same."""
_NO_OPTION = re.compile(
    r"Config group override must be a string or a list|^argument of type '\w+' is not iter"
)


def composition_error(
    error: Exception, overrides: Sequence[str], loader: ConfigLoader
) -> ConfigError:
    """Turn what Hydra or OmegaConf raised while composing into one `ConfigError`."""
    match = re.match(
        r"In '?([^\s':]+)'?: (?:\w+ raised while composing config:)?\s*(.*)",
        str(error),
        re.DOTALL,
    )
    name = ""
    text = str(error)
    if match:
        name, text = match.groups()
    group = name.partition("/")[0]
    if group in PACKAGES and f"@{group}." in text:
        problem = missing_header(group)
    else:
        problem = _classify(error, text, overrides, loader)
    names = []
    if name not in ("", "train"):
        names = [name]
    option = ""
    # perhaps an experiment names it, as an override
    if isinstance(error, MissingConfigException):
        names += [item.lstrip("+").replace("=", "/") for item in overrides]
        option = str(error.missing_cfg_file).rpartition("/")[2]
    for path in filter(
        None, (config_file(cast("Any", loader).repository, item) for item in names)
    ):
        if option in path.read_text(encoding="utf-8"):
            problem.add_file(display_path(path))
    return problem


def _classify(  # noqa: PLR0911 - one for each kind of mistake
    error: Exception, text: str, overrides: Sequence[str], loader: ConfigLoader
) -> ConfigError:
    typed = dict(item.lstrip("+~").partition("=")[::2] for item in overrides)
    if isinstance(error, OverrideParseException) or "" in typed:
        override = (
            error.override if isinstance(error, OverrideParseException) else f"={typed['']}"
        )
        return _unreadable(override, text, overrides, loader)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return _unknown_option(group, option, loader)
    if match := re.search(r"Error merging override ([~+]*)([^=]+)", text):
        text = first_line([*causes(error)][-1])
        if "~" in match[1] and "Interpolation" in text:
            text = "its value comes from the data, so it cannot be removed"
        return ConfigError(text, key=match[2], hint="`assay train --cfg` shows every key")
    lost = re.search(r"'hydra\.runtime\.choices\.(\w+)' not found", text)
    if lost and typed.get(lost[1], "").startswith("["):
        names = typed[lost[1]]
        hint = f"for a run of each: assay train -m {lost[1]}={names.strip('[]')}"
        return ConfigError(
            f"expected the name of one option, got {names}", key=lost[1], hint=hint
        )
    for pattern, message, hint in _PLAIN:
        if match := re.search(pattern, text, re.MULTILINE):
            return ConfigError(
                message.format(*match.groups()), key=match[1], hint=hint.format(*match.groups())
            )
    groups = _groups(loader)
    match = _UNKNOWN.search(text)
    if _NO_OPTION.search(text) or (match and match[2] in groups):
        for group in groups:
            options = _options(group, loader)
            names = typed.get(group, "[]")
            if names != "[]" and not {*names.strip("[]").split(",")} <= {*options}:
                hint = f"choose from: {list_names(options)}; for none: ~{group}, and of a list {group}=[]"
                value = f"got {typed[group] or 'nothing'}"
                return ConfigError(
                    f"expected the name of an option, {value}", key=group, hint=hint
                )
    if match and match[2] in groups:
        hint = f"add one: +{match[2]}=…; see: assay configs {match[2]}"
        return ConfigError("has no options yet", key=match[2], hint=hint)
    if match:
        return _unknown_key(match[1], _inner_key(error, match[2]), typed, overrides, loader)
    message = " ".join(text.partition("\n    full_key")[0].split())
    return ConfigError(
        message or type(error).__name__, key=str(getattr(error, "full_key", None) or "")
    )


def _options(group: str, loader: ConfigLoader) -> list[str]:
    return [option for option in loader.get_group_options(group) if not option.startswith("_")]


def _groups(loader: ConfigLoader) -> list[str]:
    names = loader.get_group_options("", None)
    return [name for name in names if name[0].isalpha() and name not in ("hydra", "train")]


def _unreadable(
    override: str, text: str, overrides: Sequence[str], loader: ConfigLoader
) -> ConfigError:
    key, equals, value = override.partition("=")
    readable = [f"{key}=[]" if item == override else item for item in overrides]
    key = key.lstrip("+~ ")
    if not key:
        return ConfigError(f"{override!r} names no key", hint="write key=value")
    if not equals:
        hint = f"write {override}=VALUE, or ~{override} to leave it out"
        return ConfigError("has no value", key=override, hint=hint)
    try:
        loader.load_configuration("train", readable, RunMode.RUN)
    except ConfigCompositionException as error:  # a misspelt key comes first
        return composition_error(error, overrides, loader)
    except HydraException:
        pass
    hint = (
        "close every bracket; put text with spaces, commas or brackets in quotes: 'key=\"a, b\"'"
    )
    if "while evaluating" in text:
        hint = SWEEPS
    return ConfigError(
        f"cannot parse the value {value}: {reason_of_parser(text)}", key=key, hint=hint
    )


_REPEATED = re.compile(
    r"\A(Error when parsing index.*\n)?(Error parsing override.*\n(.* while evaluating .*?': )?)?"
)


def reason_of_parser(text: str) -> str:
    """What Hydra's parser says of a value: after lines that repeat it, and the name of a class."""
    return first_line(_REPEATED.sub("", text)).rstrip(".")


def _unknown_option(group: str, option: str, loader: ConfigLoader) -> ConfigError:
    options = []
    if group:
        options = _options(group, loader)
    inner = group.rpartition("/")[2]
    # in the list of an option: a group is looked for beside it
    if not options and inner in _groups(loader):
        hint = f"override /{inner}: {option}"
        return ConfigError(f"unknown group; {inner} is a top-level group", key=group, hint=hint)
    hint = "see: assay configs"
    if options:
        hint = f"choose from: {list_names(options, option)}"
    guess = did_you_mean(option, options, "; ")
    if group in ("hydra/launcher", "hydra/sweeper") and (instead := instead_of_plugin(option)):
        guess = "; assay does not run launchers and sweepers of Hydra's interface"
        hint = instead
    return ConfigError(f"unknown option {option!r}{guess}", key=group, hint=hint)


def _inner_key(error: Exception, key: str) -> str:
    """The key that is unknown: of a mapping that was typed, one within it."""
    inner = str(getattr(error.__cause__, "full_key", None))
    if inner.startswith(f"{key}."):
        return inner
    return key


def _unknown_key(
    action: str,
    key: str,
    typed: Mapping[str, str],
    overrides: Sequence[str],
    loader: ConfigLoader,
) -> ConfigError:
    if key in _RENAMED:
        return ConfigError("unknown key", key=key, hint=f"{_RENAMED[key]}={typed.get(key, '…')}")
    groups = _groups(loader)
    keys = _keys(key, overrides, loader)
    if action == "override" and (option := _option_to_add(key, typed, keys, loader)):
        return ConfigError("unknown key or group", key=key, hint=f"{option} adds it")
    parent, _, last = key.rpartition(".")
    if parent == "module" and "module" in typed:
        hint = f"+{key}={typed.get(key, '…')} if its class takes {last}, or write {last}: into its YAML"
        return ConfigError(f"module={typed['module']} has no such key", key=key, hint=hint)
    beside = [
        path.rpartition(".")[2] for path in keys if parent and path.rpartition(".")[0] == parent
    ]
    siblings = sorted(name for name in beside if not name.startswith("_"))
    guess = did_you_mean(last, siblings).replace("'", f"'{parent}.", 1)
    owner = parent
    is_mapping = typed.get(parent, "").startswith("{")
    if parent in typed and not is_mapping:
        owner = f"{parent}={typed[parent]}"
    hint = f"groups: {', '.join(groups)}"
    if siblings:
        hint = f"{owner} has: {list_names(siblings, last)}"
    # nothing would read others
    if action == "override" and not guess and parent.partition(".")[0] in TOP:
        add = f"to add a new key: +{key}=…"
        hint = f"{hint} ({add})" if siblings else add
    meant = ""
    if not guess and not is_mapping:
        meant = guess_key(key, keys)
    if meant:
        guess = f"did you mean {meant!r}?"
        hint = f"{meant}={typed.get(key, '…')}"
    guess = guess or ("" if parent else did_you_mean(key, groups))
    return ConfigError(f"unknown key or group{'; ' * bool(guess)}{guess}", key=key, hint=hint)


_LISTS = {"callbacks": "default", "logger": "csv"}
"""Groups of which several options are chosen, and which is by default."""


def _option_to_add(
    key: str, typed: Mapping[str, str], keys: Sequence[str], loader: ConfigLoader
) -> str:
    """The choice that makes the node of a key, which is an option that was not chosen; else nothing."""
    group, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    is_there = any(item.startswith(f"{group}.{name}.") for item in keys)
    if group not in _LISTS or is_there or name not in loader.get_group_options(group):
        return ""
    chosen = typed.get(group, _LISTS[group]).strip("[]")
    return f"{group}=[{chosen},{name}]"


def _keys(beside: str, overrides: Sequence[str], loader: ConfigLoader) -> list[str]:
    """All keys of the config that the chosen options make: of Hydra's own for one of them, or all others."""
    choices = [
        item
        for item in overrides
        if "." not in (name := item.partition("=")[0]) and name != beside
    ]
    try:
        config = loader.load_configuration("train", choices, run_mode=RunMode.MULTIRUN)
    except (HydraException, OmegaConfBaseException, ConfigError):
        return []  # a second mistake in the same line; the first is reported without a guess
    keys = [entry.key for entry in walk(config) if "[" not in entry.key]
    return [key for key in keys if key.startswith("hydra.") == beside.startswith("hydra.")]


_INSTEAD = {
    "submitit_local": "hydra/launcher=local",
    "submitit": "hydra/launcher=slurm",
    "joblib": "hydra/launcher=local hydra.launcher.jobs_at_once=4",
    "ray": "hydra/launcher=ray",
    "rq": "hydra/launcher=local",
    "optuna": "hydra/sweeper=optuna",
    **dict.fromkeys(("ax", "nevergrad"), "hydra/sweeper=optuna"),
}
"""Words in the names of Hydra's launchers and sweepers, and what does the same; see docs/convert.md."""


def instead_of_plugin(name: str) -> str:
    """What does the same as a launcher or sweeper of Hydra's, by its option or class; else empty."""
    if name.endswith("submitit_launcher.LocalLauncher"):
        return _INSTEAD["submitit_local"]
    words = re.split(r"[._]", name)
    return next((_INSTEAD[word] for word in _INSTEAD if word in (name, *words)), "")
