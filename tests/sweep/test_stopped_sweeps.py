"""A sweep that is stopped while its jobs start, or killed with its study: it goes on to the same end."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import chdir
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest
from tests.sweep.conftest import PATIENCE, PROJECT, TINY, check_study, is_gone, until

from assay.sweep.session import go_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.sweep.worker.fork_client import ForkServer

STUDY: Final = (
    *(*TINY, "hydra/sweeper=optuna", "hydra/sweeper/sampler=tpe", "hydra/sweeper/pruner=median"),
    "optimizer.lr=interval(0.01,0.1)",
)
SWEEPS: Final = {
    "grid": (*TINY, "seed=range(2)", "optimizer.lr=0.1,0.03", "hydra.launcher.jobs_at_once=2"),
    "study": (*STUDY, "hydra.sweeper.num_trials=3", "hydra.launcher.jobs_at_once=1"),
}
JOBS: Final = {"grid": 4, "study": 3}
CODES: Final = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
SERVER: Final = """
import json, signal, sys
from pathlib import Path
from assay.sweep.session import go_on, start
from assay.sweep.worker.fork_client import ForkServer
said = sys.stdout
sys.stdout = sys.stderr
usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
while True:
    for number in usual:
        signal.signal(number, lambda *_: None)  # a second Ctrl-C may come when the sweep is over already
    print(json.dumps({"ready": ForkServer.shared().pid}), file=said, flush=True)
    asked = json.loads(sys.stdin.readline())
    try:
        for number, handler in usual.items():
            signal.signal(number, handler)
        result = go_on(Path(asked[1])) if asked[0] == "resume" else start(asked[1:])
        answer = {"code": result.exit_code, "states": [one.status for one in result.jobs]}
    except KeyboardInterrupt:  # before the first job
        answer = {"code": 130, "states": []}
    print(json.dumps(answer), file=said, flush=True)
"""


class Driver:
    """A process that drives one sweep after another, so that torch is imported once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begin()

    def _begin(self) -> None:
        with (self._folder / "said").open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
                text=True,
            )
        self.fork_server = self._line()["ready"]

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        return line

    def ask(self, *words: str) -> None:
        if self._process.poll() is not None:
            self._begin()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def send(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def answer(self) -> dict[str, Any]:
        """What became of the sweep; before its first job a signal ends the process as any other."""
        answer = self._line()
        if not answer:
            self._process.communicate()
            code = self._process.returncode
            until(lambda: not psutil.pid_exists(self.fork_server))
            self._begin()
            return {"code": 128 - code, "states": []}
        self.fork_server = self._line()["ready"]
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        until(lambda: is_gone(self.fork_server))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped sweeps")
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def driver(place: Path) -> Iterator[Driver]:
    """Both kinds of sweeps have run to their end in it, uninterrupted."""
    driver = Driver(place)
    for kind, overrides in SWEEPS.items():
        driver.ask("start", *overrides, f"hydra.sweep.dir={kind}")
        assert driver.answer() == {"code": 0, "states": ["finished"] * JOBS[kind]}, (
            place / "said"
        ).read_text()
    yield driver
    driver.close()


def events(sweep: Path) -> list[dict[str, Any]]:
    if not (sweep / "journal.jsonl").exists():
        return []
    return [json.loads(line) for line in (sweep / "journal.jsonl").read_bytes().split(b"\n")[:-1]]


def started(sweep: Path) -> int:
    return sum(event["event"] == "start" for event in events(sweep))


@pytest.mark.timeout(10_000)
@pytest.mark.parametrize("stops", [2, pytest.param(200, marks=pytest.mark.long)])
def test_a_stop_while_jobs_start(place: Path, driver: Driver, stops: int) -> None:
    draw = random.Random(stops)
    for number in range(stops):
        kind = "study" if number % 5 == 1 else "grid"
        sweep = place / f"{kind}-{stops}-{number}"
        words = ["start", *SWEEPS[kind], f"hydra.sweep.dir={sweep.name}"]
        for _ in range(draw.choice((1, 1, 2))):
            stop_once(driver, sweep, words, draw, JOBS[kind])
            if not (sweep / "journal.jsonl").exists():
                break
            words = ["resume", sweep.name]
        driver.ask(*words)
        assert driver.answer() == {"code": 0, "states": ["finished"] * JOBS[kind]}
        assert (sweep / "results.csv").read_bytes() == (place / kind / "results.csv").read_bytes()
        ends = [event for event in events(sweep) if event["event"] == "end"]
        assert {event["status"] for event in ends} <= {"finished", "interrupted"}
        assert sum(event["event"] == "job" for event in events(sweep)) == JOBS[kind], "no trial is lost"
        shutil.rmtree(sweep)
    assert "Traceback" not in (place / "said").read_text()


def test_a_killed_study_ends_with_the_trials_it_was_to_have(
    place: Path, driver: Driver, fork_server: ForkServer
) -> None:
    """It goes on in this process."""
    sweep = place / "killed"
    more = ("hydra.sweeper.num_trials=4", "hydra.launcher.jobs_at_once=2", f"hydra.sweep.dir={sweep.name}")
    driver.ask("start", *STUDY, *more)
    until(lambda: started(sweep) >= 3 or (sweep / "results.csv").exists())
    driver.close()
    with chdir(place):
        assert go_on(sweep).exit_code == 0
    check_study(sweep, 4)


def stop_once(driver: Driver, sweep: Path, words: list[str], draw: random.Random, jobs: int) -> None:
    """Stop a sweep at a random moment, mostly right after a job was started, once or twice in short order."""
    before = started(sweep)
    driver.ask(*words)
    if draw.random() < 0.1:
        time.sleep(draw.uniform(0.0, 1.5))  # while it composes and checks
    else:
        more = draw.randint(1, max(1, jobs - before))
        until(lambda: started(sweep) >= before + more or (sweep / "results.csv").exists())
        time.sleep(draw.uniform(0.0, 0.4))
    sent = draw.choice(("SIGINT", "SIGINT", "SIGTERM", "SIGHUP"))
    start = time.monotonic()
    driver.send(signal.Signals[sent])
    if draw.random() < 0.5:
        time.sleep(draw.choice((0.0, draw.uniform(0.0, 0.3))))
        driver.send(signal.SIGINT)
    answer = driver.answer()
    assert time.monotonic() - start < PATIENCE
    # Whatever comes first of two at once; or all jobs have ended by then.
    assert answer["code"] in (CODES[sent], 130, 0)
    assert "failed" not in answer["states"]
    assert "running" not in answer["states"]
    until(lambda: not psutil.Process(driver.fork_server).children())
