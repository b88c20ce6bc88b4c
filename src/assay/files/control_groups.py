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
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Of a limit and of what is used, in version 2 and 1."""


def kills(cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> int:
    """Processes killed so far: those of this process's control group, or of the whole machine without one."""
    counters = [
        folder / name for folder in _groups(cgroups, proc) for name in ("memory.events", "memory.oom_control")
    ]
    for path in (*counters, proc / "vmstat"):
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
        for names in _FILES:
            with suppress(OSError, ValueError):  # without a limit it says max
                limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names)
                yield limit, used


@functools.cache
def _groups(cgroups: Path, proc: Path) -> list[Path]:
    """This process's group and those around it, in version 2 and 1; a container may see it as the root."""
    folders: list[Path] = []
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            root = cgroups / "memory" if controllers else cgroups
            if not controllers or "memory" in controllers.split(","):
                folder = root / path.strip("/")
                folders += [folder, *folder.parents[: len(folder.parts) - len(root.parts)]]
    return [*folders, cgroups, cgroups / "memory"]
