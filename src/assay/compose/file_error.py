"""What is wrong with a config file itself, and in which line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from omegaconf import grammar_parser
from omegaconf.errors import GrammarParseError

from assay.config.hydra_internals import check_header, file_of
from assay.config.source_location import defaults, shown, written
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hydra.core.config_loader import ConfigLoader

_DEFAULTS_HINT = "defaults:, then a line each: - override /model: mlp"
_MERGED = re.compile(r"Cannot merge (\w+) with (\w+)")
_NAMES = {"DictConfig": "a mapping", "ListConfig": "a list"}


def file_error(error: Exception, overrides: Sequence[str], loader: ConfigLoader) -> ConfigError | None:
    """What an exception says about a file; None when it is about something else.

    Args:
        error: Raised while Hydra composed.
        overrides: What was typed.
        loader: Hydra's.
    """
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
    r"""The config file that one of Hydra's messages begins with, and the rest of the message.

    >>> faulty_file("In 'experiment/x': ConfigTypeError raised while composing config:\nCannot merge")
    ('experiment/x', 'Cannot merge')
    >>> faulty_file("no file")
    ('', 'no file')
    """
    match = re.match(r"In '?([^\s':]+)'?: (?:\w+ raised while composing config:)?\s*(.*)", text, re.DOTALL)
    name, rest = (match[1], match[2]) if match else ("", text)
    if merged := _MERGED.search(rest):
        kept, given = (_NAMES.get(one, one) for one in merged.groups())
        rest = f"{given} stands where {kept} belongs"
    return name, rest


def where_is(name: str, word: str, loader: ConfigLoader) -> str:
    """A config file, with the line of its defaults list that names a group or option.

    Args:
        name: Hydra's name of the config, such as `experiment/x`.
        word: The group or option.
        loader: Hydra's.
    """
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
