"""A launcher of two ranks that meet and wait, and do not end when they are told to."""

from __future__ import annotations

import sys
from pathlib import Path

from assay_cluster import children
from assay_cluster.gang import Gang
from assay_cluster.processes import launch
from assay_cluster.world import World

RANK = """import os, pathlib, signal, socket, sys, time
from assay_cluster.children import end_with_parent
place = pathlib.Path(sys.argv[4])
end_with_parent()
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: (place / f"told{os.environ['RANK']}").touch())
(place / f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
end = time.monotonic() + 60
while time.monotonic() < end and not (place / "go").exists():
    time.sleep(0.02)
"""


def main() -> None:
    """Launch them in the current folder, where they say who they are, and print how they ended."""
    place = Path.cwd()
    children._GRACE = 3.0
    (place / "rank.py").write_text(RANK, encoding="utf-8")
    python = place / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{place}/rank.py" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    sys.executable = str(python)
    with Gang(World(), "node") as gang:
        print(launch(place, gang, 2))
