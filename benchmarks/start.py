"""From Enter to the first training step, beside the imports that nobody can do without.

    uv run python benchmarks/start.py                          # the default job
    uv run python benchmarks/start.py --pictures DIR           # a folder of classes, when it was read before

Sides are interleaved: a process that imports torch, lightning and torchvision and ends, and `assay train`,
which ends where its first step would begin. CPU seconds of whole processes, one thread; medians count.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile

from assay.record.provenance import cpu_model

GOAL = 1.15
GOAL_PICTURES = 1.5
IMPORTS = "import torch, lightning, torchvision"
TRAIN = """
import os, sys
import assay.cli.train as verb
from assay.cli.app import main
take_world = verb._take_world
def begin():  # once the command runs: what is imported before it would be imported in another way
    from assay.loop.epoch_loop import EpochLoop
    EpochLoop.run = lambda *_: os._exit(7)
    return take_world()
verb._take_world = begin
sys.argv = ["assay", "train", *sys.argv[1:]]
main()
"""


def cpu_seconds(folder: str, code: str, *words: str) -> float:
    """Of a whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ASSAY_CACHE": f"{folder}/cache"}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - of this file
    if done.returncode != (7 if code == TRAIN else 0):
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--pictures", help="folder of one folder per class")
    arguments = parser.parse_args()
    words = ["device=cpu"]
    if arguments.pictures:
        words += ["data=image_folder", f"data.source.root={os.path.abspath(arguments.pictures)}"]  # noqa: PTH100
    print(f"{cpu_model()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as folder:
        first = cpu_seconds(folder, TRAIN, *words)
        pairs = [
            (cpu_seconds(folder, IMPORTS), cpu_seconds(folder, TRAIN, *words)) for _ in range(arguments.pairs)
        ]
    imports, trains = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(ours / theirs for theirs, ours in pairs)
    print(f"imports    {imports:6.2f} s of CPU")
    print(f"train      {trains:6.2f} s to the first step, {ratio:.2f} of it; goal {GOAL}")
    if arguments.pictures:
        beyond = statistics.median(ours - theirs for theirs, ours in pairs)
        said = f"{beyond:6.2f} s beyond the imports; goal {GOAL_PICTURES}"
        print(f"pictures   {said}; {first:.2f} s the first time")


if __name__ == "__main__":
    main()
