"""A place of a cluster: one real job at a time, stopped from another thread, ended with its process."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sweep.conftest import environment, until

from assay.process import reaper
from assay.record.outcome import Outcome
from assay.sweep.launcher.cluster_worker import ClusterWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec


@pytest.fixture(scope="module")
def cluster_worker() -> Iterator[ClusterWorker]:
    before = os.environ.get(reaper.MARK)
    made = ClusterWorker()
    yield made
    made.close()
    if before is None:
        del os.environ[reaper.MARK]


def test_a_job_has_the_variables_that_it_is_given(
    cluster_worker: ClusterWorker, make_job_spec: MakeJobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster_worker.ready()
    monkeypatch.setenv("TORCH_OF_THIS_MACHINE", "1")
    job_spec = make_job_spec()
    given = {"PATH": os.environ["PATH"], "TORCH_OF_THE_DRIVER": "2"}
    said = Outcome.from_json(cluster_worker.run(1, job_spec.to_json(), given))
    assert said.status == "finished"
    seen = environment(job_spec)
    assert seen["TORCH_OF_THE_DRIVER"] == "2"
    assert "TORCH_OF_THIS_MACHINE" not in seen


def test_a_job_is_stopped_by_another_thread(
    cluster_worker: ClusterWorker, make_job_spec: MakeJobSpec
) -> None:
    job_spec = make_job_spec("trainer.max_epochs=100000", "trainer.limit_val_batches=0")
    said: list[str] = []
    running = threading.Thread(target=lambda: said.append(cluster_worker.run(2, job_spec.to_json())))
    running.start()
    until(lambda: Path(job_spec.run_dir, "metrics.csv").is_file())
    cluster_worker.stop(2, now=False)
    running.join(60)
    outcome = Outcome.from_json(said[0])
    assert (outcome.status, outcome.reason) == ("interrupted", "stopped by SIGTERM")


def test_a_job_that_is_to_stop_before_it_began_does_not_run(
    cluster_worker: ClusterWorker, make_job_spec: MakeJobSpec
) -> None:
    job_spec = make_job_spec("trainer.max_epochs=100000")
    cluster_worker.stop(3, now=True)
    assert Outcome.from_json(cluster_worker.run(3, job_spec.to_json())).status == "interrupted"


def test_what_cannot_be_read_is_an_outcome(cluster_worker: ClusterWorker) -> None:
    said = Outcome.from_json(cluster_worker.run(4, "no job"))
    assert (said.status, said.transient) == ("failed", True)
    assert "JSON" in said.reason
    assert not cluster_worker._told
