"""Jobs on real Ray clusters: they end, die, stop and are leased GPUs; nodes die and join."""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.sweep.conftest import TINY, environment, is_gone, run, until
from tests.sweep.launcher.shared import ENDLESS, next_end

from assay.errors import AssayError
from assay.process import keep_handlers
from assay.record.run_record import RunRecord
from assay_sweep.launcher.ray import RayLauncher
from assay_sweep.session import start_sweep
from assay_sweep.testing import check_launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay_sweep.job_spec import JobSpec
    from assay_sweep.worker.fork_client import ForkServer

pytestmark = pytest.mark.long
"""A cluster and each of its places import torch; every run of the tests tries a local launcher."""
IN_THE_CLUSTER = "TORCH_OF_THE_CLUSTER"


SETTINGS = {
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback alone
}
LIMITS: dict[str, Any] = {"object_store_memory": 80 << 20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster with two GPUs that are not there; a launcher joins it as it would any that is running."""
    with pytest.MonkeyPatch.context() as patch, keep_handlers((signal.SIGINT, signal.SIGTERM)):
        for name, value in (SETTINGS | {IN_THE_CLUSTER: "1"}).items():
            patch.setenv(name, value)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # Ray refuses more GPUs than it names
        import ray

        folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))  # paths of sockets must be short
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=2,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
            **LIMITS,
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


@pytest.mark.always("stop")
@pytest.mark.parametrize("ending", ["exception", "memory", "stop", "hang"])
def test_it_keeps_the_promises_of_a_launcher(ending: str, launcher: RayLauncher, tmp_path: Path) -> None:
    check_launcher(launcher, tmp_path, [ending], gpus=1)


def test_a_job_has_the_variables_of_its_place(
    launcher: RayLauncher, cluster: Any, make_job_spec: MakeJobSpec
) -> None:
    usual = make_job_spec()
    run(launcher, usual)
    assert environment(usual)[IN_THE_CLUSTER] == "1"
    place = launcher._idle[0].cluster_worker
    cluster.get(place.stop.remote("x", now=True))
    outcome = cluster.get(place.run.remote("x", make_job_spec(*ENDLESS)))
    assert outcome.status == "interrupted", "it was to stop before it began"


def test_a_gpu_belongs_to_one_job(launcher: RayLauncher, make_job_spec: MakeJobSpec) -> None:
    job_specs = [make_job_spec("callbacks.poison.kind=hang", number=number) for number in (0, 1)]
    for job_spec in job_specs:
        assert launcher.has_room(job_spec)
        launcher.start(job_spec)
    assert launcher.has_gpus
    assert not launcher.has_room(make_job_spec())
    until(lambda: all(Path(job_spec.run_dir, "record.json").is_file() for job_spec in job_specs))
    assert sorted(environment(job_spec)["CUDA_VISIBLE_DEVICES"] for job_spec in job_specs) == ["0", "1"]
    with pytest.raises(AssayError, match=r"needs 1 CPU, 3 GPU, .* \(available: 2 CPU, 2 GPU\)"):
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
    launcher._retire_idle()
    held = other.remote()
    until(lambda: cluster.available_resources().get("CPU", 0) < 1)
    launcher.start(make_job_spec(number=4))
    assert launcher.wait(0.5) == {}
    launcher.stop(4, now=False)
    assert next_end(launcher).status == "interrupted"
    cluster.cancel(held, force=True)


def test_a_trial_is_pruned(project: Path, shared: RayLauncher, fork_server: ForkServer) -> None:
    shared.close()  # its places hold the cluster's cores, and these jobs would wait for them
    result = start_sweep(
        [
            *(one for one in TINY if not one.startswith("trainer.max_epochs")),
            *("trainer.max_epochs=2", "hydra/launcher=ray", "hydra.launcher.jobs_at_once=1"),
            *("hydra/sweeper=optuna", "hydra/sweeper/pruner=median", "hydra/sweeper/sampler=random"),
            *("hydra.sweeper.pruner.n_startup_trials=1", "hydra.sweeper.pruner.n_warmup_steps=0"),
            *("hydra.sweeper.num_trials=2", "optimizer.lr=choice(0.3,1e-7)", "hydra.sweep.dir=sweep"),
        ]
    )
    assert [job.status for job in result.jobs] == ["finished", "pruned"]
