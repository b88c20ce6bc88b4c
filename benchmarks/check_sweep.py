"""What checking a sweep costs: one hundred jobs that differ in values, against one.

    uv run python benchmarks/check_sweep.py

Both sides compose and check, in one process that has imported everything; CPU seconds, since that is what a
busy machine does not change.
"""

from __future__ import annotations

import platform
import time

import torch

from assay.record.provenance import cpu_model
from assay_sweep.session import check_sweep

ONE = ("seed=0",)
MANY = (
    *("optimizer.eps=1e-9,2e-9,3e-9,4e-9,5e-9,6e-9,7e-9,8e-9,9e-9,1e-8", "optimizer.lr=0.01,0.02"),
    "optimizer.weight_decay=0.1,0.2,0.3,0.4,0.5",
)


def seconds(overrides: tuple[str, ...]) -> tuple[int, float, float]:
    """Number of jobs, CPU seconds, seconds by the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    reports = check_sweep(overrides)
    return len(reports), time.process_time() - cpu, time.perf_counter() - clock


def main() -> None:
    """Print both sides."""
    seconds(ONE)
    print(f"{cpu_model()}, {platform.python_version()}, torch {torch.__version__}")
    one, many = seconds(ONE), seconds(MANY)
    for number, cpu, clock in (one, many):
        print(f"{number:>4} job(s): {cpu:.2f} s of CPU, {clock:.2f} s")
    print(f"more for {many[0] - 1} jobs: {many[1] - one[1]:.2f} s of CPU, {many[2] - one[2]:.2f} s")


if __name__ == "__main__":
    main()
