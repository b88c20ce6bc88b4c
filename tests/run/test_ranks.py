from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.forks import Forks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Forks]:
    """A launcher whose two ranks have met and wait; they do not end when they are told to."""
    with Forks() as forks:
        forks.start(cwd=tmp_path, module="tests.run.waiting_ranks")
        wait_for(lambda: len(list(tmp_path.glob("pid*"))) == 2)
        yield forks


def launcher(forks: Forks) -> psutil.Process:
    [process] = psutil.Process(forks.pid).children()
    return process


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int((folder / f"pid{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they look once a second")
def test_the_store_is_for_this_machine_alone_and_ranks_die_with_their_launcher(
    waiting: Forks, tmp_path: Path
) -> None:
    listening = [
        one.laddr.ip
        for process in map(psutil.Process, (launcher(waiting).pid, *pids(tmp_path)))
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]
    launcher(waiting).kill()
    assert waiting.wait().killed
    wait_for(lambda: not any(map(psutil.pid_exists, pids(tmp_path))))


def test_signals_in_turns_are_passed_on_and_the_launcher_waits(waiting: Forks, tmp_path: Path) -> None:
    launcher(waiting).terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    launcher(waiting).terminate()
    for rank in (0, 1):
        (tmp_path / f"told{rank}").unlink()
    launcher(waiting).terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    assert not waiting.has_ended()
    (tmp_path / "go").touch()
    assert waiting.wait().code == 0
    assert (tmp_path / "output.txt").read_text().strip() == "SIGTERM"


def test_when_the_second_dies_the_first_is_told(waiting: Forks, tmp_path: Path) -> None:
    psutil.Process(pids(tmp_path)[1]).kill()
    wait_for((tmp_path / "told0").exists)
    (tmp_path / "go").touch()
    assert waiting.wait().code == 0
    assert (tmp_path / "output.txt").read_text().strip() == "failed"
