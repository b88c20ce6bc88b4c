"""Two ranks come out as with Lightning's own loops."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.forks import Forks
from tests.loop.parity_rank import CASES

if TYPE_CHECKING:
    from pathlib import Path

SHORT = "short"


def failures(names: list[str], folder: Path) -> list[str]:
    """What differs on one of the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    places = [folder / f"rank {rank}" for rank in (0, 1)]
    with ExitStack() as stack:
        ranks = [stack.enter_context(Forks(**store, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in (0, 1)]
        for one, place in zip(ranks, places, strict=True):
            place.mkdir()
            one.start(str(folder), *names, cwd=place, module="tests.loop.parity_rank")
        ended = [one.wait().code for one in ranks]
    assert ended == [0, 0], [(place / "output.txt").read_text() for place in places]
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
