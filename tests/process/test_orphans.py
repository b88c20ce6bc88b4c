"""Real processes that lose their parents, are found by a variable, and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.sweep.conftest import is_gone, until

from assay.process import orphans

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "ASSAY_TEST_ORPHAN"
SLEEP = "import time; time.sleep(600)"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
print(child.pid, flush=True)
child.wait()
"""
PARENT = """
import os, sys, time
from assay.process import orphans
parent = os.getpid()
child = os.fork()
if child == 0:
    orphans.end_with(parent)
    print(os.getpid(), flush=True)
    time.sleep(600)
os.wait()
"""
ADOPT = """
import os, sys, time
from assay.process import orphans
orphans.adopt()
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
print(*orphans.children(), flush=True)
for one in orphans.children():
    orphans.kill(one)
"""


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with a mark that has started another one; both sleep."""
    environment = os.environ | {NAME: "mine"}
    parent = subprocess.Popen(
        [sys.executable, "-c", FAMILY], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    yield parent, child
    parent.kill()
    parent.wait()
    parent.stdout.close()
    if not is_gone(child):
        os.kill(child, signal.SIGKILL)


def test_what_has_the_mark_ends_and_nothing_else(family: tuple[subprocess.Popen[str], int]) -> None:
    parent, child = family
    orphans.kill_marked(NAME, "another's")
    assert not is_gone(child)
    orphans.kill_marked(NAME, "mine")
    assert is_gone(child)
    assert parent.wait(10) == -signal.SIGKILL


def test_what_stays_has_its_time_and_is_ended(family: tuple[subprocess.Popen[str], int]) -> None:
    start = time.monotonic()
    orphans.outlive(NAME, "mine", 1.0)
    assert time.monotonic() - start > 0.9
    assert is_gone(family[1])
    orphans.outlive(NAME, "mine", 60.0)  # nobody is left to wait for
    assert time.monotonic() - start < 30


def test_a_child_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    until(lambda: is_gone(child), 20)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems give an orphan to the first process")
def test_an_orphan_is_adopted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ADOPT], capture_output=True, text=True, check=True, timeout=60
    )
    (orphan,) = done.stdout.split()
    until(lambda: is_gone(int(orphan)), 20)
