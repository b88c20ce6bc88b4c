"""The launcher of ranks, and other launchers."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.forks import Forks

import assay
from assay.check.checker import Checker
from assay.errors import AssayError
from assay.run.evaluate import evaluate
from assay.run.reproduce import reproduce
from assay.run.resume import resume
from assay.sweep import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Train, Trained


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Forks]:
    """A launcher whose two ranks have met and wait; they do not end when they are told to."""
    with Forks() as forks:
        forks.start(cwd=tmp_path, module="tests.run.waiting_ranks")
        wait_for(lambda: len(list(tmp_path.glob("pid*"))) == 2)
        yield forks


def launcher(forks: Forks) -> psutil.Process:
    [process] = psutil.Process(forks.pid).children()
    return process


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int((folder / f"pid{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they look once a second")
def test_the_store_is_for_this_machine_alone_and_ranks_die_with_their_launcher(
    waiting: Forks, tmp_path: Path
) -> None:
    listening = [
        one.laddr.ip
        for process in map(psutil.Process, (launcher(waiting).pid, *pids(tmp_path)))
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]
    launcher(waiting).kill()
    assert waiting.wait().killed
    wait_for(lambda: not any(map(psutil.pid_exists, pids(tmp_path))))


def test_signals_in_turns_are_passed_on_and_the_launcher_waits(waiting: Forks, tmp_path: Path) -> None:
    launcher(waiting).terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    launcher(waiting).terminate()
    for rank in (0, 1):
        (tmp_path / f"told{rank}").unlink()
    launcher(waiting).terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    assert not waiting.has_ended()
    (tmp_path / "go").touch()
    assert waiting.wait().code == 0
    assert (tmp_path / "output.txt").read_text().strip() == "SIGTERM"


def test_when_the_second_dies_the_first_is_told(waiting: Forks, tmp_path: Path) -> None:
    psutil.Process(pids(tmp_path)[1]).kill()
    wait_for((tmp_path / "told0").exists)
    (tmp_path / "go").touch()
    assert waiting.wait().code == 0
    assert (tmp_path / "output.txt").read_text().strip() == "failed"


JOB = ("data=wine", "model=linear", "device=cpu", "callbacks=[]", "trainer.max_epochs=1")
SLURM = {
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES"), "1"),
    **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), "0"),
    "SLURM_JOB_ID": "12345",
    "SLURM_JOB_NAME": "train",
}
"""What `sbatch --ntasks-per-node=1` and `srun` tell a process."""
VERBS: dict[str, Callable[[Path, Path], object]] = {
    "train": lambda _, new: assay.train([*JOB, f"hydra.run.dir={new}"]),
    "sweep": lambda _, new: session.start_sweep([*JOB, f"hydra.sweep.dir={new}", "seed=1,2"], None),
    "check": lambda _, new: Checker(None).job([*JOB, f"hydra.run.dir={new}"]),
    "resume": lambda run, _: resume(run, ["trainer.max_epochs=2"]),
    "resume a finished run": lambda run, _: resume(run),
    "eval": lambda run, _: evaluate(run),
    "reproduce": lambda run, _: reproduce(run),
}


@pytest.fixture(scope="module")
def finished(train: Train) -> Trained:
    return train("data=wine", "model=linear")


@pytest.mark.always(
    "WORLD_SIZE-train",
    "OMPI_COMM_WORLD_SIZE-eval",
    *(f"SLURM_NTASKS-{verb}" for verb in ("check", "resume", "reproduce")),
)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("word", ["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"])
def test_one_of_several_processes(
    finished: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, word: str
) -> None:
    monkeypatch.setenv(word, "2")
    before = {path: path.stat().st_mtime_ns for path in finished.run_dir.rglob("*") if path.name != ".lock"}
    with pytest.raises(AssayError, match=f"{word}=2: this is one of 2 processes of another launcher"):
        VERBS[verb](finished.run_dir, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_an_allocation_of_one_task(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    job = ("data=wine", "model=linear", "trainer.max_epochs=2")
    run = train(*job, "callbacks=[checkpoint]")
    assert run.record["status"] == "finished"
    assert evaluate(run.run_dir).metrics["test/loss"] == pytest.approx(run.record["metrics"]["test/loss"])
    checker = Checker(None)
    assert checker.check(checker.job([*JOB, "device=ddp_cpu", "trainer.devices=2"])).report.devices == 2
