from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.forks import Forks

from assay.run import ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)


def test_launch_starts_a_process_a_rank_and_tells_how_they_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher itself is real; the ranks are a script that writes down what it is told."""
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "rank = os.environ['RANK']\n"
        "text = ' '.join(os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'OMP_NUM_THREADS'))\n"
        "(pathlib.Path(sys.argv[4]) / f'rank{rank}').write_text(text)\n"
        "sys.exit(3 if rank == '1' and (pathlib.Path(sys.argv[4]) / 'fail').exists() else 0)\n",
        encoding="utf-8",
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("torch.get_num_threads", lambda: 6)
    before = os.environ.get("OMP_NUM_THREADS")
    assert ranks.launch(tmp_path, 2) == "finished"
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["0 0 2 3", "1 1 2 3"]
    assert os.environ.get("OMP_NUM_THREADS") == before
    (tmp_path / "fail").touch()
    assert ranks.launch(tmp_path, 2) == "failed"
    assert os.environ.get("OMP_NUM_THREADS") == before


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
