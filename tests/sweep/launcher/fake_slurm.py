"""Slurm on this machine: programs by the names of Slurm's, for the launcher and submitit to call.

`install(folder)` writes them; a job is a process of this machine, and what is known of it lies in `jobs`.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

NAMES = ("sbatch", "srun", "squeue", "scancel", "scontrol")


def install(folder: Path) -> None:
    """Write the programs into a folder, which is to be the first of PATH."""
    (folder / "jobs").mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(
            f"#!/bin/sh\nexec '{sys.executable}' '{__file__}' '{folder}' {name} \"$@\"\n"
        )
        (folder / name).chmod(0o755)


def main(folder: Path, program: str, *words: str) -> None:
    jobs = folder / "jobs"
    match program:
        case "sbatch":
            number = str(len(list(jobs.glob("*.name"))) + 1)
            text = Path(words[0]).read_text()
            name = re.search(r"--job-name=(\S+)", text)
            (jobs / f"{number}.script").write_text(text)
            (jobs / f"{number}.name").write_text(name[1] if name else "")
            with (jobs / f"{number}.log").open("wb") as log:
                subprocess.Popen(
                    [sys.executable, __file__, str(folder), "run", number],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            print(f"Submitted batch job {number}")
        case "run":
            run(jobs / words[0])
        case "srun":  # the options, then the command
            start, options = words.index(sys.executable), dict(itertools.pairwise(words))
            text = (jobs / f"{os.environ['SLURM_JOB_ID']}.script").read_text()
            for signal_number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
                signal.signal(signal_number, lambda *_: None)  # they are for the tasks
            asked = re.search(r"--nodes=(\d+)", text)
            nodes = int(asked[1]) if asked else 1
            tasks = [
                subprocess.Popen(words[start:], **of_task(options, task, nodes)) for task in range(nodes)
            ]
            sys.exit(max([task.wait() for task in tasks], key=abs))
        case "squeue":
            for path in jobs.glob("*.name"):
                state = "COMPLETED" if path.with_suffix(".over").exists() else "RUNNING"
                print(f"{path.stem}|{state}|{path.read_text()}")
        case "scancel":
            for step in steps(int((jobs / f"{words[-1]}.pid").read_text())):
                with suppress(psutil.Error):
                    step.send_signal(signal.Signals[f"SIG{words[0].partition('=')[2] or 'KILL'}"])
        case "scontrol":
            (jobs / f"{words[1]}.again").touch()


def of_task(options: dict[str, str], task: int, nodes: int) -> dict[str, Any]:
    """Output and environment of a task, each of which is a node's."""
    number = os.environ["SLURM_JOB_ID"]
    files = {
        name: os.open(
            options[f"--{option}"].replace("%j", number).replace("%t", str(task)),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        )
        for name, option in (("stdout", "output"), ("stderr", "error"))
    }
    words = {
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"), str(nodes)),
        **dict.fromkeys(("SLURM_PROCID", "SLURM_NODEID"), str(task)),
        "SLURM_LOCALID": "0",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "127.0.0.1",
    }
    return {**files, "env": os.environ | words}


def run(job: Path) -> None:
    """Run the script of a job, and again where it was queued again."""
    environment = os.environ | {"SLURM_JOB_ID": job.name}
    while True:
        process = subprocess.Popen(["/bin/bash", f"{job}.script"], env=environment, start_new_session=True)
        Path(f"{job}.pid").write_text(str(process.pid))
        process.wait()
        if not Path(f"{job}.again").exists():
            break
        Path(f"{job}.again").unlink()
    Path(f"{job}.over").touch()


def steps(pid: int) -> list[psutil.Process]:
    """All processes of a job but the one that runs its script."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
