"""The options of config groups: the table that `assay configs` prints, and completion in the shell."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compose.compose import PRIMARY, loader
from assay.config.did_you_mean import did_you_mean
from assay.config.hydra_internals import completions
from assay.config.yaml_file import describe
from assay.errors import ConfigError
from assay.paths import CONF_DIR, config_folders
from assay.terminal import Console, print_rows, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Option:
    """One YAML of a group.

    Attributes:
        group: Group path, such as `optimizer` or `data/transform`.
        name: What to type after `group=`.
        description: The YAML's first comment line.
        path: The file.
    """

    group: str
    name: str
    description: str
    path: Path


def list_options(group: str = "", *folders: Path) -> list[Option]:
    """Every option of every group, sorted by group and name."""
    options = []
    for folder in folders or (CONF_DIR,):
        for path in sorted(folder.glob("*/**/*.yaml")):
            name = path.relative_to(folder).parent.as_posix()
            in_group = not group or name == group or name.startswith(f"{group}/")
            if in_group and not path.name.startswith("_"):
                options.append(Option(name, path.stem, describe(path), path))
    return sorted(options, key=lambda option: (option.group, option.name))


def groups(*folders: Path) -> list[str]:
    """Names of the groups that have at least one option."""
    return sorted({option.group for option in list_options("", *folders)})


def options_of(group: str, config_dir: Path | None) -> list[Option]:
    """The options of one group and its subgroups, or of all."""
    folders = (CONF_DIR, *config_folders(config_dir))
    options = list_options(group, *folders)
    if not options:
        names = groups(*folders)
        raise ConfigError(
            f"unknown group{did_you_mean(group, names, '; ')}",
            key=group,
            hint=f"groups: {', '.join(names)}",
        )
    return options


def print_options(options: list[Option]) -> None:
    """Print options and descriptions, a group a block."""
    console = Console(highlight=False, soft_wrap=True)
    for group in sorted({option.group for option in options}):
        console.print(group, style="bold", markup=False)
        inside = [option for option in options if option.group == group]
        print_rows(
            console, [(option.name, option.description) for option in inside], ("cyan", "")
        )


_TAKES_OVERRIDES = ("train", "try", "check", "data", "profile", "tune", "explain")
_TAKES_A_GROUP = ("configs",)
_FOLDER_OPTIONS = ("--config-dir", "-cd")
_OPTIONS_OF_A_GROUP = re.compile(r"^(\+?([\w/]+)=\[?(?:[\w/]+,)*)\w*$")


def shell_completion(request: str, verbs: Mapping[str, Sequence[str]]) -> None:
    """Answer `assay -sc install=bash`, `uninstall=…` and the shell's own `query=…`."""
    action, _, shell = request.partition("=")
    if action != "query":
        with loader() as hydra:
            hydra.shell_completion(config_name=PRIMARY, overrides=[request])
        return
    candidates = complete(os.environ.get("COMP_LINE", ""), verbs)
    # A name with a control character in it is not offered: typed, it would be another one.
    print(
        ("\n" if shell == "fish" else " ").join(
            name for name in candidates if printable(name) == name
        )
    )


def complete(line: str, verbs: Mapping[str, Sequence[str]]) -> list[str]:
    """What the last word of a command line may become."""
    words = line.split()[1:]
    last = ""
    if words and not line[-1].isspace():
        last = words.pop()
    if not words:
        return sorted(verb for verb in verbs if verb.startswith(last))
    verb, *typed = words
    if last.startswith("-"):
        return sorted(flag for flag in verbs.get(verb, ()) if flag.startswith(last))
    folder, typed = _take_folder(typed)
    if verb in _TAKES_A_GROUP:
        return [
            group for group in groups(CONF_DIR, *config_folders(folder)) if group.startswith(last)
        ]
    if verb in _TAKES_OVERRIDES:
        return _overrides(last, typed, folder)
    return []


def _take_folder(words: list[str]) -> tuple[Path | None, list[str]]:
    """The value of --config-dir, and the words that are overrides."""
    folder = None
    overrides: list[str] = []
    for index, word in enumerate(words):
        if index and words[index - 1] in _FOLDER_OPTIONS:
            if Path(word).is_dir():
                folder = Path(word)
        elif not word.startswith("-"):
            overrides.append(word)
    return folder, overrides


def _overrides(last: str, typed: list[str], folder: Path | None) -> list[str]:
    folders = (CONF_DIR, *config_folders(folder))
    if match := _OPTIONS_OF_A_GROUP.match(last):
        options = [
            option.name for option in list_options(match[2], *folders) if option.group == match[2]
        ]
        if options:
            completed = [f"{match[1]}{name}" for name in options]
            return [word for word in completed if word.startswith(last)]
    # Several values and the like cannot be composed as one run; they do not decide which keys there are.
    single = [word for word in typed if "," not in word or "[" in word]
    with loader(folder) as hydra:
        matches = completions(hydra.config_loader, PRIMARY, " ".join([*single, last]))
    candidates = [
        match for match in matches if match[-1:] in "=./" or "=" in match or "." in match
    ]
    for group in set(matches) - set(candidates):  # has options and groups in it, or groups alone
        candidates += [f"{group}/", *([f"{group}="] if group in groups(*folders) else [])]
    return sorted(candidates)
