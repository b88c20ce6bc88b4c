"""Jobs on real Ray clusters: they end, die, stop and are leased GPUs; nodes die and join."""

from __future__ import annotations

import ast
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.sweep.conftest import TINY, begin, environment, is_gone, run, until
from tests.sweep.launcher.shared import (
    ENDLESS,
    check_failure,
    check_hanging_job_is_ended,
    check_runs_to_its_end,
    check_same_sweep,
    check_stopped_job_saves,
    next_end,
)

from assay.errors import AssayError
from assay.process.stop_signals import handlers_kept
from assay.record.outcome import Outcome
from assay.record.run_record import RunRecord
from assay.sweep.launcher import cluster as ray_cluster
from assay.sweep.launcher.ray import RayLauncher
from assay.sweep.session import start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.job_spec import JobSpec
    from assay.sweep.worker.fork_client import ForkServer


IN_THE_CLUSTER = "TORCH_OF_THE_CLUSTER"
LAUNCHER = ("hydra/launcher=ray", "hydra.launcher.jobs_at_once=2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster with two GPUs that are not there; a launcher joins it as it would any that is running."""
    with (
        handlers_kept(ray_cluster.SIGNALS),
        ray_cluster.variables({**ray_cluster.SETTINGS, IN_THE_CLUSTER: "1"}),
    ):
        import ray

        folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))  # paths of sockets must be short
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=2,
            object_store_memory=ray_cluster.STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
        )
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def shared(cluster: Any) -> Iterator[RayLauncher]:
    """The same launcher for all tests: each of its places costs an import of torch."""
    launcher = RayLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def make_job_spec(make_job_spec: MakeJobSpec) -> MakeJobSpec:
    """Each with a GPU, so that the two places of the cluster that have one are enough for all tests."""

    def make(*overrides: str, **fields: Any) -> JobSpec:
        return make_job_spec(*overrides, **{"gpus": 1, **fields})

    return make


@pytest.fixture
def launcher(shared: RayLauncher) -> Iterator[RayLauncher]:
    yield shared
    for one in list(shared._running.values()):
        shared.stop(one.job_spec.number, now=True)
        until(lambda: shared.wait(0.1))


def test_a_job_runs_to_its_end(launcher: RayLauncher, make_job_spec: MakeJobSpec) -> None:
    check_runs_to_its_end(launcher, make_job_spec)


@pytest.mark.parametrize(
    "kind",
    ["exception", pytest.param("memory", marks=pytest.mark.long)],
)
def test_what_kills_a_job_is_told_and_takes_nothing_along(
    kind: str, launcher: RayLauncher, make_job_spec: MakeJobSpec
) -> None:
    check_failure(kind, launcher, make_job_spec)


def test_a_job_has_the_variables_that_its_place_is_told(
    launcher: RayLauncher, cluster: Any, make_job_spec: MakeJobSpec
) -> None:
    usual, told = make_job_spec(), make_job_spec()
    run(launcher, usual)
    assert environment(usual)[IN_THE_CLUSTER] == "1"
    given = {"PATH": os.environ["PATH"], "TORCH_OF_THE_DRIVER": "2"}
    place = launcher._idle[0].cluster_worker
    assert Outcome.from_json(cluster.get(place.run.remote(1000, told.to_json(), given))).status == "finished"
    seen = environment(told)
    assert seen["TORCH_OF_THE_DRIVER"] == "2"
    assert IN_THE_CLUSTER not in seen
    endless = make_job_spec(*ENDLESS)
    cluster.get(place.stop.remote(1001, now=True))
    outcome = Outcome.from_json(cluster.get(place.run.remote(1001, endless.to_json())))
    assert outcome.status == "interrupted", "it was to stop before it began"


def test_a_job_that_is_told_to_stop_saves(launcher: RayLauncher, make_job_spec: MakeJobSpec) -> None:
    check_stopped_job_saves(launcher, make_job_spec)


@pytest.mark.long
def test_a_job_that_hangs_is_ended_at_once(launcher: RayLauncher, make_job_spec: MakeJobSpec) -> None:
    check_hanging_job_is_ended(launcher, make_job_spec)


def test_a_gpu_belongs_to_one_job(launcher: RayLauncher, make_job_spec: MakeJobSpec) -> None:
    job_specs = [make_job_spec("callbacks.poison.kind=hang", number=number) for number in (0, 1)]
    for job_spec in job_specs:
        assert launcher.has_room(job_spec)
        launcher.start(job_spec)
    assert launcher.has_gpus
    assert not launcher.has_room(make_job_spec())
    until(lambda: all(Path(job_spec.run_dir, "record.json").is_file() for job_spec in job_specs))
    assert sorted(environment(job_spec)["CUDA_VISIBLE_DEVICES"] for job_spec in job_specs) == ["0", "1"]
    with pytest.raises(AssayError, match=r"needs 1 CPU, 3 GPU, .* \(there is: 2 CPU, 2 GPU\)"):
        launcher.has_room(make_job_spec(gpus=3))
    for number in (0, 1):
        launcher.stop(number, now=True)
        next_end(launcher)


def test_a_worker_that_dies_costs_one_attempt(launcher: RayLauncher, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec(*ENDLESS)
    launcher.start(job_spec)
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    job = int(Path(job_spec.output).read_text().partition("process ")[2].partition(":")[0])
    cluster_worker = psutil.Process(job).parent().parent()  # type: ignore[union-attr]  # the fork server and its own parent
    assert cluster_worker is not None
    cluster_worker.kill()
    told = next_end(launcher)
    assert (told.status, told.cause, told.transient) == ("failed", "killed", True)
    assert "Ray worker died" in told.reason
    until(lambda: is_gone(job))
    assert RunRecord.load(Path(job_spec.run_dir)).signal == "SIGTERM", "it has saved"
    assert run(launcher, make_job_spec())[0].status == "finished"


def test_a_job_spec_that_waits_for_the_cluster_can_be_stopped(
    launcher: RayLauncher, cluster: Any, make_job_spec: MakeJobSpec
) -> None:
    other = cluster.remote(lambda: time.sleep(600)).options(num_cpus=2)
    launcher._retire(launcher._idle)
    launcher._idle = []
    held = other.remote()
    until(lambda: cluster.available_resources().get("CPU", 0) < 1)
    launcher.start(make_job_spec(number=4))
    assert launcher.wait(0.5) == {}
    assert launcher.waits(4)
    launcher.stop(4, now=False)
    assert next_end(launcher).status == "interrupted"
    cluster.cancel(held, force=True)


def test_a_trial_is_pruned(project: Path, shared: RayLauncher, fork_server: ForkServer) -> None:
    shared.close()  # its places hold the cluster's cores, and these jobs would wait for them
    result = start(
        [
            *(one for one in TINY if not one.startswith("trainer.max_epochs")),
            *("trainer.max_epochs=2", "hydra/launcher=ray", "hydra.launcher.jobs_at_once=1"),
            *("hydra/sweeper=optuna", "hydra/sweeper/pruner=median", "hydra/sweeper/sampler=grid"),
            *("hydra.sweeper.pruner.n_startup_trials=1", "hydra.sweeper.pruner.n_warmup_steps=0"),
            *("hydra.sweeper.num_trials=2", "optimizer.lr=choice(0.3,1e-7)", "hydra.sweep.dir=sweep"),
        ]
    )
    assert [job.status for job in result.jobs] == ["finished", "pruned"]


def left_behind(place: Path) -> list[int]:
    """Processes of a sweep's cluster, its workers, fork servers and jobs: all run where their driver does."""
    here = str(place.resolve())
    return [
        process.pid
        for process in psutil.process_iter(["cwd", "status"])
        if process.info["cwd"] == here
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and process.pid != os.getpid()
    ]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_driver_leaves_nothing_and_the_sweep_goes_on(fork_server: ForkServer, project: Path) -> None:
    sweep = (*TINY, "callbacks.last_checkpoint.every_n_train_steps=2", "seed=1,2")
    whole = start([*sweep, "callbacks.poison.kind=none", "hydra.sweep.dir=whole"])
    assert whole.exit_code == 0
    # Two jobs hang once each, and are deaf to SIGTERM.
    hang = ("callbacks.poison.kind=hang", "callbacks.poison.times=1")
    driver = begin(project, "train", "-m", *sweep, *hang, *LAUNCHER, "hydra.sweep.dir=sweep")
    try:
        until(lambda: len(list((project / "sweep").glob("*.poisoned"))) == 2 or driver.poll() is not None)
        assert driver.poll() is None, (project / "output").read_text()
        assert left_behind(project)
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not left_behind(project), 60)
    assert begin(project, "resume", "sweep").wait() == 0, (project / "output").read_text()
    check_same_sweep(project / "sweep", project / "whole", 2)
    until(lambda: not left_behind(project), 30)


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
