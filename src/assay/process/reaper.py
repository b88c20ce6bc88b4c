"""A process that ends what another one leaves behind when it is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from typing import IO, Final

from assay.process import orphans

MARK: Final = "ASSAY_CLUSTER_WORKER"
"""Variable by which everything that a process has started is found when it is gone."""
_GRACE: Final = 15.0
"""Seconds that it has to save and end by itself: a fork server's, and some."""


def guard(mark: str, folder: str = "") -> IO[bytes]:
    """Have whatever is started with a mark end, at the latest seconds after this process.

    The end of a pipe tells it. It is a grandchild, as Ray kills the children of a process that it ends.

    Args:
        mark: Value of the environment variable `MARK`.
        folder: Removed at the end.

    Returns:
        The pipe; closing it is the end, too.
    """
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-m", "assay.process.reaper", mark, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # its first half ends at once
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    return process.stdin


def main() -> None:
    """Wait until the other process is gone, then until what it has started is; kill what stays."""
    if os.fork():
        return
    os.setsid()
    sys.stdin.buffer.read()
    mark, folder = sys.argv[1:]
    orphans.outlive(MARK, mark, _GRACE)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
