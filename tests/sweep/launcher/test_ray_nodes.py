"""Jobs on a Ray cluster whose nodes die and join, and addresses at which there is none."""

from __future__ import annotations

import contextlib
import errno
import json
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

from assay.cli.verb import Problem
from assay.errors import AssayError, ProcessError
from assay.process import keep_handlers
from assay_analysis.journal import Journal
from assay_sweep.launcher import ray as ray_launcher
from assay_sweep.launcher.ray import RayLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay_sweep.job_spec import JobSpec


class Nodes:
    """A cluster on loopback: a head that runs no jobs, and nodes with a core each."""

    def __init__(self, folder: Path, more: dict[str, Any]) -> None:
        from ray.cluster_utils import Cluster

        Path(tempfile.gettempdir(), "ray").mkdir(exist_ok=True)  # Ray writes an address there
        head = {"num_cpus": 0, "temp_dir": str(folder), **LIMITS, **more}
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
        return self.node_of_process(int(line.partition(":")[0]))

    def node_of_process(self, pid: int) -> Any:
        above = {parent.pid for parent in psutil.Process(pid).parents()}
        return next(node for node in self.nodes if node.all_processes["raylet"][0].process.pid in above)

    def close(self) -> None:
        monitor = psutil.Process(self._cluster.head_node.all_processes["monitor"][0].process.pid)
        joined = monitor.children(recursive=True)  # nodes of the autoscaler, which would look for their head
        self._cluster.shutdown()
        for process in joined:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, head: dict[str, Any]) -> Iterator[Nodes]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with keep_handlers((signal.SIGINT, signal.SIGTERM)):
        ray = ray_launcher._import_ray()
        monkeypatch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)  # loopback alone
        folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))  # paths of sockets must be short
        nodes = Nodes(folder, head)
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
@pytest.mark.parametrize("number", [2, 3])
def test_a_sweep_goes_on_while_nodes_die_and_join(number: int, project: Path, nodes: Nodes) -> None:
    for _ in range(number):
        nodes.join()
    typed = (one for one in TINY if not one.startswith("trainer.max_epochs"))
    driver = begin(
        project,
        *("train", "-m", *typed, "seed=range(6)", "trainer.max_epochs=150", "callbacks.poison.kind=none"),
        *("hydra/launcher=ray", f"hydra.launcher.address={nodes.address}"),
        *("hydra.launcher.on_failure=retry", "hydra.sweep.dir=sweep"),
    )
    until(lambda: len(list(Path("sweep").glob("*/metrics.csv"))) >= number or driver.poll() is not None)
    nodes.die(nodes.nodes[0])
    time.sleep(2)
    nodes.join()
    assert driver.wait(400) == 0, Path("output").read_text()
    jobs = Journal.open(Path("sweep")).jobs
    assert [job_record.status for job_record in jobs.values()] == ["finished"] * 6
    assert [len(job_record.failures) for job_record in jobs.values()].count(1) == 1


def scaling_config(gcs_address: str) -> dict[str, Any]:
    """For Ray's own autoscaler: at most two nodes of a core each, and none while nobody asks."""
    worker = {"CPU": 1, "object_store_memory": LIMITS["object_store_memory"]}
    lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    return {
        "cluster_name": "scaling",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.05,
        "provider": {
            "type": "fake_multinode",
            "head_node_id": HEAD_ID,
            "gcs_address": gcs_address,
            **dict.fromkeys(
                ("use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check"), True
            ),
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": worker, "node_config": {}, "min_workers": 0, "max_workers": 2},
        },
        **{f"{name}_commands": [] for name in lists},
        **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        **{name: {} for name in ("auth", "docker", "file_mounts")},
        "file_mounts_sync_continuously": False,
    }


HEAD_ID = "f" * 51 + "00000"


@pytest.fixture
def head(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """More arguments of the head node, for the tests of a cluster that scales."""
    if "scales" not in request.node.name:
        return {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in (
        *(("RAY_FAKE_CLUSTER", "1"), ("AUTOSCALER_UPDATE_INTERVAL_S", "1")),
        *(("RAY_CLOUD_INSTANCE_ID", HEAD_ID), ("RAY_OVERRIDE_NODE_ID_FOR_TESTING", HEAD_ID)),
    ):
        monkeypatch.setenv(name, value)
    config = tmp_path / "scaling.yaml"
    config.write_text(json.dumps(scaling_config(f"127.0.0.1:{port}")))
    return {"gcs_server_port": port, "autoscaling_config": str(config)}


@pytest.mark.long
def test_a_cluster_that_scales_by_itself_grows_for_jobs_and_shrinks_after_them(
    nodes: Nodes, make_job_spec: MakeJobSpec
) -> None:
    """Its size is 0 until a job waits."""
    plain = RayLauncher(nodes.address)
    with pytest.raises(AssayError, match="which no machine of the Ray cluster has") as error:
        plain.has_room(make_job_spec())
    assert "hydra.launcher.autoscaling=true" in error.value.hint
    plain.close()
    careful = RayLauncher(nodes.address, autoscaling=True)
    assert (careful.slots, careful.has_gpus) == (1, False)
    assert careful.has_room(make_job_spec()), "one job may wait for a machine"
    careful.close()
    launcher = RayLauncher(nodes.address, jobs_at_once=3, autoscaling=True)
    first, second, third = (make_job_spec(*ENDLESS, number=number) for number in range(3))
    for job_spec in (first, second, third):
        assert launcher.has_room(job_spec)
        launcher.start(job_spec)
    assert not launcher.has_room(make_job_spec(number=3))
    until(lambda: sum(Path(spec.run_dir, "record.json").is_file() for spec in (first, second, third)) == 2)
    numbers = [number for number in range(3) if Path((first, second, third)[number].run_dir).is_dir()]
    assert len(numbers) == 2, "there are never more than two machines"
    launcher.stop(numbers[0], now=True)
    assert next_end(launcher).status == "interrupted"
    until(lambda: all(Path(spec.run_dir, "record.json").is_file() for spec in (first, second, third)))
    launcher.close()
    until(lambda: not any(machine.get("CPU") for machine in launcher_machines(nodes)))


def launcher_machines(nodes: Nodes) -> list[dict[str, float]]:
    launcher = RayLauncher(nodes.address)
    machines = launcher._machines()
    launcher.close()
    return machines


@pytest.mark.long
def test_a_job_starts_when_a_placement_group_is_given_back(
    on_nodes: RayLauncher, make_job_spec: MakeJobSpec
) -> None:
    ray = on_nodes._ray
    group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}])
    assert group.wait(60)
    job_spec = make_job_spec()
    assert on_nodes.has_room(job_spec)
    on_nodes.start(job_spec)
    assert on_nodes.wait(3.0) == {}
    ray.util.remove_placement_group(group)
    assert next_end(on_nodes).status == "finished"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_that_does_not_answer_is_named_at_once(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        for typed in (address, None):
            with pytest.raises(ProcessError) as error:
                RayLauncher(typed)
    assert error.value.message == f"no Ray cluster answers at {address}: {os.strerror(errno.ECONNREFUSED)}"
    assert "hydra.launcher.address=" in error.value.hint


TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 - of no cluster


def test_a_token_that_is_set_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setenv("RAY_AUTH_MODE", "")
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    modes: list[str] = []

    def refuse(**_: Any) -> None:
        modes.append(os.environ["RAY_AUTH_MODE"])
        raise ray.exceptions.AuthenticationError(f"InvalidAuthToken: {TOKEN}")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ProcessError) as error:
        RayLauncher("auto")
    assert modes == ["token"]
    assert "RAY_AUTH_TOKEN_PATH=FILE" in error.value.hint
    problem = Problem.of(error.value)
    assert "no Ray cluster answers at auto: InvalidAuthToken: ***" in problem.message
    assert TOKEN not in problem.message + problem.hint


def test_a_mode_that_is_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        with pytest.raises(ProcessError):
            RayLauncher(f"127.0.0.1:{server.getsockname()[1]}")
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
