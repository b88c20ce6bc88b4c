"""Errors of Hydra's and of config files as one message: the key or line, and what was probably meant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import grammar_parser
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean, key_meant, named
from assay.config.hydra_internals import check_header, file_of
from assay.config.source_location import defaults, shown, written
from assay.config.tree import walk
from assay.config.unread_keys import OF_MODULE, TOP
from assay.errors import ConfigError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader


_DEFAULTS_HINT = "defaults:, then a line each: - override /model: mlp"
_MERGED = re.compile(r"Cannot merge (\w+) with (\w+)")
_NAMES = {"DictConfig": "a mapping", "ListConfig": "a list"}


def file_error(error: Exception, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError | None:
    """What an exception says about a file; None when it is about something else."""
    if isinstance(error, yaml.MarkedYAMLError):
        return _no_yaml(error)
    if isinstance(error, OSError) and error.filename:
        return ConfigError(f"cannot be read: {error.strerror}", file=shown(Path(error.filename)))
    if match := re.match(r"Invalid defaults list in '([^']+)'", str(error)):
        file = where_is(match[1], "", loader)
        return ConfigError("the defaults list is not a list", file=file, hint=_DEFAULTS_HINT)
    for says, fault, problem, hint in _FAULTS:
        if says(error):
            file = _search(overrides, loader, fault)
            return ConfigError(problem, file=file, hint=hint) if file else None
    return None


def faulty_file(text: str) -> tuple[str, str]:
    r"""The config file that one of Hydra's messages begins with, and the rest of the message."""
    match = re.match(r"In '?([^\s':]+)'?: (?:\w+ raised while composing config:)?\s*(.*)", text, re.DOTALL)
    name, rest = (match[1], match[2]) if match else ("", text)
    if merged := _MERGED.search(rest):
        kept, given = (_NAMES.get(one, one) for one in merged.groups())
        rest = f"{given} stands where {kept} belongs"
    return name, rest


def where_is(name: str, word: str, loader: ConfigLoader) -> str:
    """A config file, with the line of its defaults list that names a group or option."""
    for source in loader.get_sources():
        if source.scheme() == "file" and source.is_config(name):
            path = file_of(source, name)
            lines = [line for item, line in defaults(path) if word and word in _words(item)]
            return f"{shown(path)}:{lines[0]}" if lines else shown(path)
    return ""


def who_names(option: str, overrides: Sequence[str], loader: ConfigLoader) -> str:
    """The line of a defaults list that names an option; empty when only the command line does."""
    if any(option in re.split(r"[=,\[\]]", override)[1:] for override in overrides):
        return ""

    def names_it(path: Path) -> int:
        return next((line for item, line in defaults(path) if option in _words(item)), 0)

    return _search(overrides, loader, names_it)


def _words(item: str) -> list[str]:
    """Every group and option in one item of a defaults list."""
    return re.split(r"[\s:,\[\]/@]+", item)


def _search(overrides: Sequence[str], loader: ConfigLoader, fault: Callable[[Path], int]) -> str:
    """The first file with the fault: among those that were typed, the user's own, and assay's."""
    typed = set(re.split(r"[=,\[\]/\s]", " ".join(overrides)))
    for path in sorted(_files(loader), key=lambda path: path.stem not in typed):
        try:
            line = fault(path)
        except (yaml.YAMLError, UnicodeDecodeError):
            continue  # another fault, in a file that need not be read
        if line:
            return f"{shown(path)}:{line}"
    return ""


def _files(loader: ConfigLoader) -> Iterator[Path]:
    for source in loader.get_sources():
        if source.scheme() == "file":
            yield from sorted(Path(source.path).rglob("*.yaml"))


def _no_yaml(error: yaml.MarkedYAMLError) -> ConfigError:
    mark, problem, hint = error.problem_mark, str(error.problem), ""
    if duplicate := re.fullmatch("found duplicate key (.*)", problem):
        problem = f"the key {duplicate[1]} is there twice"
    elif tag := re.search("could not determine a constructor for the tag '(.*)'", problem):
        problem, hint = f"the tag {tag[1]} is not read: a config is plain YAML", "leave the tag out"
    else:
        problem = f"this is no YAML: {problem}"
        hint = "indent with spaces" if r"'\t'" in problem else ""
        if "mapping values" in problem:
            hint = "one `key: value` a line, keys of one mapping in one column; text with ': ' in quotes"
    return ConfigError(problem, file=f"{shown(Path(mark.name))}:{mark.line + 1}" if mark else "", hint=hint)


def _undecodable(path: Path) -> int:
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            return number
    return 0


def _bad_header(path: Path) -> int:
    try:
        check_header(path.read_text(encoding="utf-8")[:512])
    except ValueError:
        return 1
    return 0


def _bad_interpolation(path: Path) -> int:
    for one in written(path):
        if one.kind == "value" and "${" in one.text:
            try:
                grammar_parser.parse(one.text)
            except GrammarParseError:
                return one.line
    return 0


def _bad_default(path: Path) -> int:
    """The line of an item that is, or has, something else than a name."""
    for item, line in defaults(path):
        value = yaml.safe_load(item.partition(": ")[2] or item)
        if not isinstance(value, str | list | None):
            return line
    return 0


_FAULTS: tuple[tuple[Callable[[Exception], bool], Callable[[Path], int], str, str], ...] = (
    (
        lambda error: isinstance(error, UnicodeDecodeError | yaml.YAMLError),
        _undecodable,
        "cannot be read: it is no UTF-8 text",
        "save it as UTF-8",
    ),
    (
        lambda error: isinstance(error.__cause__ or error, GrammarParseError),
        _bad_interpolation,
        "an interpolation cannot be read",
        "write ${key}",
    ),
    (
        lambda error: str(error).startswith(("Expected header format", "Too many components")),
        _bad_header,
        "the first line cannot be read",
        "# @package _global_, or # @package trainer, with nothing after it",
    ),
    (
        lambda error: "item value in defaults" in str(error),
        _bad_default,
        "an item of the defaults list names no option",
        _DEFAULTS_HINT,
    ),
)
"""What Hydra says without naming a file: how to know it, and how to find the line."""


_MANY_OPTIONS = ("callbacks", "logger")
_OF_OPTUNA = ("hydra/sweeper/pruner", "hydra/sweeper/sampler")
_OPTUNA, _LOG = "hydra/sweeper=optuna", "leave it out: every run writes its log.txt"
_INSTEAD_OF_PLUGINS = {
    "hydra/launcher/joblib": "leave it out: jobs run side by side, hydra.launcher.jobs_at_once=4 is n_jobs=4",
    "hydra/launcher/submitit_slurm": "hydra/launcher=slurm, whose hydra.launcher.time is timeout_min",
    "hydra/launcher/submitit_local": "hydra/launcher=local",
    "hydra/launcher/ray_aws": "hydra/launcher=ray hydra.launcher.address=…",
    "hydra/sweeper/ax": _OPTUNA,
    "hydra/sweeper/nevergrad": _OPTUNA,
    "hydra/job_logging/colorlog": _LOG,
    "hydra/hydra_logging/colorlog": _LOG,
}
"""Options that Hydra's plugins bring elsewhere, and what does the same here."""
_OPTIONAL = ("augment", "debug", "experiment", "finetune", "param_groups", "scheduler")


@dataclass(frozen=True)
class _Mistake:
    """What Hydra's message says, what was typed, and what there is."""

    parts: tuple[str, ...]
    overrides: Sequence[str]
    loader: ConfigLoader

    def options(self, group: str) -> list[str]:
        return [option for option in self.loader.get_group_options(group) if not option.startswith("_")]

    def value(self, key: str) -> str:
        texts = (one.lstrip("+~").partition("=") for one in self.overrides)
        return next((value for name, _, value in texts if name == key), "…")

    def groups(self) -> list[str]:
        names = self.loader.get_group_options("", None)
        return [name for name in names if name[0].isalpha() and name not in ("hydra", "train")]

    def keys(self, without: str) -> list[str]:
        """Every key there is when one override is left out."""
        kept = [one for one in self.overrides if one.lstrip("+~").partition("=")[0] != without]
        try:
            config = self.loader.load_configuration("train", kept, run_mode=RunMode.RUN)
        except (HydraException, OmegaConfBaseException):
            return []  # a second mistake in the same line; the first is reported without a guess
        keys = [entry.key for entry in walk(config) if "[" not in entry.key]
        return [key for key in keys if key.startswith("hydra.") == without.startswith("hydra.")]


def composition_error(error: Exception, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    """Turn what Hydra or OmegaConf raised while composing into one `ConfigError`."""
    if (found := file_error(error, overrides, loader)) is not None:
        return found
    name, text = faulty_file(str(error))
    found = _classified(error, text, overrides, loader)
    if isinstance(error, MissingConfigException):
        option = str(error.missing_cfg_file).rpartition("/")[2]
        found.add_file(who_names(option, overrides, loader))
    elif name and name != "train":
        found.add_file(where_is(name, found.key, loader))
    return found


def _classified(error: Exception, text: str, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError:
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, text)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return _unknown_option(_Mistake((group, option), overrides, loader))
    if match := re.search(r"Error merging override ([~+]*)(.+)", text):
        return _unmergeable(match[1], match[2], error)
    for pattern, explain in _KINDS:
        if match := re.search(pattern, text):
            return explain(_Mistake(match.groups(), overrides, loader))
    key = getattr(error, "full_key", None) or ""
    message = " ".join(text.partition("\n    full_key")[0].split())
    return ConfigError(message or type(error).__name__, key=str(key))


def _unreadable(override: str, text: str) -> ConfigError:
    if not override.strip("=+~ "):
        return ConfigError(f"{override!r} names no key", hint="write key=value")
    if override.startswith("="):
        return ConfigError(f"{override!r} has no key before the '='", hint=f"write key{override}")
    if "=" not in override:
        ways = f"write {override}=VALUE, or ~{override} to leave it out"
        return ConfigError("has no value", key=override, hint=ways)
    key, _, value = override.partition("=")
    return ConfigError(
        f"the value {value} cannot be read: {first_line(text)}",
        key=key.lstrip("+~"),
        hint="close every bracket; put text with spaces, commas or brackets in quotes: 'key=\"a, b\"'",
    )


def _unmergeable(sign: str, override: str, error: Exception) -> ConfigError:
    key, cause = override.partition("=")[0], error
    while isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    text = first_line(cause)
    if "~" in sign and "Interpolation" in text:
        hint = "choose another option of the group, or write one of your own into ./conf"
        return ConfigError("its value comes with the data, so it cannot be taken away", key=key, hint=hint)
    return ConfigError(text, key=key, hint="`assay train --cfg` shows what is there")


def _unknown_option(mistake: _Mistake) -> ConfigError:
    group, option = mistake.parts
    options = mistake.options(group) if group else []
    inner = group.rpartition("/")[2]
    if not options and inner in mistake.groups():  # in the list of an option, a group is looked for beside it
        return ConfigError(
            f"there is no such group; {inner} is one of its own",
            key=group,
            hint=f"override /{inner}: {option}",
        )
    instead = _INSTEAD_OF_PLUGINS.get(f"{group}/{option}")
    if option in ("none", "null") and group in OF_MODULE:
        instead = f"leave the line out: a job with a custom `module` has no {group} unless that asks for one"
    return ConfigError(
        f"there is no option {option!r}{did_you_mean(option, options, '; ')}",
        key=group,
        hint=instead or (f"choose from: {named(options, option)}" if options else "see: assay configs"),
    )


def _no_option(mistake: _Mistake) -> ConfigError:
    """`model=null`, `model=3` or `model=[1]`: a group takes the name of an option."""
    for override in mistake.overrides:
        try:
            parsed = OverridesParser.create().parse_override(override)
        except HydraException:
            continue
        group, value = str(parsed.key_or_group), parsed.value()
        if not group:
            return _unreadable(override, "")
        options = mistake.options(group)
        names = value if isinstance(value, list) else [value]
        if not options or all(isinstance(name, str) for name in names):
            continue
        if isinstance(value, dict):
            ways = " ".join(f"{group}.{name}={inner}" for name, inner in value.items())
            return ConfigError(
                "takes the name of an option, not a mapping", key=group, hint=f"its values one by one: {ways}"
            )
        without = f"; without: ~{group}" if group in _OPTIONAL else ""
        if group in _MANY_OPTIONS:
            without = f"; for none of them: {group}=[]"
        return ConfigError(
            f"takes the name of an option; {'null' if value is None else value} is none",
            key=group,
            hint=f"choose from: {named(options)}{without}",
        )
    return ConfigError("a group takes the name of an option", hint="see: assay configs")


def _of_a_list(mistake: _Mistake) -> ConfigError:
    """`~augment.transforms.0`: OmegaConf takes away what is in a mapping alone."""
    key = next((one[1:] for one in mistake.overrides if re.fullmatch(r"~.*\.\d+(=.*)?", one)), "")
    around = key.partition("=")[0].rpartition(".")[0]
    return ConfigError(
        "one value of a list cannot be taken away", key=key, hint=f"give the whole list: {around}=[…]"
    )


def _several_values(mistake: _Mistake) -> ConfigError:
    key, values = mistake.parts
    return ConfigError(
        f"{values} are several values, and this is one run",
        key=key,
        hint=f"for a run of each: assay train -m {key}={values}; for a list: '{key}=[{values}]'",
    )


def _unknown_group(mistake: _Mistake) -> ConfigError:
    what, group = mistake.parts
    known = mistake.groups()
    if not group:
        return _unreadable(next((one for one in mistake.overrides if one.startswith("=")), "="), "")
    if group in known and what == "delete":
        return ConfigError("is a list of options", key=group, hint=f"for none of them: {group}=[]")
    if group in known:
        return ConfigError(
            "has no option yet", key=group, hint=f"add one: +{group}=…; see: assay configs {group}"
        )
    if group in _OF_OPTUNA:
        return ConfigError(
            "belongs to hydra/sweeper=optuna, which is not the one chosen",
            key=group,
            hint="hydra/sweeper=optuna, which with hydra/sweeper/sampler=random draws at random",
        )
    return ConfigError(
        f"there is no such group or key{did_you_mean(group, known, '; ')}",
        key=group,
        hint=f"groups: {', '.join(known)}",
    )


def _unknown_key(mistake: _Mistake) -> ConfigError:
    what, key = mistake.parts
    known = mistake.keys(without=key)
    parent, _, last = key.rpartition(".")
    inside = {
        one.removeprefix(f"{parent}.").partition(".")[0] for one in known if one.startswith(f"{parent}.")
    }
    siblings = sorted(name for name in inside if not name.startswith("_"))
    if siblings:
        guess = did_you_mean(last, siblings).replace("'", f"'{parent}.", 1)
        hint = f"{parent} has: {named(siblings, last)}"
    else:
        guess = did_you_mean(key, known)
        hint = f"groups: {', '.join(mistake.groups())}" if guess and not parent else ""
    if what == "override" and parent.partition(".")[0] in TOP:  # anything else would be read by nothing
        hint = f"{hint} (to add a new key: +{key}=…)" if hint else f"to add a new key: +{key}=…"
    meant = "" if guess else key_meant(key, known)
    if meant.startswith("assay "):
        hint = meant
    elif meant:
        guess, hint = f"did you mean {meant!r}?", f"{meant}={mistake.value(key)}"
    if key in mistake.groups():
        return _no_option(mistake)
    if key == "run_dir":
        hint = "the run directory is set with hydra.run.dir=…"
    return ConfigError(
        f"there is no such key{'; ' + guess if guess else ''}",
        key=key,
        hint=hint or "`assay train --cfg` shows every key",
    )


def _there_already(mistake: _Mistake) -> ConfigError:
    (key,) = mistake.parts
    return ConfigError("is there already", key=key, hint=f"leave out the plus: {key}=…")


def _another_value(mistake: _Mistake) -> ConfigError:
    key, value = mistake.parts
    return ConfigError(f"is {value.rstrip('.')}", key=key, hint=f"~{key} takes it away, whatever it is")


def _cannot_be_left_out(mistake: _Mistake) -> ConfigError:
    (group,) = mistake.parts
    hint = f"choose from: {named(mistake.options(group))}"
    return ConfigError("this group cannot be left out", key=group, hint=hint)


_KINDS: tuple[tuple[str, Callable[[_Mistake], ConfigError]], ...] = (
    (r"Config group override must be a string or a list", _no_option),
    (r"^argument of type '\w+' is not iterable$", _no_option),
    (r"^list indices must be integers", _of_a_list),
    (r"Ambiguous value for argument '([^=]+)=(.*?)'(?:\s|$)", _several_values),
    (r"Could not (override|delete)[^']*'([^'@]*)[^']*'\. No match in the defaults list", _unknown_group),
    (r"Could not (override) '([^']+)'", _unknown_key),
    (r"Could not (delete) from config\. '([^']+)' does not exist", _unknown_key),
    (r"Could not delete from config\. The value of '([^']+)' is (.*)", _another_value),
    (r"Could not append to config\. An item is already at '([^']+)'", _there_already),
    (r"Multiple values for (\S+?)\. To override", _there_already),
    (r"'hydra\.runtime\.choices\.(\w+)' not found", _cannot_be_left_out),
)
"""Hydra says what went wrong in its message alone."""
