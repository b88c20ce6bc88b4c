"""What a killed process leaves behind ends, and so does the folder that it used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.sweep.conftest import is_gone, until

if TYPE_CHECKING:
    from pathlib import Path

GUARDED = """
import os, subprocess, sys, time
from assay.process import orphans
os.environ[orphans.MARK] = sys.argv[1]
pipe = orphans.guard(sys.argv[1], sys.argv[2])
left = subprocess.Popen([sys.executable, "-c", sys.argv[3]], start_new_session=True)
print(left.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        ("import time; time.sleep(1)", 12),  # ends by itself
        pytest.param("import time; time.sleep(600)", 40, marks=pytest.mark.long),  # and has 15 s for it
    ],
)
def test_what_is_left_ends_and_the_folder_goes(tmp_path: Path, left: str, seconds: float) -> None:
    folder = tmp_path / "its folder"
    folder.mkdir()
    (folder / "file").touch()
    command = [sys.executable, "-c", GUARDED, f"mark-{os.getpid()}-{seconds}", str(folder), left]
    guarded = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with guarded:
        assert guarded.stdout is not None
        pid = int(guarded.stdout.readline())
        assert folder.exists()
        os.kill(guarded.pid, signal.SIGKILL)
    until(lambda: is_gone(pid) and not folder.exists(), seconds)
