"""Tab completion of verbs, groups, options and keys, by Hydra's own completion of overrides."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from assay.compose.compose import PRIMARY, loader
from assay.compose.listing import groups, list_options
from assay.config.hydra_internals import completions
from assay.paths import CONF_DIR, project_conf
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TAKES_OVERRIDES = ("train", "explain")
_TAKES_A_GROUP = ("configs",)
_FOLDER_OPTIONS = ("--config-dir", "-cd")
_OPTIONS_OF_A_GROUP = re.compile(r"^(\+?([\w/]+)=\[?(?:[\w/]+,)*)\w*$")


def shell_completion(request: str, verbs: Mapping[str, Sequence[str]]) -> None:
    """Answer `assay -sc install=bash`, `uninstall=…` and the shell's own `query=…`."""
    what, _, shell = request.partition("=")
    if what != "query":
        with loader() as hydra:
            hydra.shell_completion(config_name=PRIMARY, overrides=[request])
        return
    found = complete(os.environ.get("COMP_LINE", ""), verbs)
    # A name with a control character in it is not offered: typed, it would be another one.
    print(("\n" if shell == "fish" else " ").join(name for name in found if printable(name) == name))


def complete(line: str, verbs: Mapping[str, Sequence[str]]) -> list[str]:
    """What the last word of a command line may become."""
    words = line.split()[1:]
    last = words.pop() if words and not line[-1].isspace() else ""
    if not words:
        return sorted(verb for verb in verbs if verb.startswith(last))
    verb, *typed = words
    if last.startswith("-"):
        return sorted(flag for flag in verbs.get(verb, ()) if flag.startswith(last))
    own, typed = _take_folder(typed)
    if verb in _TAKES_A_GROUP:
        return [group for group in groups(CONF_DIR, *([own] if own else [])) if group.startswith(last)]
    return _overrides(last, typed, own) if verb in _TAKES_OVERRIDES else []


def _take_folder(words: list[str]) -> tuple[Path | None, list[str]]:
    """The value of --config-dir, and the words that are overrides."""
    folder = project_conf()
    kept: list[str] = []
    for index, word in enumerate(words):
        if index and words[index - 1] in _FOLDER_OPTIONS:
            folder = Path(word) if Path(word).is_dir() else folder
        elif not word.startswith("-"):
            kept.append(word)
    return folder, kept


def _overrides(last: str, typed: list[str], own: Path | None) -> list[str]:
    folders = (CONF_DIR, *([own] if own else []))
    if match := _OPTIONS_OF_A_GROUP.match(last):
        options = [option.name for option in list_options(match[2], *folders) if option.group == match[2]]
        if options:
            whole = [f"{match[1]}{name}" for name in options]
            return [word for word in whole if word.startswith(last)]
    # Several values and the like cannot be composed as one run; they do not decide which keys there are.
    single = [word for word in typed if "," not in word or "[" in word]
    with loader(own) as hydra:
        matches = completions(hydra.config_loader, PRIMARY, " ".join([*single, last]))
    found = [match for match in matches if match[-1:] in "=./" or "=" in match or "." in match]
    for group in set(matches) - set(found):  # has options and groups in it, or groups alone
        found += [f"{group}/", *([f"{group}="] if group in groups(*folders) else [])]
    return sorted(found)
