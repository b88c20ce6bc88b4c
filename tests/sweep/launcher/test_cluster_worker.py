"""A place of a cluster; what its jobs are told and how they are stopped is tried in `test_ray.py`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from assay.process import orphans
from assay.record.outcome import Outcome
from assay.sweep.launcher.cluster import ClusterWorker

if TYPE_CHECKING:
    import pytest


def test_what_cannot_be_read_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(orphans.MARK, "")  # it sets its own
    cluster_worker = ClusterWorker()
    assert os.environ[orphans.MARK]
    assert cluster_worker.ready()
    said = Outcome.from_json(cluster_worker.run(4, "no job"))
    assert (said.status, said.transient) == ("failed", True)
    assert "JSON" in said.reason
    assert not cluster_worker._told
    cluster_worker.close()
