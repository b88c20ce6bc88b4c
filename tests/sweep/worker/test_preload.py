from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from assay.sweep.worker.preload import preload
preload()
before = set(sys.modules)
from assay.compose.compose import compose, job_config
from assay.build.node import build
for name in ("digits", "wine"):
    config = job_config(compose([f"data={name}", "device=cpu", "model=mlp"]))
    build(config, "data")
late = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(late & {"torch", "torchvision", "torchmetrics", "lightning", "sklearn", "pandas"}))
"""


def test_what_jobs_are_made_of_is_there_already() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
