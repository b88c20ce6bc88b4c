"""How a process ends that a fork server has forked."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

import pytest

from assay.sweep.worker import fork_server

if TYPE_CHECKING:
    from pathlib import Path


class Held:
    """Has something to be taken down with it."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_job_takes_down_what_it_made_and_nothing_of_the_fork_server(tmp_path: Path) -> None:
    held = Held()
    of_fork_server = weakref.finalize(held, (tmp_path / "fork server").touch)
    made: list[Held] = []

    def body() -> None:
        made.append(Held())
        weakref.finalize(made[0], (tmp_path / "job").touch)

    pid = os.fork()
    if pid == 0:
        fork_server.live(body)
    os.waitpid(pid, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]
    assert of_fork_server.alive
    of_fork_server.detach()
