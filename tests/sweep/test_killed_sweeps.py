"""A sweep that is killed or stopped at any time goes on: each job ends once, and the table is the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from contextlib import chdir, contextmanager
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest
from tests.sweep.conftest import PROJECT, TINY, begin, check_study, until
from tests.sweep.launcher.shared import check_same_sweep
from typer.testing import CliRunner

from assay.cli.app import app
from assay_sweep.session import resume_sweep, start_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from assay_sweep.worker.fork_client import ForkServer

SWEEPS: Final = {
    "grid": (
        *(*TINY, "callbacks.last_checkpoint.every_n_train_steps=2", "hydra.launcher.jobs_at_once=2"),
        *("callbacks.poison.kind=wait", "callbacks.poison.times=1"),  # until there is SWEEP.go
        *("seed=range(2)", "optimizer.lr=0.1,0.03,0.01"),
    ),
    "study": (
        *(*TINY, "hydra/sweeper=optuna", "hydra/sweeper/pruner=median", "hydra.launcher.jobs_at_once=1"),
        *("optimizer.lr=interval(0.01,0.1)", "hydra.sweeper.num_trials=6"),
    ),
}
JOBS: Final = 6
CODES: Final = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129, "SIGKILL": -9}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Path:
    """A project, and in it a sweep that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("killed sweeps")
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    (folder / "grid.go").touch()
    with chdir(folder):
        assert start_sweep([*SWEEPS["grid"], "hydra.sweep.dir=grid"]).exit_code == 0
    return folder


def events(sweep: Path) -> list[dict[str, Any]]:
    """Whole lines of the journal."""
    journal = sweep / "journal.jsonl"
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
    return [json.loads(line) for line in lines]


def ends(sweep: Path, *statuses: str) -> list[int]:
    """Jobs that have ended so, each as often as it has."""
    return sorted(event["number"] for event in events(sweep) if event.get("status") in statuses)


def all_gone(sweep: Path) -> bool:
    """Whether no process of a sweep is left; a fork server that is still importing ends when it is done."""

    def left() -> bool:
        processes = psutil.process_iter(["cmdline", "cwd"])
        server, here = "assay_sweep.worker.fork_server", str(sweep.parent.resolve())
        return any(server in (p.info["cmdline"] or ()) and p.info["cwd"] == here for p in processes)

    until(lambda: not left(), 200)
    return True


def check(sweep: Path, whole: Path) -> None:
    check_same_sweep(sweep, whole, JOBS)
    assert ends(sweep, "finished") == list(range(JOBS)), "each job ends once"
    for number in map(str, range(JOBS)):
        ours, theirs = ((folder / number / "metrics.csv").read_bytes() for folder in (sweep, whole))
        assert ours == theirs
    assert not list(sweep.glob("*/**/*.tmp"))
    assert all_gone(sweep)


def test_a_sweep_that_was_killed_and_then_stopped_comes_to_the_same_end(
    place: Path, fork_server: ForkServer
) -> None:
    """Two jobs run when the driver is killed, the next two at Ctrl-C; all go on."""
    sweep = place / "sweep"

    def are_waiting(*numbers: int) -> bool:
        return all((sweep / f"{number}.poisoned").exists() for number in numbers)

    def how_it_ended(number: int) -> tuple[str, str]:
        record = json.loads((sweep / str(number) / "record.json").read_bytes())
        return record["status"], record["signal"]

    driver = begin(place, "train", "-m", *SWEEPS["grid"], "hydra.sweep.dir=sweep")
    until(lambda: are_waiting(0, 1) or driver.poll() is not None)
    assert driver.poll() is None, (place / "output").read_text()
    code, said = typed(place, "resume", "sweep")
    assert code == 1
    assert f"still being written by process {driver.pid}" in said
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert all_gone(sweep), "the fork server and the jobs end with their driver"
    assert [how_it_ended(number) for number in (0, 1)] == [("interrupted", "SIGTERM")] * 2
    assert all((sweep / number / "checkpoints" / "last.ckpt").is_file() for number in "01"), "they have saved"

    with interrupted_when(lambda: are_waiting(2, 3)):
        code, said = typed(place, "resume", "sweep")
    assert code == 130, said
    assert "assay resume sweep" in said
    assert (sweep / "results.csv").exists(), "what is known is in the table already"
    assert all_gone(sweep)
    assert [how_it_ended(number)[0] for number in range(4)] == ["finished"] * 2 + ["interrupted"] * 2

    (place / "sweep.go").touch()
    with chdir(place):
        assert resume_sweep(sweep).exit_code == 0
    check(sweep, place / "grid")


def typed(place: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a command, in this process."""
    with chdir(place):
        ended = CliRunner().invoke(app, words)
    return ended.exit_code, ended.output


@contextmanager
def interrupted_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Have this process get the signal of Ctrl-C once something is so, unless the block has ended by then."""
    over = threading.Event()

    def interrupt() -> None:
        until(lambda: over.is_set() or condition())
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def survives(driver: subprocess.Popen[bytes], sweep: Path, draw: random.Random) -> bool:
    """Wait for a random moment, a quarter of them while it composes; whether the driver is there still."""
    try:
        if draw.random() < 0.25:
            driver.wait(draw.uniform(0.2, 6.0))
            return False
        more = len(events(sweep)) + draw.randint(1, 5)
        while len(events(sweep)) < more and driver.poll() is None:
            time.sleep(0.01)
        driver.wait(draw.uniform(0.0, 0.6))
    except subprocess.TimeoutExpired:
        return True
    return False


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SWEEPS)
@pytest.mark.parametrize("signals", ["SIGKILL", "SIGINT SIGTERM SIGHUP"])
def test_a_driver_ended_at_any_time(place: Path, kind: str, signals: str) -> None:
    count = 30
    draw = random.Random(count)
    (place / "output").unlink(missing_ok=True)
    ended = number = 0
    while ended < count:
        number, told = number + 1, 0
        sweep = place / f"{kind} {signals[:7]} {number}"
        (place / f"{sweep.name}.go").touch()
        words: tuple[str, ...] = ("train", "-m", *SWEEPS[kind], f"hydra.sweep.dir='{sweep.name}'")
        while ended < count and len(ends(sweep, "finished", "pruned")) < JOBS:
            driver = begin(place, *words)
            if survives(driver, sweep, draw):
                name = draw.choice(signals.split())
                driver.send_signal(signal.Signals[name])
                if name != "SIGKILL" and draw.random() < 0.5:
                    time.sleep(draw.uniform(0.0, 0.3))
                    driver.send_signal(signal.SIGINT)
                # Whatever comes first of two at once; or all jobs have ended by then.
                assert driver.wait(120) in (CODES[name], -signal.Signals[name], 130, -2, 0)
                ended += 1
            driver.wait()
            assert all_gone(sweep), "the fork server and the jobs end with their driver"
            known = len(ends(sweep, "finished", "pruned"))
            assert known >= told, "what was told is not forgotten"
            told = known
            if (sweep / "journal.jsonl").exists():
                words = ("resume", sweep.name)
        assert begin(place, *words).wait(300) == 0, (place / "output").read_text()[-2000:]
        if kind == "grid":
            check(sweep, place / "grid")
        else:
            check_study(sweep, JOBS)
        assert not ends(sweep, "failed")
    assert "Traceback" not in (place / "output").read_text()
