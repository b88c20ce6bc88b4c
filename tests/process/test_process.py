"""Processes end together, with the one that started them, or as orphans; and the signals that stop them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.sweep.conftest import is_gone, until

from assay.process import collect_signals, cpu_quotas, handle_signals, memory_limits
from assay_cluster.children import count_oom_kills, kill, start, wait

if TYPE_CHECKING:
    from pathlib import Path


STARTS = """
import os, sys
from assay_cluster.children import start
process = start([sys.executable, "-c", sys.argv[1]], os.environ)
sys.stdin.read()
"""


FIRST = "from assay_cluster.children import end_with_parent; end_with_parent(); "
SLEEPS = "import time; time.sleep(600)"
SAYS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(flush=True); "
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); "


def begun(code: str, file: Path) -> subprocess.Popen[bytes]:
    """A process that has printed something, and so has its handlers."""
    process = start(
        [sys.executable, "-u", "-c", f"import sys; sys.stdout = open({str(file)!r}, 'w'); {code}"], os.environ
    )
    until(lambda: file.is_file() and file.stat().st_size)
    return process


def test_when_one_fails_the_others_are_told_to_end(tmp_path: Path) -> None:
    other = begun(SAYS + SLEEPS, tmp_path / "other")
    failing = start([sys.executable, "-c", "import sys; sys.exit(3)"], os.environ)
    assert wait([failing, other], []) == [3, 7]


def test_a_signal_is_passed_on(tmp_path: Path) -> None:
    process = begun(SAYS + SLEEPS, tmp_path / "process")
    with collect_signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert wait([process], signals) == [7]
    assert signals == [signal.SIGTERM]


def test_the_third_ctrl_c_kills(tmp_path: Path) -> None:
    process = begun(DEAF + SLEEPS, tmp_path / "process")
    with collect_signals() as signals:

        def press() -> None:
            for _ in range(3):
                assert process.poll() is None
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)

        keyboard = threading.Thread(target=press)
        keyboard.start()
        assert wait([process], signals) == [-signal.SIGKILL]
        keyboard.join()


def test_what_is_killed_takes_its_group_along(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); "
    code += "print(p.pid, flush=True); "
    process = begun(code + SLEEPS, file)
    kill(process)
    kill(process)  # nothing where it has ended
    assert process.returncode == -signal.SIGKILL
    until(lambda: is_gone(int(file.read_text())))


def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child = FIRST + f"import os; open({str(file)!r}, 'w').write(str(os.getpid())); " + SLEEPS
    parent = subprocess.Popen([sys.executable, "-c", STARTS, child], stdin=subprocess.PIPE)
    until(lambda: file.is_file() and file.read_text())
    parent.kill()
    parent.wait()
    assert parent.stdin is not None
    parent.stdin.close()
    until(lambda: is_gone(int(file.read_text())))


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    received: list[int] = []
    try:
        with handle_signals(lambda number, _: received.append(number)) as handled:
            signal.raise_signal(signal.SIGHUP)
        assert signal.SIGHUP not in handled
        assert not received
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_off_the_main_thread_signals_are_left_alone() -> None:
    seen: list[object] = []

    def watch() -> None:
        with handle_signals(signal.SIG_IGN) as handled:
            seen.extend((handled, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert seen == [[], signal.default_int_handler]


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


@pytest.mark.parametrize(
    ("lines", "root", "limit", "used"),
    [
        ("0::/slurm/job_7/step_0\n", "", "memory.max", "memory.current"),
        (
            "9:cpu,cpuacct:/\n4:memory:/slurm/job_7/step_0\n1:name=systemd:/\n0::/\n",
            "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
    ],
)
def test_a_limit_of_a_group_around_this_one(
    lines: str, root: str, limit: str, used: str, tmp_path: Path
) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(lines, encoding="utf-8")
    for below, number in (("", 70), ("/step_0", 90)):
        place = tmp_path / "cgroup" / root / f"slurm/job_7{below}"
        place.mkdir(parents=True)
        for name, value in ((limit, number), (used, 30)):
            (place / name).write_text(f"{value}\n", encoding="utf-8")
    (tmp_path / "cgroup" / "memory.max").write_text("max\n", encoding="utf-8")
    assert sorted(memory_limits(tmp_path / "cgroup", tmp_path / "proc")) == [(70, 30), (90, 30)]


@pytest.mark.parametrize(
    ("lines", "root", "files"),
    [
        ("0::/slurm/job_7/step_0\n", "", {"cpu.max": ("max 100000", "250000 100000", "150000 100000")}),
        (
            "9:cpu,cpuacct:/slurm/job_7/step_0\n4:memory:/elsewhere\n0::/\n",
            "cpu",
            {
                "cpu.cfs_quota_us": ("-1", "250000", "150000"),
                "cpu.cfs_period_us": ("100000", "100000", "100000"),
            },
        ),
    ],
)
def test_quotas_of_this_group_and_those_around_it(
    lines: str, root: str, files: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(lines, encoding="utf-8")
    for depth, below in enumerate(("", "slurm/job_7", "slurm/job_7/step_0")):
        place = tmp_path / "cgroup" / root / below
        place.mkdir(parents=True, exist_ok=True)
        for name, texts in files.items():
            (place / name).write_text(f"{texts[depth]}\n", encoding="utf-8")
    assert sorted(cpu_quotas(tmp_path / "cgroup", tmp_path / "proc")) == [1.5, 2.5]
