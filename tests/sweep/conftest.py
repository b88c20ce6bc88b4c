"""A nursery that all tests of sweeps share, and jobs for it: its import costs seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import pytest

from assay.config.compose import choices, compose, job_config
from assay.config.plain import to_text
from assay.record.run_record import RunRecord
from assay.sweep.job_spec import Task
from assay.sweep.worker.fork_server import Nursery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.sweep.launcher.launcher import Pool
    from assay.sweep.outcome import Outcome

PROJECT = Path(__file__).parent / "project"
TINY = (
    *("data=digits", "model=mlp", "model.hidden=[8]", "optimizer=sgd", "device=cpu", "trainer.max_epochs=1"),
    *("trainer.limit_train_batches=6", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1"),
    "callbacks=[last_checkpoint,non_finite,poison]",
)


ASSAY = (sys.executable, "-c", "from assay.cli import main; main()")


class MakeTask(Protocol):
    """Composes a tiny job of `tests/sweep/project`; see the fixture `make_task`."""

    def __call__(self, *overrides: str, number: int = 0, **fields: Any) -> Task: ...


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """The nursery of this process, as pools use it."""
    shared = Nursery.shared()
    yield shared
    shared.close()


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """A task: its run directory and output lie in `tmp_path`, which is its working directory, too."""
    made = 0

    def make(*overrides: str, number: int = 0, **fields: Any) -> Task:
        nonlocal made
        made += 1
        run_dir = tmp_path / f"{made}"
        typed = [*TINY, f"hydra.run.dir={run_dir}", *overrides]
        for part in ("conf", "poisoned"):
            if not (tmp_path / part).exists():
                (tmp_path / part).symlink_to(PROJECT / part)
        with chdir(tmp_path):
            composed = compose(typed)
        task = Task(
            number=number,
            attempt=1,
            run_dir=str(run_dir),
            config=to_text(job_config(composed)),
            overrides=list(overrides),
            choices=choices(composed.hydra),
            output=f"{run_dir}.txt",
            cwd=str(tmp_path),
        )
        return replace(task, **fields)

    return make


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what `tests/sweep/project` has."""
    for name in ("conf", "poisoned"):
        (tmp_path / name).symlink_to(PROJECT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


PATIENCE = 120.0
"""Seconds for what takes one on a machine with nothing else to do."""


def run(pool: Pool, *tasks: Task) -> dict[int, Outcome]:
    """Run tasks as a driver does; the outcome of each job."""
    waiting = list(tasks)
    outcomes: dict[int, Outcome] = {}
    deadline = time.monotonic() + PATIENCE
    while len(outcomes) < len(tasks):
        assert time.monotonic() < deadline
        while waiting and pool.has_room(waiting[0]):
            pool.start(waiting.pop(0))
        outcomes |= {ended.number: ended.outcome for ended in pool.wait(1.0)}
    return outcomes


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def environment(task: Task) -> dict[str, str]:
    """The variables of a job, those that a record keeps."""
    kept: dict[str, str] = RunRecord.load(Path(task.run_dir)).machine["environment"]
    return kept


def is_gone(pid: int) -> bool:
    """Whether a process has ended; the first process of a container may never look at its end."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def begin(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start assay as a command in a folder; what it says goes to the file `output` there."""
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            [*ASSAY, *words], cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
