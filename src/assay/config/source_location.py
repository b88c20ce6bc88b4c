"""A place where a value is written: a line of a file, or the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from assay.config.hydra_internals import file_of
from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.config.hydra_internals import IConfigRepository

COMMAND_LINE = "command line"
THE_DATA = "what has to be predicted"


@final
@dataclass(frozen=True)
class Setting:
    """A key, the value it is given, and where.

    Attributes:
        key: Full key.
        text: The value as it is written; empty where an override takes the key away.
        where: `conf/optimizer/adamw.yaml:3`, `command line`, or who else it was.
        path: The file, when it is one.
        line: In that file.
        override: As typed, when it was typed.
    """

    key: str
    text: str
    where: str
    path: Path | None = None
    line: int = 0
    override: str = ""


def shown(path: Path) -> str:
    """A path as a user knows it: from the current directory, or from assay's own `conf`."""
    full = path.resolve()
    if full.is_relative_to(Path.cwd()):
        return full.relative_to(Path.cwd()).as_posix()
    if full.is_relative_to(CONF_DIR.resolve()):
        return f"conf/{full.relative_to(CONF_DIR.resolve()).as_posix()}"
    return str(path)


def config_file(repository: IConfigRepository, name: str) -> Path | None:
    """The file behind one of Hydra's config names; None for those that are no files.

    Args:
        repository: Hydra's.
        name: Such as `optimizer/adamw`.
    """
    for source in repository.get_sources():
        if source.is_config(name):
            file = file_of(source, name)
            return file if source.scheme() == "file" else None
    return None


def split(key: str) -> tuple[str, ...]:
    """Names and indices of a full key.

    >>> split("model._args_[1].in_features")
    ('model', '_args_', '1', 'in_features')
    >>> split("optimizer.betas.0") == split("optimizer.betas[0]")
    True
    """
    return tuple(re.findall(r"[^.\[\]]+", key))


def joined(parts: Sequence[str]) -> str:
    """The full key of names and indices.

    Args:
        parts: As `split` gives them.

    >>> joined(("model", "_args_", "1", "in_features"))
    'model._args_[1].in_features'
    """
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(".")
