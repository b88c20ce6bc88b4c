"""From the start of a sweep's job to its first optimizer step: forked, against a process of its own.

    uv run python benchmarks/job_start.py

Both sides run the same job, in a git repository with uncommitted changes, and write down the moment in which
the first step is done. Pairs are interleaved. Before them a fork server has imported everything and the job
was checked, as in every sweep; a process of its own does both itself. Goal: 1/30.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

from assay.compose.compose import compose_job
from assay.record.provenance import cpu_model
from assay_sweep.job_spec import JobSpec, to_text
from assay_sweep.launcher.local import LocalLauncher
from assay_sweep.worker.fork_client import CheckProcess, ForkServer

STAMP = '''
"""Writes down when the first step was done."""
import time
from pathlib import Path
from lightning.pytorch.callbacks import Callback


class Stamp(Callback):
    """See above."""

    def __init__(self, path: str) -> None:
        self.path = path

    def on_train_batch_end(self, *args: object) -> None:
        if self.path:
            Path(self.path).write_text(str(time.monotonic()))
            self.path = ""
'''
OPTION = """# @package callbacks.stamp
# The moment of the first step.
_target_: stamped.stamp.Stamp
path: ${run_dir}.stamp
"""
JOB = ("data=digits", "device=cpu", "trainer.max_epochs=1", "callbacks=[default,stamp]")


def make_project(folder: Path) -> None:
    """A project with a package of its own, in a repository of its own."""
    files = {
        "conf/project.yaml": "trusted_packages: [stamped]\n",
        "conf/callbacks/stamp.yaml": OPTION,
        "stamped/__init__.py": "",
        "stamped/stamp.py": STAMP,
        ".gitignore": "outputs\n__pycache__\n",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *command], cwd=folder, check=True)  # noqa: S603 - git itself
    (folder / "stamped" / "__init__.py").write_text("# changed\n", encoding="utf-8")


def cold(folder: Path, run_dir: Path) -> float:
    """Seconds from the start of `assay train` to its first step."""
    start = time.monotonic()
    command = [str(Path(sys.executable).with_name("assay")), "train", *JOB, f"hydra.run.dir={run_dir}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)  # noqa: S603 - our own command
    return float(Path(f"{run_dir}.stamp").read_text(encoding="utf-8")) - start


def forked(folder: Path, run_dir: Path, launcher: LocalLauncher, checks: CheckProcess) -> float:
    """Seconds from `Launcher.start` to the first step."""
    with chdir(folder):
        job = compose_job([*JOB, f"hydra.run.dir={run_dir}"])
        spec = checks.prove(job).report.spec
    job_spec = JobSpec(
        number=0,
        attempt=1,
        run_dir=str(run_dir),
        config=to_text(job.config),
        overrides=list(JOB),
        choices=job.choices,
        spec=dict(spec),
        output=f"{run_dir}.txt",
        cwd=str(folder),
    )
    start = time.monotonic()
    launcher.start(job_spec)
    (outcome,) = launcher.wait(600.0).values()
    if outcome.status != "finished":
        raise SystemExit(f"{outcome}\n{Path(job_spec.output).read_text(encoding='utf-8')}")
    return float(Path(f"{run_dir}.stamp").read_text(encoding="utf-8")) - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--forked", type=int, default=4, help="forked jobs a pair")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_project(folder)
        launcher, checks = LocalLauncher(jobs_at_once=1), CheckProcess(ForkServer.shared())
        forked(folder, folder / "outputs" / "warm", launcher, checks)
        slow: list[float] = []
        quick: list[float] = []
        for pair in range(arguments.pairs):
            slow.append(cold(folder, folder / "outputs" / f"cold-{pair}"))
            for one in range(arguments.forked):
                run_dir = folder / "outputs" / f"forked-{pair}-{one}"
                quick.append(forked(folder, run_dir, launcher, checks))
        checks.close()
        launcher.close()
    print(f"{cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for side, seconds in (("cold process", slow), ("forked job", quick)):
        median = statistics.median(seconds)
        spread = f"from {min(seconds):.3f} to {max(seconds):.3f}, {len(seconds)} times"
        print(f"{side:<12}  {median:8.3f} s   1/{statistics.median(slow) / median:.1f}   ({spread})")
    print("goal                       1/30")


if __name__ == "__main__":
    main()
