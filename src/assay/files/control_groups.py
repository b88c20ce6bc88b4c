"""What the control groups of this process say of its memory: limits, and how often the kernel has killed."""

from __future__ import annotations

import functools
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_CGROUPS = Path("/sys/fs/cgroup")


def kills(cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> int:
    """Processes killed so far: those of this process's control group, or of the whole machine without one."""
    for path in (*(folder / "memory.events" for folder in _groups(cgroups, proc)), proc / "vmstat"):
        try:
            match = _COUNT.search(path.read_text(encoding="utf-8"))
        except OSError:
            continue
        if match:
            return int(match[1])
    return 0


def memory_limits(cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> Iterator[tuple[int, int]]:
    """Bytes that each group of this process may take, and has taken."""
    for folder in _groups(cgroups, proc):
        with suppress(OSError, ValueError):  # without a limit it says max
            limit, used = (
                int((folder / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current")
            )
            yield limit, used


@functools.cache
def _groups(cgroups: Path, proc: Path) -> list[Path]:
    """This process's group and those around it (version 2); a container may see it as the root."""
    folders: list[Path] = []
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                folder = cgroups / line.removeprefix("0::").strip("/")
                folders += [folder, *folder.parents[: len(folder.parts) - len(cgroups.parts)]]
    return [*folders, cgroups]
