"""Whole sweeps: assay's local launcher, Hydra's basic launcher, and fresh processes one after another.

    uv run python benchmarks/sweep.py             # 8 jobs of about ten seconds, 8 of under one
    uv run python benchmarks/sweep.py --many 1000 # what the driver costs a job, and its memory

Every command is timed as a whole, from its start to its end; sides are interleaved, medians count. Hydra's
launcher runs the same jobs in one process, each checked and assembled as assay does; "fresh" is `assay train`
once per job. One thread per job on all sides.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from assay.record.provenance import cpu_model

ASSAY = "from assay.cli.app import main; main()"
BASIC = """
import sys
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict
from assay_prove.prove import Prover
from assay.compose.compose import PRIMARY, choices, complete, job_config, loader
from assay.targets.trust import trust_for
from assay.run.train import run_job

typed = [*sys.argv[1:], "hydra/launcher=basic", "hydra/sweeper=basic", "hydra.sweep.subdir=${hydra.job.num}"]
prover = Prover()

def job(config):
    hydra = HydraConfig.get()
    with open_dict(config):
        config.hydra = hydra  # Hydra has taken it out, and what was typed is read there
    complete(config, hydra, trusted, hydra.runtime.output_dir)
    config = job_config(config)
    own = [str(one) for one in hydra.overrides.task]
    proof = prover.prove(config, own)
    run_job(config, own, choices(hydra), proof, raise_errors=True)

with loader(None) as hydra:
    trusted = trust_for(hydra, typed)
    hydra.multirun(config_name=PRIMARY, task_function=job, overrides=typed, with_log_configuration=False)
"""
NO_CALLBACKS = tuple(
    f"callbacks.{name}=null"
    for name in ("checkpoint", "last_checkpoint", "lr_monitor", "non_finite", "progress_bar")
)
JOB = ("data=digits", "model=mlp", "device=cpu", "callbacks=[checkpoint]")
TINY = (
    *("data=iris", "model=linear", "device=cpu", *NO_CALLBACKS, "logger=[]", "trainer.max_epochs=1"),
    *("trainer.limit_train_batches=1", "trainer.limit_val_batches=0", "trainer.limit_test_batches=0"),
)


def timed(code: str, *words: str, cwd: Path) -> float:
    """Seconds that a command takes from its start to its end."""
    start = time.perf_counter()
    full = [sys.executable, "-c", code, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(  # noqa: S603 - commands of this file
        full, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
    return seconds


def sides(epochs: int, jobs: int, folder: Path, *, fresh: bool) -> dict[str, float]:
    """Seconds of the same jobs, run by each side."""
    number = len(list(folder.iterdir()))
    job = (*JOB, f"trainer.max_epochs={epochs}")
    sweep = (*job, f"seed=range({jobs})")
    found = {
        "assay": timed(ASSAY, "train", "-m", *sweep, f"hydra.sweep.dir=assay{number}", cwd=folder),
        "basic": timed(BASIC, *sweep, f"hydra.sweep.dir=basic{number}", cwd=folder),
    }
    if fresh:
        start = time.perf_counter()
        for seed in range(jobs):
            timed(ASSAY, "train", *job, f"seed={seed}", f"hydra.run.dir=fresh{number}/{seed}", cwd=folder)
        found["fresh"] = time.perf_counter() - start
    return found


def compare(name: str, epochs: int, jobs: int, rounds: int, *, fresh: bool) -> None:
    """Print the medians of some rounds, and the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        every = [sides(epochs, jobs, Path(folder), fresh=fresh) for _ in range(rounds)]
    print(f"\n{name}: {jobs} jobs of {epochs} epochs, {rounds} rounds")
    for side in every[0]:
        seconds = [one[side] for one in every]
        ratios = [one[side] / one["assay"] for one in every]
        spread = f"{min(seconds):.1f} to {max(seconds):.1f}"
        print(
            f"  {side:<6} {statistics.median(seconds):7.1f} s  ({spread})"
            f"   {statistics.median(ratios):5.2f} x assay's time"
        )


def many(jobs: int) -> None:
    """Print what the driver's own process costs a job, and its memory in the first and in the last tenth."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "-m", *TINY, f"seed=range({jobs})", "hydra.sweep.dir=many"]
        driver = subprocess.Popen(  # noqa: S603 - a command of this file
            [sys.executable, "-c", ASSAY, *words], cwd=folder, stdout=subprocess.DEVNULL
        )
        process, start = psutil.Process(driver.pid), time.perf_counter()
        journal = Path(folder, "many", "journal.jsonl")
        memory: list[tuple[int, int]] = []
        cpu = 0.0
        while driver.poll() is None:
            times = process.cpu_times()
            cpu = times.user + times.system
            ended = journal.read_text().count('"event":"end"') if journal.exists() else 0
            memory.append((ended, process.memory_info().rss))
            time.sleep(1.0)
        seconds = time.perf_counter() - start
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        spent = sum(line["seconds"] for line in lines if line["event"] == "end")
        done = sum(line["event"] == "end" and line["status"] == "finished" for line in lines)
    early = [rss for ended, rss in memory if jobs // 10 <= ended < jobs // 5]
    late = [rss for ended, rss in memory if ended >= jobs - jobs // 10]
    print(f"\n{done} of {jobs} jobs done in {seconds:.0f} s; the jobs themselves {spent:.0f} s")
    print(f"  driver: {1000 * cpu / jobs:.1f} ms of CPU a job, composing and checking included")
    print(f"  driver's memory: {early[0] >> 20} MB after a tenth, {late[-1] >> 20} MB at the end")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--long", type=int, default=250, help="epochs of a job of about ten seconds")
    parser.add_argument("--short", type=int, default=4, help="epochs of a job of under a second")
    parser.add_argument("--many", type=int, default=0, help="only this: so many trivial jobs")
    asked = parser.parse_args()
    print(f"{cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if asked.many:
        many(asked.many)
        return
    compare("long", asked.long, asked.jobs, asked.rounds, fresh=False)
    compare("short", asked.short, asked.jobs, asked.rounds, fresh=True)


if __name__ == "__main__":
    main()
