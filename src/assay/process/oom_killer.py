"""How often the kernel has killed a process to get memory: the only trace that its OOM killer leaves."""

from __future__ import annotations

import functools
import re
from pathlib import Path

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_CGROUPS = Path("/sys/fs/cgroup")


def kills(cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> int:
    """Processes killed so far: those of this process's control group, or of the whole machine without one.

    Args:
        cgroups: Where control groups are mounted.
        proc: Where the kernel tells about processes.
    """
    for path in (*_own_counters(cgroups, proc), proc / "vmstat"):
        try:
            match = _COUNT.search(path.read_text(encoding="utf-8"))
        except OSError:
            continue
        if match:
            return int(match[1])
    return 0


@functools.cache
def _own_counters(cgroups: Path, proc: Path) -> list[Path]:
    """The files of this process's control group, in version 2 and 1; a container may see it as the root."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths: list[Path] = []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if not controllers:
            paths += [cgroups / path.strip("/") / "memory.events", cgroups / "memory.events"]
        elif "memory" in controllers.split(","):
            root = cgroups / "memory"
            paths += [root / path.strip("/") / "memory.oom_control", root / "memory.oom_control"]
    return paths
