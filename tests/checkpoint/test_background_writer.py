"""What is written in the background, and in which order, whatever else would have been written in between."""

import itertools
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from assay.checkpoint import checkpoint_file
from assay.checkpoint.checkpoint_file import BackgroundWriter

BEST, LAST = Path("best"), Path("last")


class Writes:
    """A writer whose first step is held up until it is let go, and a note of what was done."""

    def __init__(self) -> None:
        self.writer, self.go, self.began = BackgroundWriter(), threading.Event(), threading.Event()
        self.done: list[str] = []
        self.put("first", Path("first"), -1, wait=True)
        assert self.began.wait(20)

    def put(self, label: str, path: Path, moment: int, *, may_wait: bool = True, wait: bool = False) -> None:
        self.writer.put(partial(self._do, label, wait), path, moment, may_wait=may_wait)

    def _do(self, label: str, wait: bool) -> None:
        self.began.set()
        assert not wait or self.go.wait(20)
        self.done.append(label)

    def end(self) -> list[str]:
        self.go.set()
        self.writer.wait()
        return self.done[1:]


@pytest.fixture
def writes() -> Iterator[Writes]:
    writes = Writes()
    yield writes
    writes.end()


def test_of_many_moments_the_first_and_the_newest_are_written(writes: Writes) -> None:
    for moment in range(9):
        writes.put(f"best {moment}", BEST, moment)
        writes.put(f"last {moment}", LAST, moment)
    assert writes.end() == ["best 0", "last 0", "best 7", "last 7", "best 8", "last 8"]


@pytest.mark.parametrize("improved", list(itertools.product([False, True], repeat=4)))
def test_whenever_the_process_dies_the_last_never_speaks_of_a_best_to_come(
    improved: tuple[bool, ...],
) -> None:
    writes, best = Writes(), 0
    speaks_of = {}
    for moment, better in enumerate((True, *improved)):
        if better:
            best = moment
            writes.put(f"best {moment}", BEST, moment)
        speaks_of[f"last {moment}"] = best
        writes.put(f"last {moment}", LAST, moment)
    there = -1
    for label in writes.end():
        if label.startswith("best"):
            there = int(label.split()[1])
        else:
            assert there >= speaks_of[label], f"{label} would lie there without the best one"


def test_a_replacement_waits_and_is_done_after_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_file, "_PAUSE", 0.2)
    writes = Writes()
    writes.go.set()
    writes.put("best", BEST, 0)
    writes.writer.wait()
    began = time.monotonic()
    writes.put("best again", BEST, 1)
    while writes.done[-1] != "best again":
        time.sleep(0.001)
    assert time.monotonic() - began > 0.1
    writes.put("once more", BEST, 2)
    writes.writer.wait()
    assert writes.done[-1] == "once more", "nothing waits longer than it is waited for"
