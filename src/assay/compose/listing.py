"""The options of config groups, and the table of them that `assay configs` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError
from assay.paths import CONF_DIR, project_conf
from assay.terminal import Console, print_rows

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
    """Every option of every group, sorted by group and name."""
    options = []
    for folder in folders or (CONF_DIR,):
        for path in sorted(folder.glob("*/**/*.yaml")):
            name = path.relative_to(folder).parent.as_posix()
            wanted = not group or name == group or name.startswith(f"{group}/")
            if wanted and not path.name.startswith("_"):
                options.append(Option(name, path.stem, describe(path), path))
    return sorted(options, key=lambda option: (option.group, option.name))


def groups(*folders: Path) -> list[str]:
    """Names of the groups that have at least one option."""
    return sorted({option.group for option in list_options("", *folders)})


def listed(group: str, config_dir: Path | None) -> list[Option]:
    """The options of one group and its subgroups, or of all."""
    own = config_dir or project_conf()
    folders = (CONF_DIR, *([own] if own else []))
    options = list_options(group, *folders)
    if not options:
        known = groups(*folders)
        raise ConfigError(
            f"there is no such group{did_you_mean(group, known, '; ')}",
            key=group,
            hint=f"groups: {', '.join(known)}",
        )
    return options


def show(options: list[Option]) -> None:
    """Print options and descriptions, a group a block."""
    console = Console(highlight=False, soft_wrap=True)
    for group in sorted({option.group for option in options}):
        console.print(group, style="bold", markup=False)
        inside = [option for option in options if option.group == group]
        print_rows(console, [(option.name, option.description) for option in inside], ("cyan", ""))
