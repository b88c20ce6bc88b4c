"""Jobs that die in every way there is: the others complete, and each death is called by its name."""

from __future__ import annotations

import csv
import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.sweep.conftest import TINY

from assay_sweep.session import resume_sweep, start_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from assay_sweep.summary import SweepResult

KINDS = {
    "hang": "timed_out",
    "segfault": "killed",
    "sigkill": "killed",
    "memory": "out_of_memory",
    "exception": "exception",
    "nan": "non_finite",
}
QUICK = ("segfault", "exception", "nan")
"""The others take a limit of time or memory; launchers and workers are tried with them in every run."""
LIMITS = ("hydra.launcher.timeout_min=0.3", "hydra.launcher.memory_gb=1.5")


pytestmark = pytest.mark.usefixtures("project", "fork_server")


def causes(result: SweepResult) -> dict[str, str]:
    """Cause by kind of poison, of those that failed."""
    found: dict[str, str] = {}
    for job in result.jobs:
        typed = dict(override.split("=", 1) for override in job.overrides)
        kind = typed["callbacks.poison.kind"]
        if job.status == "failed":
            assert job.outcome is not None
            found[kind] = job.outcome.cause
        else:
            assert (kind, job.status) == ("none", "finished")
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("poisons", "limits"), [(QUICK, ()), pytest.param((*KINDS,), LIMITS, marks=pytest.mark.long)]
)
def test_poison_jobs_between_two_others(
    poisons: tuple[str, ...], limits: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds, expected = ["none", *poisons, "none"], {kind: KINDS[kind] for kind in poisons}
    typed = [*TINY, *limits, "hydra.launcher.jobs_at_once=2", "hydra.sweep.dir=sweep"]
    typed.append(f"callbacks.poison.kind={','.join(kinds)}")
    result = start_sweep(typed)
    assert causes(result) == expected
    assert Counter(job.status for job in result.jobs) == {"finished": 2, "failed": len(poisons)}
    assert result.exit_code == 1
    with (tmp_path / "sweep" / "results.csv").open(newline="") as file:
        table = [row["cause"] for row in csv.DictReader(file)]
    assert [cause for cause in table if cause] == list(expected.values())
    said = capfd.readouterr().out
    for number, kind in enumerate(kinds):
        if kind != "none":
            assert f"failed job {number}  callbacks.poison.kind={kind}" in said
    assert (
        "Segmentation fault" in (tmp_path / "sweep" / "logs" / f"{kinds.index('segfault')}.txt").read_text()
    )
    again = resume_sweep(tmp_path / "sweep")
    assert causes(again) == expected, "nothing that has ended runs again"


def test_only_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    once = ("callbacks.poison.times=1", "callbacks.poison.count=count")
    often = "callbacks.last_checkpoint.every_n_train_steps=1"
    typed = [*TINY, *once, often, "hydra.launcher.on_failure=retry", "hydra.sweep.dir=sweep"]
    result = start_sweep([*typed, "callbacks.poison.kind=sigkill_once_saved"])
    assert [job.status for job in result.jobs] == ["finished"]
    (job,) = result.jobs
    assert [failure.cause for failure in job.failures] == ["killed"]
    record = json.loads((tmp_path / "sweep" / "0" / "record.json").read_bytes())
    # It died at the start of its third step, perhaps before the checkpoint of the second one was on disk.
    assert record["resumed"][0]["from_step"] in (1, 2)
    whole = start_sweep([*TINY, often, "callbacks.poison.kind=none", "hydra.sweep.dir=whole"])
    weights = [
        json.loads((tmp_path / folder / "0" / "record.json").read_bytes())["weights_sha256"]
        for folder in ("sweep", "whole")
    ]
    assert weights[0] == weights[1]
    assert whole.jobs[0].outcome is not None
    assert job.outcome is not None
    assert job.outcome.metrics == whole.jobs[0].outcome.metrics


@pytest.mark.long
def test_retries_are_bounded_and_an_error_of_the_code_is_never_tried_again(tmp_path: Path) -> None:
    retry = ("hydra.launcher.on_failure=retry", "hydra.launcher.max_retries=2", "hydra.sweep.dir=sweep")
    result = start_sweep([*TINY, *retry, "callbacks.poison.kind=exception,nan,sigkill"])
    assert [job.status for job in result.jobs] == ["failed"] * 3
    assert [job.attempts for job in result.jobs] == [1, 1, 3]
    assert len(result.jobs[2].failures) == 2


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_ranks_a_job(tmp_path: Path) -> None:
    jobs = 3
    ddp = [*TINY, "device=ddp_cpu", "trainer.devices=2", f"seed=range({jobs})"]
    result = start_sweep([*ddp, "hydra.sweep.dir=sweep"])
    assert [job.status for job in result.jobs] == ["finished"] * jobs
    records = sorted((tmp_path / "sweep").rglob("record.json"))
    assert records == [tmp_path / "sweep" / str(number) / "record.json" for number in range(jobs)]
    for number in range(jobs):
        assert "2 × cpu" in (tmp_path / "sweep" / "logs" / f"{number}.txt").read_text()
    assert not (tmp_path / "outputs").exists(), "no rank has started a sweep of its own"
