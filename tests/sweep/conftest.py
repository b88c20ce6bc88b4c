"""A fork server that all tests of sweeps share, and jobs for it: its import costs seconds."""

from __future__ import annotations

import csv
import json
import subprocess
import time
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import pytest
from tests.command import ASSAY

from assay.compose.compose import choices, compose, job_config
from assay.config.serialize import to_raw_dict
from assay.record.run_record import RunRecord
from assay_sweep.job_spec import JobSpec, to_text
from assay_sweep.worker.fork_client import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.record.run_record import Outcome
    from assay_sweep.launcher.launcher import Launcher

PROJECT = Path(__file__).parent / "project"
TINY = (
    *("data=digits", "model=mlp", "model.hidden=[8]", "optimizer=sgd", "device=cpu", "trainer.max_epochs=1"),
    *("trainer.limit_train_batches=6", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1"),
    *("callbacks=[last_checkpoint,non_finite,poison]", "baseline=none"),
)


class MakeJobSpec(Protocol):
    """Composes a tiny job of `tests/sweep/project`; see the fixture `make_job_spec`."""

    def __call__(self, *overrides: str, number: int = 0, **fields: Any) -> JobSpec: ...


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """The fork server of this process, as launchers use it."""
    shared = ForkServer.shared()
    yield shared
    shared.close()


@pytest.fixture
def make_job_spec(tmp_path: Path) -> MakeJobSpec:
    """A job: its run directory and output lie in `tmp_path`, which is its working directory, too."""
    made = 0

    def make(*overrides: str, number: int = 0, **fields: Any) -> JobSpec:
        nonlocal made
        made += 1
        run_dir = tmp_path / f"{made}"
        typed = [*TINY, f"hydra.run.dir={run_dir}", *overrides]
        for part in ("conf", "poisoned"):
            if not (tmp_path / part).exists():
                (tmp_path / part).symlink_to(PROJECT / part)
        with chdir(tmp_path):
            composed = compose(typed)
        job_spec = JobSpec(
            number=number,
            attempt=1,
            run_dir=str(run_dir),
            config=to_text(to_raw_dict(job_config(composed))),
            overrides=list(overrides),
            choices=choices(composed.hydra),
            output=f"{run_dir}.txt",
            cwd=str(tmp_path),
        )
        return replace(job_spec, **fields)

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


def run(launcher: Launcher, *job_specs: JobSpec) -> dict[int, Outcome]:
    """Run jobs as a driver does; the outcome of each job."""
    waiting = list(job_specs)
    outcomes: dict[int, Outcome] = {}
    deadline = time.monotonic() + PATIENCE
    while len(outcomes) < len(job_specs):
        assert time.monotonic() < deadline
        while waiting and launcher.has_room(waiting[0]):
            launcher.start(waiting.pop(0))
        outcomes |= launcher.wait(1.0)
    return outcomes


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def environment(job_spec: JobSpec) -> dict[str, str]:
    """The variables of a job, those that a record keeps."""
    kept: dict[str, str] = RunRecord.load(Path(job_spec.run_dir)).machine["environment"]
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


def check_study(sweep: Path, trials: int) -> None:
    """Whether each trial of a study has ended once, and it has as many as it was to have."""
    import optuna  # costs seconds, which few tests need

    from assay_sweep.pruning import open_storage

    events = [json.loads(line) for line in (sweep / "journal.jsonl").read_text().splitlines()]
    ended = [
        event["number"]
        for event in events
        if event["event"] == "end" and event["status"] in ("finished", "pruned")
    ]
    assert sorted(ended) == list(range(trials))
    study = optuna.load_study(study_name="sweep", storage=open_storage(f"{sweep}/study.log"))
    states = [trial.state.name for trial in study.trials if trial.params]
    assert len(states) == trials
    assert {*states} <= {"COMPLETE", "PRUNED"}
    with (sweep / "results.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == trials
