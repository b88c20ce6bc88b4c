"""Tables and pages of many runs: seconds and memory of `assay compare`, `ls` and `report`.

    uv run python benchmarks/compare.py

One run is trained, and its directory is copied: every copy has its own learning rate (one of 200), seed and
scores. Of the 2,000 runs of a report each has a learning rate of its own; once more with configs that were
edited, and with records that do not have the SHA-256 they say. Each command is a process of its own, from its
start to its end, the fastest of three; CPU seconds are held against the goals, which on an idle machine is
what the clock says. Exit code 1 where one is missed.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from assay.files.checksum import seal_json, seal_yaml
from assay.record.provenance import cpu_model

GOALS = {1_000: 1.3, 10_000: 5.0}
"""Seconds for a number of runs."""
MEMORY = 500
"""MB."""
REPORTED, REPORT_GOAL, LARGEST = 2_000, 5.0, 6.0
"""Runs of a report, its seconds, and the MB of its page."""
MAIN = "from assay.cli.app import main; main()"
NO_TORCH = "import sys; import atexit; atexit.register(lambda: 'torch' in sys.modules and print('TORCH')); "
COMMANDS = (
    ("compare",),
    ("ls",),
    ("ls", "--limit", "0"),
    ("compare", "--where", "data.batch_size>1", "--format", "csv"),
)


def trained(folder: Path) -> Path:
    """A real run."""
    run = folder / "run"
    words = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=2", f"hydra.run.dir={run}")
    subprocess.run([sys.executable, "-c", MAIN, "train", *words], cwd=folder, check=True, capture_output=True)  # noqa: S603 - a command of this file
    return run


def copied(run: Path, number: int, folder: Path, rates: int = 200) -> None:
    """Copies of a run, without its checkpoints, below a folder; so many learning rates, then other seeds."""
    plain = json.loads((run / "record.json").read_text(encoding="utf-8"))
    config = (run / "config.yaml").read_text(encoding="utf-8").rpartition("# sha256")[0]
    typed = plain["overrides"]
    del plain["sha256"]
    for index in range(number):
        lr, seed = f"{(index % rates + 1) / 1000}", index // rates
        again = folder / f"{index // 1000}" / f"{index}"
        again.mkdir(parents=True)
        plain |= {
            "run_id": str(index),
            "seed": seed,
            "overrides": [*typed, f"optimizer.lr={lr}", f"seed={seed}"],
            "fingerprint": f"{index:064x}",
            "config_fingerprint": f"{index % rates:064x}",
            "metrics": {
                name: value + index % 7 / 100 + seed / 1000 for name, value in plain["metrics"].items()
            },
        }
        (again / "record.json").write_text(seal_json(json.dumps(plain, indent=2)), encoding="utf-8")
        own = config.replace("\nseed: 0\n", f"\nseed: {seed}\n")
        (again / "config.yaml").write_text(seal_yaml(own), encoding="utf-8")
        shutil.copy(run / "metrics.csv", again / "metrics.csv")


def measured(words: tuple[str, ...], folder: Path) -> tuple[float, float, float]:
    """Seconds by the clock and of CPU, and MB of a command; the fastest of three."""
    clock, cpu, memory = float("inf"), float("inf"), 0.0
    for _ in range(3):
        start = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - commands of this file
            [sys.executable, "-c", NO_TORCH + MAIN, words[0], str(folder), *words[1:]],
            stdout=(folder / "out.txt").open("w"),
        )
        _, status, usage = os.wait4(process.pid, 0)
        clock = min(clock, time.perf_counter() - start)
        cpu = min(cpu, usage.ru_utime + usage.ru_stime)
        memory = max(memory, usage.ru_maxrss / 1024)
        text = (folder / "out.txt").read_text(encoding="utf-8")
        lines = {"report": 3, "ls": 50}.get(words[0], 200)
        if status or "TORCH" in text or text.count("\n") < lines:
            sys.exit(f"assay {' '.join(words)} has failed or imported torch: {text[-1000:]}")
    (folder / "out.txt").unlink()
    return clock, cpu, memory


def edited(folder: Path, name: str, old: str, new: str) -> None:
    """Change a file of every run, each a little differently, so that its SHA-256 is not what it says."""
    for index, path in enumerate(sorted(folder.rglob(name))):
        path.write_text(path.read_text(encoding="utf-8").replace(old, f"{new}{index}"), encoding="utf-8")


def reported(run: Path, folder: Path) -> bool:
    """Print a line for each kind of damage; whether all goals are kept."""
    all_kept = True
    for kind, change in (
        ("sealed", ()),
        ("edited configs", ("config.yaml", "\n  lr: ", "\n  lr: 0.")),
        ("damaged records", ("record.json", '"seconds": ', '"seconds": 1')),
    ):
        runs = folder / kind.replace(" ", "_")
        copied(run, REPORTED, runs, REPORTED)
        if change:
            edited(runs, *change)
        clock, cpu, memory = measured(("report",), runs)
        size = (runs / "report.html").stat().st_size / 1e6
        kept = cpu <= REPORT_GOAL and size <= LARGEST and memory <= MEMORY
        all_kept &= kept
        said = f"{clock:5.2f} s, {cpu:5.2f} s of CPU, {memory:4.0f} MB, a page of {size:.1f} MB"
        goals = f"goal {REPORT_GOAL:.0f} s, {LARGEST:.0f} MB: {'kept' if kept else 'missed'}"
        print(f"{REPORTED:>6} runs, assay report, {kind:<46} {said}; {goals}", flush=True)
    return all_kept


def main() -> None:
    """Print a line for each number of runs and command."""
    print(f"{cpu_model()}, {platform.python_version()}, {os.cpu_count()} cores")
    missed = False
    with tempfile.TemporaryDirectory() as temporary:
        run = trained(Path(temporary))
        for number, goal in GOALS.items():
            folder = Path(temporary) / str(number)
            copied(run, number, folder)
            for words in COMMANDS:
                clock, cpu, memory = measured(words, folder)
                kept = cpu <= goal and memory <= MEMORY
                missed |= not kept and words == COMMANDS[0]
                said = f"{clock:5.2f} s, {cpu:5.2f} s of CPU, {memory:4.0f} MB"
                goals = f"goal {goal:g} s, {MEMORY} MB: {'kept' if kept else 'missed'}"
                print(f"{number:>6} runs, assay {' '.join(words):<52} {said}; {goals}", flush=True)
        missed |= not reported(run, Path(temporary))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
