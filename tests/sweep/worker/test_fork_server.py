"""The process that jobs are forked from: what it is, and what a job finds in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
from tests.sweep.conftest import environment

from assay.build.trainer import VARIABLE

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.worker.fork_client import ForkServer


def test_a_fork_server_has_one_thread_and_no_gpu(fork_server: ForkServer, make_job_spec: MakeJobSpec) -> None:
    key = fork_server.start(make_job_spec())
    assert list(fork_server.wait([key], 60.0)) == [key]
    process = psutil.Process(fork_server.pid)
    assert process.num_threads() == 1
    assert not [path.path for path in process.open_files() if "nvidia" in path.path]


def test_a_job_takes_the_nvml_check_from_itself_alone(
    fork_server: ForkServer, make_job_spec: MakeJobSpec
) -> None:
    job_specs = make_job_spec(), make_job_spec()
    for job_spec in job_specs:  # one after the other: the first has trained when the second is forked
        key = fork_server.start(job_spec)
        assert fork_server.wait([key], 60.0)[key].exit_code == 0
    assert [environment(job_spec)[VARIABLE] for job_spec in job_specs] == ["1", "1"]
