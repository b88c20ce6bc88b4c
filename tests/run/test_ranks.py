from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

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


RANK = """import os, pathlib, signal, socket, sys, time
from assay.process.children import end_with_parent
place = pathlib.Path(sys.argv[4])
end_with_parent()
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
signal.signal(signal.SIGTERM, lambda *_: (place / f"told{os.environ['RANK']}").touch())
(place / f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
end = time.monotonic() + 60
while time.monotonic() < end and not (place / "go").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher whose two ranks have met and wait; they do not end when they are told to."""
    (tmp_path / "rank.py").write_text(RANK, encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/rank.py" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    code = (
        f"import sys, pathlib; from assay.run.ranks import launch; sys.executable = {str(python)!r}\n"
        f"print(launch(pathlib.Path({str(tmp_path)!r}), 2))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    wait_for(lambda: len(list(tmp_path.glob("pid*"))) == 2)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int((folder / f"pid{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they look once a second")
def test_the_store_is_for_this_machine_alone_and_ranks_die_with_their_launcher(
    waiting: subprocess.Popen[str], tmp_path: Path
) -> None:
    listening = [
        one.laddr.ip
        for process in map(psutil.Process, (waiting.pid, *pids(tmp_path)))
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]
    waiting.kill()
    waiting.wait()
    wait_for(lambda: not any(map(psutil.pid_exists, pids(tmp_path))))


def test_signals_in_turns_are_passed_on_and_the_launcher_waits(
    waiting: subprocess.Popen[str], tmp_path: Path
) -> None:
    waiting.terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    waiting.terminate()
    for rank in (0, 1):
        (tmp_path / f"told{rank}").unlink()
    waiting.terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    assert waiting.poll() is None
    (tmp_path / "go").touch()
    assert waiting.communicate()[0].strip() == "SIGTERM"


def test_when_the_second_dies_the_first_is_told(waiting: subprocess.Popen[str], tmp_path: Path) -> None:
    psutil.Process(pids(tmp_path)[1]).kill()
    wait_for((tmp_path / "told0").exists)
    (tmp_path / "go").touch()
    assert waiting.communicate()[0].strip() == "failed"
