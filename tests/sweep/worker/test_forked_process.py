"""How a process ends that a nursery has forked."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


class Held:
    """Has something to be taken down with it."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_job_takes_down_what_it_made_and_nothing_of_the_nursery(tmp_path: Path) -> None:
    held = Held()
    of_nursery = weakref.finalize(held, (tmp_path / "nursery").touch)
    made: list[Held] = []

    def body() -> None:
        made.append(Held())
        weakref.finalize(made[0], (tmp_path / "job").touch)

    pid = os.fork()
    if pid == 0:
        nursery_child.live(body)
    os.waitpid(pid, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job"]
    assert of_nursery.alive
    of_nursery.detach()
