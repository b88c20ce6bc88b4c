"""Run benchmarks, and write their figures into the table of `benchmarks/README.md`.

    uv run python benchmarks/all.py                       # those that need nothing but this repository
    uv run python benchmarks/all.py train_step evaluate   # some of them
    uv run python benchmarks/all.py cifar10_cpu --pictures DIR

A row of the table is replaced by the new one of the same command; the others stay. The machine should have
nothing else to do.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from assay.record.provenance import cpu_model

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
COMMANDS = {
    "train_step --model linear": "assay|hand/hand",
    "train_step --model mlp": "assay|hand/hand",
    "train_step --model small_cnn": "assay|hand/hand",
    "evaluate --model mlp": "assay|hand/hand",
    "start": "train",
    "job_start": "1/",
    "to_fit": "functions in",
    "table --rows 1000000 --pairs 1": "of by hand",
    "table --predict --pairs 1": "of by hand",
    "table --stream 10": "in memory",
    "checkpoint": " / ",
    "many_epochs": "ms an epoch",
    "check_prediction": r"\d",
    "check_sweep": "more for",
    "exactness": r"\d",
    "predict": "%",
    "compare": "runs",
    "sweep": r"\d",
    "sharded_save --megabytes 256 --ranks 2": "MB",
    "tune": r"\S",
    "stream --gigabytes 1": "samples/s|memory",
}
"""Arguments, and which lines of the output are figures."""
OF_PICTURES = {"start": "pictures", "picture_epoch": "an epoch", "cifar10_cpu": " of assay's"}
"""Those that take `--pictures DIR`."""
HEAD = """# Benchmarks

`python benchmarks/all.py` writes this table; `benchmarks/LOG.md` tells what was tried. Ratios are of assay to
the loop by hand, or to what the line names.

| command | figures | machine | date |
|---|---|---|---|
"""


def run(arguments: str, figures: str) -> str:
    """The row of one benchmark."""
    script, *rest = shlex.split(arguments)
    command = [sys.executable, str(HERE / f"{script}.py"), *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - of this folder
    if done.returncode:
        sys.exit(f"{arguments}: {done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines()[1:] if re.search(figures, line)]
    told = "<br>".join(re.sub(r"\s+", " ", line).strip().replace("|", "\\|") for line in lines)
    machine = f"{cpu_model()}, {os.cpu_count()} cores"
    shown = re.sub(r"(--pictures) \S+", r"\1 DIR", arguments)
    return f"| `{shown}` | {told} | {machine} | {datetime.datetime.now(tz=datetime.UTC).date()} |"


def write(row: str) -> None:
    """Put a row in the place of the one of the same command."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
    rows = {line.split("|")[1]: line for line in text.splitlines() if line.startswith("| `")}
    rows[row.split("|")[1]] = row
    PAGE.write_text(HEAD + "\n".join(rows[name] for name in sorted(rows)) + "\n", encoding="utf-8")


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of benchmarks")
    parser.add_argument("--pictures", type=Path, help="folder of one folder per class of CIFAR-10")
    asked = parser.parse_args()
    chosen = dict(COMMANDS)
    if asked.pictures:
        chosen = {f"{name} --pictures {asked.pictures}": lines for name, lines in OF_PICTURES.items()}
    names = {command.split()[0] for command in chosen}
    if unknown := set(asked.names) - names:
        parser.error(f"unknown {', '.join(sorted(unknown))}; expected {', '.join(sorted(names))}")
    for arguments, figures in chosen.items():
        if not asked.names or arguments.split()[0] in asked.names:
            print(arguments, flush=True)
            write(run(arguments, figures))


if __name__ == "__main__":
    main()
