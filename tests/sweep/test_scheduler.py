"""The loop of a sweep, over a launcher whose jobs end as a list says: what is started, retried, stopped."""

from __future__ import annotations

import signal
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.analysis.objective import Objective
from assay.check.report import Report
from assay.compose.job_composer import Job
from assay.errors import AssayError, ConfigError, ProcessError
from assay.record.journal import Journal
from assay.record.outcome import Outcome
from assay.sweep.launcher.launcher import Launcher
from assay.sweep.scheduler import Policy, Scheduler, StopRequest, job_record_of, num_gpus
from assay.sweep.search.grid import GridSearch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.record.journal import JobRecord
    from assay.sweep.job_spec import JobSpec

FINISHED = Outcome("finished", metrics={"val/loss": 0.5})
KILLED = Outcome("failed", "killed", "its process was killed by SIGKILL")
HANGS = None


class Scripted(Launcher):
    """Ends each attempt at a job as a list says; one that hangs ends when it is told to."""

    has_gpus = False
    slots = 1
    deaf = False

    def __init__(self, script: Mapping[int, Sequence[Outcome | None]], slots: int = 1) -> None:
        self.slots = slots
        self.started: list[JobSpec] = []
        self.stops: list[tuple[int, bool]] = []
        self.closed = False
        self._script = {number: list(outcomes) for number, outcomes in script.items()}
        self._running: dict[int, Outcome | None] = {}

    def has_room(self, job_spec: JobSpec) -> bool:
        del job_spec
        return len(self._running) < self.slots

    def start(self, job_spec: JobSpec) -> None:
        assert len(self._running) < self.slots
        self.started.append(job_spec)
        Path(job_spec.run_dir).mkdir(parents=True, exist_ok=True)
        outcomes = self._script.get(job_spec.number, [])
        self._running[job_spec.number] = outcomes.pop(0) if outcomes else FINISHED

    def wait(self, seconds: float) -> dict[int, Outcome]:
        ended = {number: outcome for number, outcome in self._running.items() if outcome is not None}
        for number in ended:
            del self._running[number]
        if not ended:
            threading.Event().wait(min(seconds, 0.01))
        return ended

    def stop(self, number: int, *, now: bool) -> None:
        self.stops.append((number, now))
        if number in self._running and (now or not self.deaf):
            self._running[number] = Outcome("interrupted", reason="ended", signal="SIGTERM")

    def close(self) -> None:
        self.closed = True


class Told:
    """What a sweep shows."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ends: list[tuple[int, Outcome, bool]] = []

    def started(self, job_record: JobRecord, run_dir: Path, epochs: Any) -> None:
        pass

    def ended(self, job_record: JobRecord, outcome: Outcome, *, again: bool = False) -> None:
        self.ends.append((job_record.number, outcome, again))

    def say(self, text: str) -> None:
        self.lines.append(text)

    def tick(self, job_records: Mapping[int, JobRecord], total: int) -> None:
        pass


class Sweep:
    """A scheduler with a real journal, grid and policy."""

    def __init__(self, folder: Path, launcher: Scripted, jobs: int = 3, **policy: Any) -> None:
        self.folder, self.launcher, self.told, self.stop = folder, launcher, Told(), StopRequest()
        self.journal = Journal.create(folder, overrides=[])
        search = GridSearch([f"seed=range({jobs})"])
        self.scheduler = Scheduler(
            self.journal,
            search,
            launcher,
            Policy(**policy),
            [Objective("val/loss", "minimize")],
            compose=self.compose,
            check=self.check,
            watcher=self.told,  # type: ignore[arg-type]  # it shows nothing
            stop=self.stop,
        )

    def compose(self, overrides: Sequence[str], number: int) -> Job:
        typed = dict(override.split("=") for override in overrides)
        config = {"run_dir": str(self.folder / str(number)), "seed": int(typed["seed"])}
        return Job(tuple(overrides), config, {}, str(number), "")

    def check(self, job: Job) -> Report:
        return Report(job.overrides, "x", spec={"task": "multiclass"})

    def run(self) -> list[str]:
        self.scheduler.run()
        assert self.launcher.closed
        kept = Journal.open(self.folder).jobs
        assert repr(kept) == repr(self.journal.jobs), "what is known is on disk"
        return [job.status for _, job in sorted(kept.items())]

    def attempts(self) -> list[tuple[int, int]]:
        return [(job_spec.number, job_spec.attempt) for job_spec in self.launcher.started]


def test_every_job_runs_once_in_order(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({}, slots=2), jobs=5)
    assert sweep.run() == ["finished"] * 5
    assert sweep.attempts() == [(number, 1) for number in range(5)]
    assert all(job_spec.spec == {"task": "multiclass"} for job_spec in sweep.launcher.started)


def test_what_the_machine_did_is_tried_again_so_often_and_the_code_never(tmp_path: Path) -> None:
    wrong = Outcome("failed", "exception", "ValueError: no")
    launcher = Scripted({0: [KILLED, FINISHED], 1: [wrong, FINISHED], 2: [KILLED, KILLED, KILLED, FINISHED]})
    sweep = Sweep(tmp_path / "sweep", launcher, on_failure="retry", max_retries=2)
    assert sweep.run() == ["finished", "failed", "failed"]
    assert sorted(sweep.attempts()) == [(0, 1), (0, 2), (1, 1), (2, 1), (2, 2), (2, 3)]
    assert len(sweep.journal.jobs[2].failures) == 2


def test_after_a_failure_no_further_job_is_started_where_that_is_asked_for(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({1: [KILLED]}), on_failure="stop")
    assert sweep.run() == ["finished", "failed", "waiting"]
    assert sweep.attempts() == [(0, 1), (1, 1)]
    assert len(sweep.told.lines) == 1


def test_a_job_that_somebody_else_stops_has_failed(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({0: [Outcome("interrupted", signal="SIGTERM")]}), jobs=1)
    assert sweep.run() == ["failed"]
    assert sweep.told.ends[0][1].cause == "killed"


@pytest.mark.parametrize(("deaf", "presses"), [(False, 1), (True, 2)])
def test_a_sweep_that_is_stopped_has_its_jobs_save_and_starts_no_other(
    deaf: bool, presses: int, tmp_path: Path
) -> None:
    launcher = Scripted({0: [HANGS], 1: [HANGS]}, slots=2)
    launcher.deaf = deaf
    sweep = Sweep(tmp_path / "sweep", launcher, jobs=4)
    telling = launcher.wait

    def wait(seconds: float) -> dict[int, Outcome]:
        if len(launcher.stops) < 2 * presses:
            signal.raise_signal(signal.SIGINT)
        return telling(seconds)

    launcher.wait = wait  # type: ignore[method-assign]  # Ctrl-C while it waits
    with sweep.stop.watching():
        assert set(sweep.run()) == {"waiting"}
    asked = [(0, False), (1, False)]
    assert launcher.stops == (asked if presses == 1 else [*asked, (0, True), (1, True)])
    assert sweep.attempts() == [(0, 1), (1, 1)]


def test_a_job_that_fails_while_it_is_stopped_goes_on_later(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({0: [KILLED]}))
    sweep.stop.name = "SIGTERM"
    sweep.scheduler.run()
    assert not sweep.launcher.started, "told before it began"
    sweep = Sweep(tmp_path / "other", Scripted({0: [KILLED]}))
    start = sweep.launcher.start

    def stop_then_start(job_spec: JobSpec) -> None:
        sweep.stop.name = "SIGTERM"
        start(job_spec)

    sweep.launcher.start = stop_then_start  # type: ignore[method-assign]  # told in that moment
    assert sweep.run() == ["waiting"]


def test_a_full_disk_stops_the_sweep(tmp_path: Path) -> None:
    full = Outcome("failed", "cannot_write", "No space left on device: metrics.csv\n  → make room")
    sweep = Sweep(tmp_path / "sweep", Scripted({0: [full]}))
    with pytest.raises(AssayError, match=r"No space left on device: metrics\.csv\n") as error:
        sweep.scheduler.run()
    assert "assay resume" in error.value.hint
    assert {job.status for job in sweep.journal.jobs.values()} == {"waiting"}


@pytest.mark.parametrize("deaf", [False, True])
def test_a_job_that_takes_too_long_is_told_to_save_then_killed(
    deaf: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.sweep.scheduler._GRACE", 0.05)
    launcher = Scripted({0: [HANGS]})
    launcher.deaf = deaf
    sweep = Sweep(tmp_path / "sweep", launcher, jobs=2, timeout_min=0.001)
    assert sweep.run() == ["failed", "finished"]
    assert launcher.stops[0] == (0, False)
    assert ((0, True) in launcher.stops) == deaf
    outcome = sweep.journal.jobs[0].outcome
    assert outcome is not None
    assert (outcome.cause, outcome.reason) == ("timed_out", "took longer than 0.001 min")


def test_a_job_that_cannot_run_has_failed_and_was_never_started(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({}), jobs=3)
    check = sweep.check

    def refuse(job: Job) -> Report:
        if job.config["seed"] == 1:
            raise ConfigError("must be smaller", key="optimizer.lr")
        return check(job)

    sweep.scheduler._check = refuse
    assert sweep.run() == ["finished", "failed", "finished"]
    assert [number for number, _ in sweep.attempts()] == [0, 2]
    outcome = sweep.journal.jobs[1].outcome
    assert outcome is not None
    assert outcome.reason == "optimizer.lr: must be smaller"


STAGES = ("compose", "check", "room", "start", "retried", "finished")


@settings(max_examples=60, deadline=None)
@given(
    fates=st.lists(st.sampled_from(STAGES), min_size=1, max_size=6),
    asked_one_by_one=st.booleans(),
    slots=st.integers(1, 3),
)
def test_what_keeps_one_job_from_running_fails_that_job_alone(
    fates: list[str], asked_one_by_one: bool, slots: int
) -> None:
    message = "expected something else\n  → type something else"
    launcher = Scripted({n: [KILLED] for n, fate in enumerate(fates) if fate == "retried"}, slots=slots)
    error = ConfigError("expected something else", hint="type something else")
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(Path(folder) / "sweep", launcher, jobs=len(fates), on_failure="retry")
        compose, check, room, start = sweep.compose, sweep.check, launcher.has_room, launcher.start

        def compose_or_fail(overrides: Sequence[str], number: int) -> Job:
            if fates[number] == "compose" and asked_one_by_one:
                raise error
            return compose(overrides, number)

        def check_or_fail(job: Job) -> Report:
            if fates[job.config["seed"]] == "check" and asked_one_by_one:
                raise error
            return check(job)

        def room_or_fail(job_spec: JobSpec) -> bool:
            if fates[job_spec.number] == "room":
                raise error
            return room(job_spec)

        def start_or_fail(job_spec: JobSpec) -> None:
            if fates[job_spec.number] == "start":
                raise error
            start(job_spec)

        sweep.scheduler._compose, sweep.scheduler._check = compose_or_fail, check_or_fail
        launcher.has_room, launcher.start = room_or_fail, start_or_fail  # type: ignore[method-assign]  # they fail
        if not asked_one_by_one:
            for proposal in iter(sweep.scheduler._search.next, None):
                number = len(sweep.journal.jobs)
                job = compose(proposal.overrides, number)
                job_record = job_record_of(number, job, proposal.token)
                sweep.journal.add([job_record])
                sweep.scheduler.queue(job_record, job, check(job))
        goes_through = {"retried", "finished"} | (set() if asked_one_by_one else {"compose", "check"})
        assert sweep.run() == ["finished" if fate in goes_through else "failed" for fate in fates]
        for number, fate in enumerate(fates):
            job_record = sweep.journal.jobs[number]
            assert job_record.outcome is not None
            if fate not in goes_through:
                assert job_record.outcome.reason == message
            if fate == "retried":
                assert [attempt.number for attempt in job_record.history] == [1, 2]
                assert job_record.failures == (KILLED,)
        assert {number for number, _, again in sweep.told.ends if not again} == set(range(len(fates)))


def test_a_failure_to_start_a_job_stops_the_sweep_where_failures_do(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({}), on_failure="stop")

    def refuse(_: Job) -> Report:
        raise ConfigError("must be smaller", key="optimizer.lr")

    sweep.scheduler._check = refuse
    assert sweep.run() == ["failed"]


def test_a_process_that_all_jobs_need_ends_the_sweep(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({}))

    def refuse(job_spec: JobSpec) -> bool:
        del job_spec
        raise ProcessError("no Ray cluster answers")

    sweep.launcher.has_room = refuse  # type: ignore[method-assign]  # it fails
    with pytest.raises(ProcessError):
        sweep.scheduler.run()
    assert sweep.launcher.closed
    assert {job.status for job in sweep.journal.jobs.values()} == {"waiting"}


@pytest.mark.parametrize(
    ("accelerator", "devices", "there", "expected"),
    [
        ("cpu", 4, True, 0),
        ("gpu", 2, False, 2),
        ("cuda", "1", False, 1),
        ("gpu", "auto", True, 1),
        ("gpu", -1, True, 1),
        ("gpu", [0, 3], True, 2),
        ("auto", "auto", True, 1),
        ("auto", "auto", False, 0),
    ],
)
def test_gpus(accelerator: str, devices: Any, there: bool, expected: int) -> None:
    assert num_gpus({"accelerator": accelerator, "devices": devices}, there=there) == expected
