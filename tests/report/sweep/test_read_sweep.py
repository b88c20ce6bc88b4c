"""A sweep's directory as it is found: ended, killed, renamed, damaged."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.record.journal import JobRecord, Journal
from assay.record.outcome import Outcome
from assay.record.run_lock import writing
from assay.report.read_sweep import is_sweep, read_contents, read_sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sweep_that_has_ended(trained_sweep: Path) -> None:
    assert is_sweep(trained_sweep)
    assert not is_sweep(trained_sweep / "0")
    contents = read_sweep(trained_sweep)
    assert [aim.name for aim in contents.objectives] == ["val/accuracy", "val/loss"]
    assert [aim.direction for aim in contents.objectives] == ["maximize", "minimize"]
    assert [job.status for job in contents.jobs] == ["finished"] * 4 + ["failed"] * 2
    assert [(job.values, job.seed) for job in contents.jobs[1:3]] == [
        ({"optimizer.lr": "0.1"}, "2"),
        ({"optimizer.lr": "0.01"}, "1"),
    ]
    assert "data=iris" in contents.shared
    assert contents.typed[0].startswith("assay train -m data=iris")
    assert contents.notices == ()
    assert contents.keys == ["optimizer.lr"]


def test_a_search_says_which_scale_it_drew_on(tmp_path: Path) -> None:
    typed = ["optimizer.lr=tag(log, interval(1e-4, 1e-1))", "+model.dropout=interval(0,0.5)", "seed=1,2"]
    Journal.create(tmp_path, overrides=typed)
    contents = read_sweep(tmp_path)
    assert contents.scales == {"optimizer.lr": True, "model.dropout": False}
    assert contents.jobs == ()


def test_run_directories_that_are_not_called_by_their_number_are_found(sweep: Path) -> None:
    for number in range(6):
        (sweep / str(number)).rename(sweep / f"lr_{number}")
    shutil.copytree(sweep / "lr_0", sweep / "attempts" / "0" / "1")
    assert [job.run_dir for job in read_sweep(sweep).jobs] == [sweep / f"lr_{number}" for number in range(6)]


def test_a_damaged_record_is_said_and_the_journal_knows_the_score(sweep: Path) -> None:
    (sweep / "1" / "record.json").write_text("{}")
    contents = read_sweep(sweep)
    assert contents.jobs[1].status == "finished"
    assert contents.jobs[1].outcome is not None
    (notice,) = contents.notices
    assert notice.startswith("Job 1: ")
    assert "schema version" in notice


def test_jobs_of_a_killed_sweep_and_of_one_that_runs(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s", overrides=["seed=1,2,3"])
    journal.add([JobRecord(number, f"f{number}", (f"seed={number}",), "", number) for number in range(4)])
    journal.start(0, 1)
    journal.start(1, 1)
    journal.end(1, Outcome("interrupted", signal="SIGTERM"))
    journal.start(2, 1)
    journal.end(2, Outcome("failed", "killed"), final=False)
    journal.start(2, 2)
    contents = read_sweep(tmp_path / "s")
    assert [job.status for job in contents.jobs] == ["interrupted", "interrupted", "interrupted", "waiting"]
    assert contents.notices[-1].endswith(f"assay resume {tmp_path / 's'}.")
    with writing(tmp_path / "s"):
        contents = read_sweep(tmp_path / "s")
    assert [job.status for job in contents.jobs] == ["running", "interrupted", "running", "waiting"]
    assert contents.notices == ("4 of 4 jobs are not done: it is still running.",)


def test_a_damaged_journal_is_refused_in_a_line(sweep: Path) -> None:
    journal = sweep / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"optimizer.lr=0.1", b"optimizer.lr=0.2", 1))
    with pytest.raises(AssayError, match=r"journal\.jsonl is damaged in line 1"):
        read_sweep(sweep)


def test_a_sweep_alone_is_a_sweep_and_with_others_runs(trained_sweep: Path) -> None:
    assert read_contents([trained_sweep]).is_sweep
    assert not read_contents([trained_sweep, trained_sweep / "0"]).is_sweep
    assert not read_contents([trained_sweep.parent]).is_sweep


def test_a_sweep_with_a_damaged_journal_is_what_its_runs_are(sweep: Path, tmp_path: Path) -> None:
    journal = sweep / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"optimizer.lr=0.1", b"optimizer.lr=0.2", 1))
    contents = read_contents([sweep])
    assert len(contents.jobs) == 6
    assert "is damaged in line 1. What follows is from the run directories" in contents.notices[0]
    alone = Journal.create(tmp_path / "alone", overrides=["seed=1"]).path
    alone.write_bytes(alone.read_bytes()[:-30] + b"\n")
    with pytest.raises(AssayError, match="damaged"):
        read_contents([tmp_path / "alone"])
