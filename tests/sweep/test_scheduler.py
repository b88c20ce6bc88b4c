"""The loop of a sweep over jobs that end as a list says, its policy, and the signals that stop it."""

from __future__ import annotations

import math
import signal
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.check.report import Report
from assay.compose.compose import Job
from assay.errors import ConfigError, ProcessError
from assay.record.run_record import Outcome
from assay_analysis.journal import Journal
from assay_analysis.objective import Objective
from assay_sweep.definition import Policy
from assay_sweep.launcher.launcher import Launcher
from assay_sweep.scheduler import Scheduler, make_job_record
from assay_sweep.search.grid import GridSearch
from assay_sweep.summary import SweepProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay_sweep.job_spec import JobSpec


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


class Sweep:
    """A scheduler with a real journal, grid and policy."""

    def __init__(self, folder: Path, launcher: Scripted, jobs: int = 3, **policy: Any) -> None:
        self.folder, self.launcher = folder, launcher
        self.signals: list[signal.Signals] = []
        self.told = Mock(spec=SweepProgress)
        self.journal = Journal.create(folder, overrides=[])
        definition: Any = SimpleNamespace(
            search=GridSearch([f"seed=range({jobs})"]),
            policy=Policy(**policy),
            objectives=[Objective("val/loss", "minimize")],
            composer=SimpleNamespace(job=self.compose),
            deadline=math.inf,
            reuse=False,
        )
        self.scheduler = Scheduler(
            definition, self.journal, launcher, check=self.check, watcher=self.told, signals=self.signals
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


def test_after_a_failure_no_further_job_is_started_where_that_is_asked_for(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({1: [KILLED]}), on_failure="stop")
    assert sweep.run() == ["finished", "failed", "waiting"]
    assert sweep.attempts() == [(0, 1), (1, 1)]
    sweep.told.print_message.assert_called_once()


def test_a_job_that_somebody_else_stops_has_failed(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", Scripted({0: [Outcome("interrupted", signal="SIGTERM")]}), jobs=1)
    assert sweep.run() == ["failed"]
    assert sweep.told.show_end.call_args.args[1].cause == "killed"


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
            sweep.signals.append(signal.SIGINT)
        return telling(seconds)

    launcher.wait = wait  # type: ignore[method-assign]  # Ctrl-C while it waits
    assert set(sweep.run()) == {"waiting"}
    asked = [(0, False), (1, False)]
    assert launcher.stops == (asked if presses == 1 else [*asked, (0, True), (1, True)])
    assert sweep.attempts() == [(0, 1), (1, 1)]


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
        compose, check = sweep.compose, sweep.check

        def failing(
            stage: str, call: Callable[..., Any], number_of: Callable[..., int]
        ) -> Callable[..., Any]:
            def fail_or_call(*args: Any) -> Any:
                if fates[number_of(*args)] == stage:
                    raise error
                return call(*args)

            return fail_or_call

        if asked_one_by_one:
            sweep.scheduler._compose = failing("compose", compose, lambda _, number: number)
            sweep.scheduler._check = failing("check", check, lambda job: job.config["seed"])
        for stage, name in (("room", "has_room"), ("start", "start")):
            call = getattr(launcher, name)
            setattr(launcher, name, failing(stage, call, lambda job_spec: job_spec.number))
        if not asked_one_by_one:
            for proposal in iter(sweep.scheduler._search.next, None):
                number = len(sweep.journal.jobs)
                job = compose(proposal.overrides, number)
                job_record = make_job_record(number, job, proposal.token)
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
                assert job_record.attempts == 2
                assert job_record.failures == (KILLED,)
        told = {
            call.args[0].number for call in sweep.told.show_end.call_args_list if not call.kwargs["again"]
        }
        assert told == set(range(len(fates)))


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
