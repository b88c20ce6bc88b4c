"""A sweep whose driver is killed at any time goes on: each job ends once, and the table is the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.sweep.conftest import PROJECT, TINY, begin, until
from typer.testing import CliRunner

from assay.cli.app import app
from assay.sweep.session import go_on, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from assay.sweep.worker.fork_client import ForkServer

JOBS = 6
FORK_SERVER = "assay.sweep.worker.fork_server"
OVERRIDES = (
    *TINY,
    "callbacks.last_checkpoint.every_n_train_steps=2",
    *("callbacks.poison.kind=wait", "callbacks.poison.times=1"),  # until there is SWEEP.go
    "seed=range(2)",
    "optimizer.lr=0.1,0.03,0.01",
    "hydra.launcher.jobs_at_once=2",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Path:
    """A project, and in it a sweep that nobody has interrupted."""
    folder = tmp_path_factory.mktemp("killed sweeps")
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    (folder / "whole.go").touch()
    with chdir(folder):
        assert start([*OVERRIDES, "hydra.sweep.dir=whole"]).exit_code == 0
    return folder


def events(sweep: Path) -> list[dict[str, object]]:
    """Whole lines of the journal."""
    lines = (
        (sweep / "journal.jsonl").read_bytes().split(b"\n")[:-1] if (sweep / "journal.jsonl").exists() else []
    )
    return [json.loads(line) for line in lines]


def is_over(sweep: Path) -> bool:
    return sum(event["event"] == "end" and event["status"] == "finished" for event in events(sweep)) == JOBS


def left_behind(sweep: Path) -> list[int]:
    """Processes of sweeps in the same place: fork servers and their jobs."""
    place = str(sweep.parent.resolve())
    return [
        process.info["pid"]
        for process in psutil.process_iter(["pid", "cmdline", "cwd"])
        if FORK_SERVER in (process.info["cmdline"] or ()) and process.info["cwd"] == place
    ]


def all_gone(sweep: Path) -> bool:
    """Whether nothing of a sweep is left; a fork server that is still importing ends when it is done."""
    deadline = time.monotonic() + 200
    while left_behind(sweep) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left_behind(sweep)


def check(sweep: Path, whole: Path) -> None:
    for name in ("results.csv", "groups.csv"):
        assert (sweep / name).read_bytes() == (whole / name).read_bytes()
    done = Counter(
        event["number"]
        for event in events(sweep)
        if event["event"] == "end" and event["status"] == "finished"
    )
    assert done == dict.fromkeys(range(JOBS), 1), "each job ends once"
    for number in range(JOBS):
        one, two = (folder / str(number) for folder in (sweep, whole))
        assert (one / "metrics.csv").read_bytes() == (two / "metrics.csv").read_bytes()
        records = [json.loads((folder / "record.json").read_bytes()) for folder in (one, two)]
        assert records[0]["weights_sha256"] == records[1]["weights_sha256"]
        assert not list(one.rglob("*.tmp"))
    assert all_gone(sweep)


def survives(driver: subprocess.Popen[bytes], sweep: Path, draw: random.Random) -> bool:
    """Wait for a random moment; whether the driver is there still.

    A quarter of the moments come while it composes and checks, the others when some more jobs have begun or
    ended.
    """
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


def test_a_sweep_that_was_killed_and_then_stopped_comes_to_the_same_end(
    place: Path, fork_server: ForkServer
) -> None:
    """Two jobs run when the driver is killed, the next two when somebody presses Ctrl-C; all go on."""
    sweep = place / "sweep"
    driver = begin(place, "train", "-m", *OVERRIDES, "hydra.sweep.dir=sweep")
    until(lambda: are_waiting(sweep, 0, 1) or driver.poll() is not None)
    assert driver.poll() is None, (place / "output").read_text()
    code, said = typed(place, "resume", "sweep")
    assert code == 1
    assert f"still being written by process {driver.pid}" in said
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert all_gone(sweep), "the fork server and the jobs end with their driver"
    assert [how_it_ended(sweep, number) for number in (0, 1)] == [("interrupted", "SIGTERM")] * 2
    assert all((sweep / number / "checkpoints" / "last.ckpt").is_file() for number in "01"), "they have saved"

    with interrupted_when(lambda: are_waiting(sweep, 2, 3)):
        code, said = typed(place, "resume", "sweep")
    assert code == 130, said
    assert "assay resume sweep" in said
    assert (sweep / "results.csv").exists(), "what is known is in the table already"
    assert all_gone(sweep)
    assert [how_it_ended(sweep, number)[0] for number in range(4)] == ["finished"] * 2 + ["interrupted"] * 2

    (place / "sweep.go").touch()
    with chdir(place):
        assert go_on(sweep).exit_code == 0
    check(sweep, place / "whole")


def are_waiting(sweep: Path, *numbers: int) -> bool:
    """Whether these jobs are in the middle of their training, and wait themselves."""
    return all((sweep / f"{number}.poisoned").exists() for number in numbers)


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

    with ThreadPoolExecutor(1) as thread:
        interrupting = thread.submit(interrupt)
        try:
            yield
        finally:
            over.set()
        interrupting.result()


def how_it_ended(sweep: Path, number: int) -> tuple[str, str]:
    record = json.loads((sweep / str(number) / "record.json").read_bytes())
    return record["status"], record["signal"]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [2, 30])
def test_a_driver_killed_at_any_time(place: Path, kills: int) -> None:
    draw = random.Random(kills)
    told = killed = number = 0
    while killed < kills:
        number += 1
        sweep = place / f"sweep {kills} {number}"
        (place / f"{sweep.name}.go").touch()
        words: tuple[str, ...] = ("train", "-m", *OVERRIDES, f"hydra.sweep.dir='{sweep.name}'")
        while killed < kills and not is_over(sweep):
            driver = begin(place, *words)
            if survives(driver, sweep, draw):
                os.kill(driver.pid, signal.SIGKILL)
                killed += 1
            driver.wait()
            assert all_gone(sweep), "the fork server and the jobs end with their driver"
            ended = sum(event["event"] == "end" for event in events(sweep))
            assert ended >= told or not sweep.exists(), "what was told is not forgotten"
            told = ended
            if (sweep / "journal.jsonl").exists():
                words = ("resume", sweep.name)
        assert begin(place, *words).wait(300) == 0, (place / "output").read_text()[-2000:]
        told = 0
        check(sweep, place / "whole")
