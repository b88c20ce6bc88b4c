"""Slurm jobs: real processes, started by programs that stand in for Slurm's, stopped and queued again."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.conftest import unchanged_process
from tests.sweep.conftest import TINY, begin, environment, run, until
from tests.sweep.launcher import fake_slurm
from tests.sweep.launcher.shared import (
    ENDLESS,
    check_same_sweep,
    check_saves_when_stopped,
    next_end,
)

from assay.errors import ConfigError
from assay.record.run_record import RunRecord
from assay_analysis.journal import Journal
from assay_sweep.definition import make_part
from assay_sweep.job_spec import JobSpec
from assay_sweep.launcher.serial import SerialLauncher
from assay_sweep.launcher.slurm import SlurmLauncher, query_states
from assay_sweep.session import resume_sweep, start_sweep
from assay_sweep.testing import check_launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

    from assay_sweep.worker.fork_client import ForkServer


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "slurm"
    fake_slurm.install(folder)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr("assay_sweep.launcher.slurm._ASK_EVERY", 1.0)
    monkeypatch.setattr("assay_sweep.launcher.slurm._LATE", 1.0)
    return folder


@pytest.fixture
def launcher(programs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SlurmLauncher]:
    """With what a test gives as its parameter: lines for the shell before each job."""
    setup = getattr(request, "param", None)
    launcher = SlurmLauncher(tmp_path / "sweep", setup=setup)
    yield launcher
    launcher.close()
    SlurmLauncher(tmp_path / "sweep").close()  # what a test has left


def send(programs: Path, name: str, job_id: str = "1") -> None:
    fake_slurm.main(programs, "scancel", f"--signal={name}", job_id)


def weights(run_dir: str | Path) -> str:
    return RunRecord.load(Path(run_dir)).weights_sha256


_PIECES = (*tuple("\n\t%j\\'\";& #aé"), "touch ran", "$(touch ran)", "`touch ran`")
LAUNCHER = ("hydra/launcher=slurm",)


def test_slurm_is_asked_about_jobs_of_assay_alone(tmp_path: Path, slurm: Path) -> None:
    """The files that say which jobs a driver has left may be anybody's."""
    folder = tmp_path / "submitit"
    folder.mkdir()
    left = {"0-1": "7", "1-1": "8", "2-1": "--user=me", "3-1": "7 8", "../x": "9", "x": "10"}
    for name, job_id in left.items():
        (folder / Path(name).name).with_suffix(".job").write_text(job_id, encoding="ascii")
    launcher = SlurmLauncher(tmp_path)
    assert sorted(launcher.kept()) == [0]
    launcher.close()
    assert (slurm / "scancel").read_text().splitlines() == ["7"]
    assert (slurm / "squeue").read_text() == "\n", "it is asked once, not for each job"


@pytest.mark.long
@pytest.mark.parametrize(
    "launcher", [["export OMP_SETUP=yes", '[ -z "$OMP_WAIT" ] || sleep 600']], indirect=True
)
def test_a_driver_takes_up_the_jobs_of_one_that_is_gone(
    launcher: SlurmLauncher,
    programs: Path,
    make_job_spec: MakeJobSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One is told to stop, saves, and is not queued again; one has failed; one waits still."""
    runs = make_job_spec(*ENDLESS, number=0)
    fails = make_job_spec("callbacks.poison.kind=exception", number=1)
    launcher.start(runs)
    launcher.start(fails)
    until(Path(runs.run_dir, "metrics.csv").is_file)
    until((launcher._folder / "1-1.outcome").is_file)
    monkeypatch.setenv("OMP_WAIT", "yes")
    launcher.start(make_job_spec(number=2))
    ids = {number: one.job_id for number, one in launcher._running.items()}
    launcher._running.clear()  # as if it had been killed

    again = SlurmLauncher(tmp_path / "sweep")
    assert set(again.kept()) == {0, 1, 2}
    again.start(fails)
    outcome = next_end(again)
    assert (outcome.status, outcome.cause) == ("failed", "exception")
    assert outcome.reason.startswith("ValueError: this is poison (")
    assert not list(again._folder.glob("*.outcome")), "what was told is not told again"

    again.start(runs)
    assert again._running[0].job_id == ids[0]
    check_saves_when_stopped(again, runs)
    assert environment(runs)["OMP_SETUP"] == "yes", "the launcher's lines have run before it"

    again.close()  # job 2 is not a job of this sweep any more
    until((programs / "jobs" / f"{ids[2]}.over").exists, 30)


@pytest.mark.long
@pytest.mark.parametrize("ending", ["sigkill", "memory", "stop", "hang"])
def test_it_keeps_the_promises_of_a_launcher(ending: str, launcher: SlurmLauncher, tmp_path: Path) -> None:
    check_launcher(launcher, tmp_path, [ending])


@pytest.mark.long
def test_a_machine_that_dies_costs_one_attempt(
    launcher: SlurmLauncher, programs: Path, make_job_spec: MakeJobSpec
) -> None:
    job_spec = make_job_spec(*ENDLESS)
    launcher.start(job_spec)
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    send(programs, "KILL")
    told = next_end(launcher)
    assert (told.status, told.cause, told.transient) == ("failed", "killed", True)


GANG = ("trainer.strategy=ddp", "trainer.num_nodes=2", "trainer.devices=1")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_job_on_two_nodes_is_one_of_two_ranks(
    launcher: SlurmLauncher, programs: Path, make_job_spec: MakeJobSpec
) -> None:
    """It ends as on one machine; stopped, it saves; a node that is lost costs one attempt, not the steps."""
    job_spec = make_job_spec(*GANG, nodes=2)
    assert run(launcher, job_spec)[0].status == "finished", Path(job_spec.output).read_text()
    alike = make_job_spec("trainer.strategy=ddp", "trainer.devices=2", processes=2)
    assert run(launcher, alike)[0].status == "finished"
    assert weights(job_spec.run_dir) == weights(alike.run_dir)

    stopped = make_job_spec(*GANG, *ENDLESS, nodes=2)
    launcher.start(stopped)
    until(Path(stopped.run_dir, "metrics.csv").is_file)
    check_saves_when_stopped(launcher, stopped)

    lost = make_job_spec(*GANG, "trainer.max_epochs=100000", "trainer.timeout_s=30", nodes=2)
    launcher.start(lost)
    until(Path(lost.run_dir, "checkpoints", "last.ckpt").is_file)
    [srun] = fake_slurm.steps(int((programs / "jobs" / "4.pid").read_text()))[:1]
    tasks = sorted(srun.children(), key=lambda task: task.environ()["SLURM_PROCID"])
    for process in [*tasks[1].children(recursive=True), tasks[1]]:
        process.kill()
    told = next_end(launcher)
    assert (told.status, told.cause, told.transient) == ("failed", "killed", True), told.reason
    assert "rank 1 of 2" in told.reason
    launcher.start(replace(lost, attempt=2, resume=True))
    until(lambda: "resuming from step" in Path(lost.output).read_text())
    until(lambda: RunRecord.load(Path(lost.run_dir)).status == "running")
    check_saves_when_stopped(launcher, lost)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_sweep_of_jobs_on_two_nodes_goes_on_when_a_node_is_lost(project: Path, programs: Path) -> None:
    typed = (one for one in TINY if not one.startswith("trainer.max_epochs"))
    sweep = (*typed, "trainer.max_epochs=150", "trainer.strategy=ddp", "seed=1,2")
    start_sweep([*sweep, "trainer.devices=2", "hydra.sweep.dir=whole"])
    words = (*sweep, *GANG[1:], *LAUNCHER, "hydra.launcher.on_failure=retry", "hydra.sweep.dir=sweep")
    driver = begin(project, "train", "-m", *words)
    saved = project / "sweep" / "0" / "checkpoints" / "last.ckpt"
    until(lambda: saved.is_file() or driver.poll() is not None)
    assert driver.poll() is None, (project / "output").read_text()
    [srun] = fake_slurm.steps(int((programs / "jobs" / "1.pid").read_text()))[:1]
    [task] = [task for task in srun.children() if task.environ()["SLURM_PROCID"] == "1"]
    for process in [*task.children(recursive=True), task]:
        process.kill()
    assert driver.wait(600) == 0, (project / "output").read_text()
    jobs = Journal.open(project / "sweep").jobs.values()
    assert [job.status for job in jobs] == ["finished", "finished"]
    assert sum(len(job.failures) for job in jobs) == 1
    for number in ("0", "1"):
        assert weights(project / "sweep" / number) == weights(project / "whole" / number)


def test_jobs_of_several_nodes(launcher: SlurmLauncher, make_job_spec: MakeJobSpec) -> None:
    launcher.check_nodes(make_job_spec(nodes=2))
    with pytest.raises(ConfigError, match="needs 2 nodes, and this launcher has one for each job"):
        SerialLauncher().check_nodes(make_job_spec(nodes=2))


def test_a_machine_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="srun is not found"):
        SlurmLauncher(tmp_path)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs by the names of Slurm's; some note their arguments."""
    programs, answered = tmp_path / "programs", tmp_path / "answered"
    programs.mkdir()
    answered.mkdir()
    texts = {
        "sbatch": f'cp "$1" \'{answered}/script\'; bash "$1"; echo Submitted batch job 7',
        "srun": f"for word; do printf '%s\\0' \"$word\"; done > '{answered}/srun'",
        "squeue": f"printf '{ANSWER}'; echo >> '{answered}/squeue'",
        "scancel": f"echo \"$@\" >> '{answered}/scancel'",
    }
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return answered


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pieces=st.lists(st.sampled_from(_PIECES), min_size=1, max_size=6))
@example(pieces=["\n"])
@example(pieces=["%", "j"])
def test_the_name_of_a_folder_is_never_run(
    pieces: list[str], slurm: Path, tmp_path: Path, make_job_spec: MakeJobSpec
) -> None:
    """The script is run by bash; nothing happens but the one command, whose arguments are the folder's."""
    name = "".join(pieces)
    assume(name.strip(".") and "/" not in name)
    for left in slurm.iterdir():
        left.unlink()
    sweep = tmp_path / "sweeps" / name
    with chdir(tmp_path):
        if re.search(r"[\n\t%\\]", name):
            with pytest.raises(ConfigError):
                SlurmLauncher(sweep)
            return
        launcher = SlurmLauncher(sweep, account=name)
        launcher.start(JobSpec(0, 1, str(sweep / "0"), "{}", [], {}, cwd=str(tmp_path)))
        assert not (tmp_path / "ran").exists(), "what the name says was run"
    folder = str(launcher._folder)
    commands = (line for line in (slurm / "script").read_text().splitlines() if line[:1] not in ("", "#"))
    assert next(commands) == "export PYTHONSAFEPATH=1"
    assert next(commands) == "export SUBMITIT_EXECUTOR=slurm"
    *_, last = words = (slurm / "srun").read_bytes().decode().split("\0")[:-1]
    assert last.startswith(folder)
    assert [word.startswith(folder) for word in words].count(True) == 3, "two logs and the folder"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(({name: 0}, rf"hydra\.launcher\.{name}") for name in ("time", "jobs_at_once", "threads_per_job")),
        ({"partition": "a\nb"}, "contains a line break"),
        ({"additional_parameters": {"a\nb": 1}}, "contains a line break"),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_what_cannot_be_is_refused(wrong: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        make_part(SlurmLauncher, wrong, "hydra.launcher", sweep_dir=tmp_path)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("programs")
def test_a_sweep_whose_driver_is_killed_ends_as_any_other(project: Path, fork_server: ForkServer) -> None:
    sweep = (*TINY, "trainer.max_epochs=150", "seed=1,2")
    start_sweep([*sweep, "hydra.sweep.dir=whole"])
    driver = begin(project, "train", "-m", *sweep, *LAUNCHER, "hydra.sweep.dir=sweep")
    try:
        until(lambda: len(list((project / "sweep").glob("*/metrics.csv"))) == 2 or driver.poll() is not None)
    finally:
        driver.kill()
        driver.wait()
    submitted = sorted((project / "sweep").glob("submitit/*/*_submitted.pkl"))
    assert resume_sweep(project / "sweep").exit_code == 0
    check_same_sweep(project / "sweep", project / "whole", 2)
    assert sorted((project / "sweep").glob("submitit/*/*_submitted.pkl")) == submitted, "none ran twice"
    for number in range(2):
        record = json.loads((project / "sweep" / str(number) / "record.json").read_bytes())
        assert record["resumed"] == []


@pytest.mark.long
def test_a_job_that_loses_its_machine_goes_on_at_the_next(
    launcher: SlurmLauncher,
    programs: Path,
    make_job_spec: MakeJobSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run it is compared with is one that nobody stops, in this process."""
    job_spec = make_job_spec("trainer.max_epochs=75", "seed=3")
    launcher.start(job_spec)
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    send(programs, "TERM")  # Slurm sends it first, to all processes; submitit lets it pass
    send(programs, "USR2")
    end = next_end(launcher)
    assert end.status == "finished", end.reason
    record = RunRecord.load(Path(job_spec.run_dir))
    assert len(record.resumed) == 1
    assert record.resumed[0]["from_step"] > 0
    whole = make_job_spec("trainer.max_epochs=75", "seed=3", number=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # for the job's own callback
    with unchanged_process():
        ended = run(SerialLauncher(), whole)[1]
    assert (ended.status, ended.metrics) == ("finished", record.metrics)
    assert end.metrics == record.metrics
    assert not list(launcher._folder.glob("*.outcome")), "what was told is not told again"
    assert weights(job_spec.run_dir) == weights(whole.run_dir)
    ours, theirs = (Path(one.run_dir, "metrics.csv").read_bytes() for one in (job_spec, whole))
    assert ours == theirs


ANSWER = "7|RUNNING|assay-0\n8|RUNNING|precious\n9_3|PENDING|assay-1\n10|COMPLETED|assay-2\nwarning\n"


def test_jobs_of_others_are_not_known(slurm: Path) -> None:
    assert query_states() == {"7": "RUNNING", "9_3": "PENDING", "10": "COMPLETED"}
    (slurm.parent / "programs" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert query_states() is None
