"""What control groups say of memory, as files of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.process import memory_limits
from assay_cluster.children import count_oom_kills

if TYPE_CHECKING:
    from pathlib import Path

V2 = "0::/user.slice/job\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        (V2, {"cgroup/user.slice/job/memory.events": "low 0\noom 2\noom_kill 1\n"}, 1),
        (V2, {"cgroup/memory.events": "oom 5\noom_kill 4\n"}, 4),
        (V2, {"proc/vmstat": "nr_free_pages 12\noom_kill 9\n"}, 9),
        (None, {"proc/vmstat": "oom_kill 8\n"}, 8),
        (None, {}, 0),
    ],
)
def test_counters(cgroup: str | None, files: dict[str, str], expected: int, tmp_path: Path) -> None:
    if cgroup is not None:
        files = {**files, "proc/self/cgroup": cgroup}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert count_oom_kills(tmp_path / "cgroup", tmp_path / "proc") == expected


def test_a_limit_of_a_group_around_this_one(tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/slurm/job_7/step_0\n", encoding="utf-8")
    for below, number in (("", 70), ("/step_0", 90)):
        place = tmp_path / "cgroup" / f"slurm/job_7{below}"
        place.mkdir(parents=True)
        for name, value in (("memory.max", number), ("memory.current", 30)):
            (place / name).write_text(f"{value}\n", encoding="utf-8")
    (tmp_path / "cgroup" / "memory.max").write_text("max\n", encoding="utf-8")
    assert sorted(memory_limits(tmp_path / "cgroup", tmp_path / "proc")) == [(70, 30), (90, 30)]
