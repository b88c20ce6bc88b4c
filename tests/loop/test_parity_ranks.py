"""Two ranks come out as with Lightning's own loops."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.loop.parity_rank import CASES

SHORT = "short"


def failures(names: list[str], folder: Path) -> list[str]:
    """What differs on one of the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in (0, 1):
        environment = os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        with (folder / f"output.{rank}").open("wb") as output:
            command = [sys.executable, "-m", "tests.loop.parity_rank", str(folder), *names]
            ranks.append(
                subprocess.Popen(
                    command, env=environment, cwd=Path(__file__).parents[2], stdout=output, stderr=output
                )
            )
    try:
        ended = [process.wait(timeout=900) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert ended == [0, 0], (folder / "output.0").read_text() + (folder / "output.1").read_text()
    found = []
    for name in names:
        for rank in (0, 1):
            how, *told = (folder / f"{name}.{rank}").read_text(encoding="utf-8").splitlines()
            if CASES[name].get("observer") != "none":
                assert int(how.split()[0]) > 100
            assert how.endswith("SIGTERMException: " if "sigterm" in CASES[name].values() else "None")
            found += [f"{name}, rank {rank}: {line}" for line in told]
    return found


def test_two_ranks(tmp_path: Path) -> None:
    found = failures([SHORT], tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_two_ranks_in_many_ways(tmp_path: Path) -> None:
    found = failures([name for name in CASES if name != SHORT], tmp_path)
    assert not found, "\n".join(found)
