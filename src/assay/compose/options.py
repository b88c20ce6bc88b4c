"""The options of each config group, with the one-line description that heads each YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.paths import CONF_DIR

if TYPE_CHECKING:
    from pathlib import Path


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


def describe(path: Path) -> str:
    """The first comment line of a YAML that is no `@package` directive; empty if there is none."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        if text and not text.startswith("@package"):
            return text
    return ""


def list_options(group: str = "", *folders: Path) -> list[Option]:
    """Every option of every group, sorted by group and name.

    Files whose name starts with an underscore are shared parts of options and not listed.

    Args:
        group: Only this group (and its subgroups); all when empty.
        folders: Config folders to look in, later ones after earlier; assay's own when none is given.
    """
    options = []
    for folder in folders or (CONF_DIR,):
        for path in sorted(folder.glob("*/**/*.yaml")):
            name = path.relative_to(folder).parent.as_posix()
            wanted = not group or name == group or name.startswith(f"{group}/")
            if wanted and not path.name.startswith("_"):
                options.append(Option(name, path.stem, describe(path), path))
    return sorted(options, key=lambda option: (option.group, option.name))


def groups(*folders: Path) -> list[str]:
    """Names of the groups that have at least one option.

    Args:
        folders: As for `list_options`.
    """
    return sorted({option.group for option in list_options("", *folders)})
