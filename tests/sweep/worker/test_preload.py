"""What is imported where: nothing heavy in a driver, everything in its fork server, which ends with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from tests.sweep.conftest import is_gone, until
from tests.sweep.launcher.shared import ENDLESS

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec

HEAVY = {"torch", "torchvision", "torchmetrics", "lightning", "numpy", "sklearn", "pandas"}
DRIVER = """
import sys
from assay.sweep.worker.fork_client import ForkServer
from assay.sweep.job_spec import JobSpec
fork_server = ForkServer.shared()
fork_server.start(JobSpec.from_json(sys.stdin.readline()))
print(fork_server.pid, flush=True)
sys.stdin.readline()
print(*{name.partition(".")[0] for name in sys.modules}, flush=True)
"""


def test_a_job_imports_nothing_heavy_nor_does_its_driver_and_both_end_together(
    make_job_spec: MakeJobSpec, tmp_path: Path
) -> None:
    """For a driver that is killed see `tests/sweep/test_killed_sweeps.py`."""
    job_spec = make_job_spec(*ENDLESS)
    run_dir = Path(job_spec.run_dir)
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"PYTHONVERBOSE": "1"},  # each process says what it imports
        ) as driver,
    ):
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write(job_spec.to_json() + "\n")
        driver.stdin.flush()
        fork_server = int(driver.stdout.readline())
        until((run_dir / "metrics.csv").is_file)
        jobs = [child.pid for child in psutil.Process(fork_server).children()]
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert not HEAVY & {*driver.stdout.readline().split()}
        assert driver.wait(30.0) == 0
    assert len(jobs) == 1
    assert all(map(is_gone, [fork_server, *jobs]))
    assert json.loads((run_dir / "record.json").read_text(encoding="utf-8"))["status"] == "interrupted"
    assert (run_dir / "checkpoints" / "last.ckpt").is_file()

    said = Path(job_spec.output).read_text(encoding="utf-8").splitlines()
    imported = {line.split("'")[1] for line in said if line.startswith("import '")}
    assert "poisoned.poison" in imported, "the project's own, which may change while the sweep runs"
    late = {name for name in imported if name.partition(".")[0] in HEAVY}
    assert {name for name in late if not name.startswith("torch.utils.serialization")} == set()
