"""Where a sweep goes on, and with whose trust: its journal may be anybody's."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from assay.errors import AssayError
from assay.paths import project_conf
from assay.targets.trust import KEY, trust, typed_packages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.record.journal import Journal

_SEARCH_PATH: Final = "hydra.searchpath"


@final
@dataclass(frozen=True)
class Setting:
    """What a sweep goes on with.

    Attributes:
        cwd: Working directory.
        config_dir: The user's folder of config groups; None for the one in the working directory.
    """

    cwd: Path
    config_dir: Path | None


def setting_of(
    directory: Path, journal: Journal, overrides: Sequence[str], config_dir: Path | None
) -> Setting:
    """Where a sweep goes on.

    The journal says where it was begun and with which config folder. Where that is not what the person who
    types has here, and a project of somebody's lies there, it has to be confirmed.

    Raises:
        AssayError: Something has to be confirmed: the message says what, the hint what to type.
    """
    here = Path.cwd()
    began = Path(journal.header["cwd"])
    recorded = Path(journal.header["config_dir"]) if journal.header["config_dir"] else None
    is_there = began.is_absolute() and began.is_dir()
    at_home = not is_there or began.samefile(here)
    own = is_there and at_home and recorded is not None and _is_own(recorded, here, directory)
    flags: list[str] = []
    if recorded is not None and config_dir is None and not own:
        flags.append(f"--config-dir {shlex.quote(str(recorded))}")
    typed_now = _keys(overrides)
    words = [
        word
        for word in merged(journal.commands)
        if (key := word.partition("=")[0].lstrip("+~")) == _SEARCH_PATH and key not in typed_now
    ]
    recorded_packages = typed_packages(merged(journal.commands))
    missing = [name for name in recorded_packages if name not in trust(overrides).packages]
    if missing and KEY not in typed_now:
        words.append(f"{KEY}=[{','.join(missing)}]")
    go = ""
    if not at_home and (words or flags or recorded is not None or project_conf(began) is not None):
        go, directory = f"cd {shlex.quote(str(began))} && ", directory.resolve()
    if go or flags or words:
        asked = [*([f"to run in {began}"] if go else []), *flags, *words]
        again = map(shlex.quote, (str(directory), *overrides, *words))
        command = " ".join(["assay resume", *again, *flags])
        raise AssayError(
            f"{directory} asks for what only you can allow: {', '.join(asked)}",
            hint=f"if that is yours, or you know whose it is: {go}{command}",
        )
    return Setting(here if at_home else began, config_dir if config_dir is not None else recorded)


def without_trust(command: Sequence[str]) -> list[str]:
    """What was typed before, without whom it trusts: that is said anew each time."""
    return [word for word in command if KEY not in _keys([word])]


def merged(commands: Sequence[Sequence[str]]) -> list[str]:
    """What was typed, first to last, as one command: a later override takes the place of an earlier one.

    >>> merged([["seed=1,2", "optimizer.lr=0.1"], ["seed=range(3)"]])
    ['optimizer.lr=0.1', 'seed=range(3)']
    """
    overrides_by_key: dict[str, str] = {}
    for override in (override for command in commands for override in command):
        key = override.partition("=")[0].lstrip("+~")
        overrides_by_key.pop(key, None)
        overrides_by_key[key] = override
    return list(overrides_by_key.values())


def _is_own(folder: Path, here: Path, directory: Path) -> bool:
    """Whether a recorded config folder is of the project that the person stands in, and not of the sweep."""
    whole = folder.resolve()
    return whole.is_relative_to(here.resolve()) and not whole.is_relative_to(directory.resolve())


def _keys(overrides: Sequence[str]) -> set[str]:
    keys = set()
    for word in overrides:
        try:
            keys |= {override.key_or_group for override in OverridesParser.create().parse_overrides([word])}
        except HydraException:
            keys.add(word.partition("=")[0].lstrip("+~"))
    return keys
