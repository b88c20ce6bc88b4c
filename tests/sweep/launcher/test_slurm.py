"""Jobs through submitit's local executor: real processes that are stopped and queued again as Slurm's are."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.sweep.conftest import TINY, begin, environment, is_gone, until
from tests.sweep.launcher.local_slurm import launcher, process_of, weights
from tests.sweep.launcher.shared import ENDLESS, check_failure, check_saves_when_stopped, next_end

from assay.errors import ConfigError
from assay.sweep.job_spec import JobSpec
from assay.sweep.launcher.slurm import SlurmLauncher, SlurmQueue
from assay.sweep.session import go_on, start

if TYPE_CHECKING:
    from tests.sweep.conftest import MakeJobSpec

    from assay.sweep.worker.fork_client import ForkServer

__all__ = ["launcher"]

_PIECES = (
    "\n",
    "\t",
    "%",
    "j",
    "\\",
    "touch ran",
    "$(touch ran)",
    "`touch ran`",
    "'",
    '"',
    ";",
    "&",
    " ",
    "#",
    "a",
    "é",
)
LAUNCHER = ("hydra/launcher=slurm", "hydra.launcher.cluster=local")


def test_slurm_is_asked_about_jobs_of_assay_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that say which jobs a driver has left may be anybody's."""
    cancelled: list[str] = []
    monkeypatch.setattr(SlurmQueue, "states", lambda *_: {"7": "RUNNING"})
    monkeypatch.setattr(SlurmQueue, "cancel", lambda _, job_id: cancelled.append(job_id))
    folder = tmp_path / "submitit"
    folder.mkdir()
    left = {"0-1": "7", "1-1": "8", "2-1": "--user=me", "3-1": "7 8", "../x": "9", "x": "10"}
    for name, job_id in left.items():
        (folder / Path(name).name).with_suffix(".job").write_text(job_id, encoding="ascii")
    launcher = SlurmLauncher(tmp_path, cluster="local")
    assert sorted(launcher.kept()) == [0]
    launcher.close()
    assert cancelled == ["7"]


@pytest.mark.parametrize(
    "launcher",
    [["export OMP_SETUP=yes", '[ -z "$OMP_WAIT" ] || sleep 600']],
    indirect=True,
    ids=["after a setup"],
)
def test_a_driver_takes_up_the_jobs_of_one_that_is_gone(
    launcher: SlurmLauncher, make_job_spec: MakeJobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is told to stop, saves, and is not queued again; one has failed; one waits still."""
    runs = make_job_spec(*ENDLESS, number=0)
    fails = make_job_spec("callbacks.poison.kind=exception", number=1)
    launcher.start(runs)
    assert launcher.waits(0)
    launcher.start(fails)
    until(Path(runs.run_dir, "metrics.csv").is_file)
    assert not launcher.waits(0)
    until((launcher._folder / "1-1.outcome").is_file)
    monkeypatch.setenv("OMP_WAIT", "yes")
    launcher.start(make_job_spec(number=2))
    ids = {number: one.job_id for number, one in launcher._running.items()}
    launcher._running.clear()  # as if it had been killed

    again = SlurmLauncher(tmp_path / "sweep", cluster="local")
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
    until(lambda: is_gone(int(ids[2])), 30)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sigkill", "memory", "segfault", "nan"])
def test_what_kills_a_job_is_told(kind: str, launcher: SlurmLauncher, make_job_spec: MakeJobSpec) -> None:
    check_failure(kind, launcher, make_job_spec)


@pytest.mark.long
def test_a_machine_that_dies_costs_one_attempt(launcher: SlurmLauncher, make_job_spec: MakeJobSpec) -> None:
    job_spec = make_job_spec(*ENDLESS)
    launcher.start(job_spec)
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    process_of(launcher).kill()
    told = next_end(launcher)
    assert (told.status, told.cause, told.transient) == ("failed", "killed", True)


@pytest.mark.parametrize("wrong", [{"time": 0}, {"jobs_at_once": 0}, {"threads_per_job": -1}])
def test_what_cannot_be_is_refused(wrong: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"hydra\.launcher\.{next(iter(wrong))}"):
        SlurmLauncher(tmp_path, **wrong)  # type: ignore[arg-type]  # wrong ones


def test_a_machine_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"srun is not found(?s:.*)hydra\.launcher\.cluster=local"):
        SlurmLauncher(tmp_path, cluster="slurm")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs by the names of Slurm's: `sbatch` runs the script, and `srun` notes its arguments."""
    programs, answered = tmp_path / "programs", tmp_path / "answered"
    programs.mkdir()
    answered.mkdir()
    texts = {
        "sbatch": f'cp "$1" \'{answered}/script\'; bash "$1"; echo Submitted batch job 7',
        "srun": f"for word; do printf '%s\\0' \"$word\"; done > '{answered}/srun'",
        "squeue": "",
        "scancel": "",
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
    print_blob=True,
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
                SlurmLauncher(sweep, cluster="slurm")
            return
        launcher = SlurmLauncher(sweep, cluster="slurm", account=name)
        launcher.start(JobSpec(0, 1, str(sweep / "0"), "{}", [], {}, cwd=str(tmp_path)))
        assert not (tmp_path / "ran").exists(), "what the name says was run"
    folder = str(launcher._folder)
    commands = (line for line in (slurm / "script").read_text().splitlines() if line[:1] not in ("", "#"))
    assert next(commands) == "export SUBMITIT_EXECUTOR=slurm"
    *_, last = words = (slurm / "srun").read_bytes().decode().split("\0")[:-1]
    assert last.startswith(folder)
    assert [word.startswith(folder) for word in words].count(True) == 3, "two logs and the folder"


@pytest.mark.parametrize(
    "wrong",
    [{"partition": "a\nb"}, {"additional_parameters": {"a\nb": 1}}, {"additional_parameters": {"a": "\n"}}],
)
def test_an_option_of_slurm_has_one_line(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains a line break"):
        SlurmLauncher(tmp_path, cluster="local", **wrong)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_poison_in_a_sweep(project: Path, fork_server: ForkServer) -> None:
    kinds = ["none", "exception", "hang", "memory", "sigkill"]
    limits = (
        "hydra.launcher.timeout_min=1.5",
        "hydra.launcher.memory_gb=1.5",
        "hydra.launcher.jobs_at_once=2",
    )
    result = start(
        [*TINY, *LAUNCHER, *limits, f"callbacks.poison.kind={','.join(kinds)}", "hydra.sweep.dir=sweep"]
    )
    causes = [job.outcome.cause if job.outcome else "?" for job in result.jobs]
    assert causes == ["", "exception", "timed_out", "out_of_memory", "killed"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sweep_whose_driver_is_killed_ends_as_any_other(project: Path, fork_server: ForkServer) -> None:
    sweep = (*TINY, "trainer.max_epochs=150", "seed=1,2")
    start([*sweep, "hydra.sweep.dir=whole"])
    driver = begin(project, "train", "-m", *sweep, *LAUNCHER, "hydra.sweep.dir=sweep")
    try:
        until(lambda: len(list((project / "sweep").glob("*/metrics.csv"))) == 2 or driver.poll() is not None)
    finally:
        driver.kill()
        driver.wait()
    submitted = sorted((project / "sweep" / "submitit").glob("*/*_submitted.pkl"))
    assert go_on(project / "sweep").exit_code == 0
    for name in ("results.csv", "groups.csv"):
        assert (project / "sweep" / name).read_bytes() == (project / "whole" / name).read_bytes()
    assert sorted((project / "sweep" / "submitit").glob("*/*_submitted.pkl")) == submitted, "none ran twice"
    for number in range(2):
        record = json.loads((project / "sweep" / str(number) / "record.json").read_bytes())
        assert record["resumed"] == []
        assert record["weights_sha256"] == weights(project / "whole" / str(number))
