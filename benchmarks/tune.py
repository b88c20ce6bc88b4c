"""What `assay tune` chooses, beside the best of a full grid of the same settings.

    uv run python benchmarks/tune.py                       # two jobs: a CNN on pictures, an MLP on a table
    uv run python benchmarks/tune.py 'model=mlp data=digits'

Each point of the grid is measured once, with `tune`'s own clock; its best five and `tune`'s choice are then
measured again, in turns, and the medians are compared. `trainer.compile` is in the grid for these five alone:
compiling every point would take hours.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from contextlib import chdir

import torch

from assay.check.checker import Checker
from assay.errors import AssayError
from assay.record.provenance import cpu_model
from assay_lab.measure import Tuner, candidates, tune_job

JOBS = ("data=digits model=small_cnn", "data=digits model=mlp model.hidden=[512,512] data.batch_size=128")
COMMON = ("device=cpu", "callbacks=default", "baseline=none", "trainer.max_epochs=1000")
GOAL = 0.95
BEST, TURNS = 5, 5


def compare(words: list[str], budget_s: float) -> None:
    """Tune, measure the grid, and print both."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        checker = Checker(None)
        start = time.perf_counter()
        chosen = tune_job(checker, words, budget_s)
        seconds = time.perf_counter() - start
        tuner = Tuner(checker, words, float("inf"))
        assembly, _ = tuner.measure([])
        groups = [group for _, group in candidates(assembly, tuner.threads)]
        plain = [group for group in groups if not group[0].startswith("trainer.compile")]
        compiled = [way for group in groups if group not in plain for way in group]
        start = time.perf_counter()
        rates: dict[tuple[str, ...], float] = {}
        for point in itertools.product(*(("", *group) for group in plain)):
            settings = tuple(filter(None, point))
            try:
                rates[settings] = tuner.measure(settings)[1]
            except AssayError as error:
                print(f"  {' '.join(settings)}: {error.message}")
        best = sorted(rates, key=lambda settings: -rates[settings])[:BEST]
        ways = [*best, *((*settings, way) for settings in best for way in compiled)]
        ours = tuple(chosen.fastest)
        again: dict[tuple[str, ...], list[float]] = {settings: [] for settings in (ours, *ways)}
        for settings in [*again] * TURNS:
            again[settings].append(tuner.measure(settings)[1])
        medians = {settings: statistics.median(found) for settings, found in again.items()}
        winner = max(medians, key=lambda settings: medians[settings])
        print(f"{' '.join(words)}")
        print(f"  tune   {medians[ours]:9.0f} samples/s, {seconds:.0f} s: {' '.join(ours) or 'as typed'}")
        told = f"{len(rates)} points, {time.perf_counter() - start:.0f} s"
        print(f"  grid   {medians[winner]:9.0f} samples/s, {told}: {' '.join(winner) or 'as typed'}")
        print(f"  choice {medians[ours] / medians[winner]:9.2f} of the grid's best, goal {GOAL}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("jobs", nargs="*", default=JOBS, help="overrides, quoted")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds that tune may take")
    asked = parser.parse_args()
    print(f"{cpu_model()}, {os.cpu_count()} cores, torch {torch.__version__}")
    for job in asked.jobs:
        compare([*job.split(), *COMMON], asked.budget)


if __name__ == "__main__":
    main()
