"""A Ray cluster that a sweep has started can be reached from this machine alone."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

LISTENING = """
import psutil
from assay.process import orphans
from assay.sweep.launcher import cluster

if __name__ == "__main__":
    ray = cluster.package()
    guarded = cluster.join(ray, None, 1)
    own = [one for one in psutil.process_iter() if orphans.mark_of(one.pid, orphans.MARK)]
    sockets = [socket for one in [*own, psutil.Process()] for socket in one.net_connections("tcp")]
    print({one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN})
    ray.shutdown()
    guarded.close()
"""


@pytest.mark.long
def test_a_cluster_of_our_own_listens_on_loopback_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], capture_output=True, text=True, check=True, timeout=300
    )
    addresses = ast.literal_eval(done.stdout.splitlines()[-1])
    assert addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
