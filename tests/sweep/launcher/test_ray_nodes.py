"""Jobs on a Ray cluster whose nodes die and join, and addresses at which there is none."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.sweep.conftest import TINY, begin, until
from tests.sweep.launcher.shared import ENDLESS, next_end
from tests.sweep.launcher.test_ray import LIMITS, SETTINGS

from assay.errors import AssayError, ProcessError
from assay.process import keep_handlers
from assay.record.journal import Journal
from assay.sweep.launcher import ray as ray_launcher
from assay.sweep.launcher.ray import RayLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.job_spec import JobSpec


class Nodes:
    """A cluster on loopback: a head that runs no jobs, and nodes with a core each."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "temp_dir": str(folder), **LIMITS}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self.nodes: list[Any] = []

    def join(self, **resources: int) -> None:
        self.nodes.append(self._cluster.add_node(**{"num_cpus": 1, **resources, **LIMITS}))

    def die(self, node: Any) -> None:
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def node_of(self, job_spec: JobSpec) -> Any:
        """Where a job runs: its raylet is an ancestor of the job's process."""
        line = Path(job_spec.output).read_text(encoding="utf-8").rpartition(", process ")[2]
        above = {parent.pid for parent in psutil.Process(int(line.partition(":")[0])).parents()}
        return next(node for node in self.nodes if node.all_processes["raylet"][0].process.pid in above)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    with keep_handlers((signal.SIGINT, signal.SIGTERM)):
        ray = ray_launcher._import_ray()
        monkeypatch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)  # loopback alone
        folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))  # paths of sockets must be short
        nodes = Nodes(folder)
        yield nodes
        if ray.is_initialized():
            ray.shutdown()
        nodes.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def on_nodes(nodes: Nodes) -> Iterator[RayLauncher]:
    nodes.join()
    nodes.join()
    launcher = RayLauncher(nodes.address)
    yield launcher
    launcher.close()


def begun(on_nodes: RayLauncher, job_spec: JobSpec) -> JobSpec:
    assert on_nodes.has_room(job_spec)
    on_nodes.start(job_spec)
    until(Path(job_spec.run_dir, "record.json").is_file)
    return job_spec


@pytest.mark.long
def test_a_node_that_dies_takes_nothing_along_but_what_ran_there(
    on_nodes: RayLauncher, nodes: Nodes, make_job_spec: MakeJobSpec
) -> None:
    """Of the two nodes one stays, and does the work of both."""
    begun(on_nodes, make_job_spec(*ENDLESS, number=0))
    dies = begun(on_nodes, make_job_spec(*ENDLESS, number=1))
    waits = make_job_spec(number=2)
    assert not on_nodes.has_room(waits)
    nodes.die(nodes.node_of(dies))
    lost = on_nodes.wait(120.0)[1]
    assert (lost.cause, lost.transient) == ("killed", True)
    on_nodes.start(waits)  # whether or not the death of the node has been seen
    on_nodes.stop(0, now=True)
    assert next_end(on_nodes).status == "interrupted", "job 0"
    assert next_end(on_nodes).status == "finished", "an idle place has made way for job 2"
    until(lambda: on_nodes.slots == 1)
    large = make_job_spec(number=3, gpus=1)
    with pytest.raises(AssayError, match="job 3 needs 1 CPU, 1 GPU, which no machine of the Ray cluster has"):
        on_nodes.has_room(large)
    nodes.join(num_gpus=1)
    until(lambda: on_nodes.has_gpus)
    begun(on_nodes, large)


@pytest.mark.long
def test_a_sweep_goes_on_while_nodes_die_and_join(project: Path, nodes: Nodes) -> None:
    nodes.join()
    nodes.join()
    typed = (one for one in TINY if not one.startswith("trainer.max_epochs"))
    driver = begin(
        project,
        *("train", "-m", *typed, "seed=range(6)", "trainer.max_epochs=150", "callbacks.poison.kind=none"),
        *("hydra/launcher=ray", f"hydra.launcher.address={nodes.address}"),
        *("hydra.launcher.on_failure=retry", "hydra.sweep.dir=sweep"),
    )
    until(lambda: len(list(Path("sweep").glob("*/metrics.csv"))) >= 2 or driver.poll() is not None)
    nodes.die(nodes.nodes[0])
    time.sleep(2)
    nodes.join()
    assert driver.wait(400) == 0, Path("output").read_text()
    jobs = Journal.open(Path("sweep")).jobs
    assert [job_record.status for job_record in jobs.values()] == ["finished"] * 6
    assert [len(job_record.failures) for job_record in jobs.values()].count(1) == 1


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_does_not_answer_is_named_at_once(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_launcher, "_PATIENCE", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ProcessError) as error:
            RayLauncher(address)
    assert error.value.message == f"no Ray cluster answers at {address}: {os.strerror(111)}"
    assert "hydra.launcher.address=" in error.value.hint
