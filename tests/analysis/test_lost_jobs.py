"""Jobs of a sweep that failed before they had a run directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.making_runs import make_run
from typer.testing import CliRunner

from assay.analysis.read_runs import RunReader, read_runs
from assay.cli.app import app
from assay.errors import AssayError
from assay.record.journal import FILE, JobRecord, Journal
from assay.record.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path


def sweep(path: Path) -> Journal:
    """Two learning rates, two seeds each: two jobs have run, one died, one waits."""
    journal = Journal.create(path, overrides=["optimizer.lr=0.1,0.2", "seed=0,1"])
    for number, (lr, seed) in enumerate((("0.1", 0), ("0.2", 0), ("0.1", 1), ("0.2", 1))):
        typed = (f"optimizer.lr={lr}", f"seed={seed}")
        fingerprint = f"{number}" * 64
        if number < 2:
            made = make_run(path / str(number), *typed, metrics={"val/accuracy": 0.5})
            fingerprint = made.fingerprint
        journal.add([JobRecord(number, fingerprint, typed, seed=seed)])
    for number in (0, 1, 2):
        journal.start(number, 1)
        end = Outcome("finished") if number < 2 else Outcome("failed", "killed", "died <b>early\x1b[31m")
        journal.end(number, end)
    return journal


def test_a_job_that_died_before_it_had_a_directory_is_listed(tmp_path: Path) -> None:
    sweep(tmp_path / "sweep")
    runs = RunReader().read([tmp_path], lost=True)
    assert [run.path.name for run in runs] == ["0", "1", "2"]
    lost = runs[2]
    assert (lost.status, lost.cause, lost.seed, lost.typed["optimizer.lr"]) == ("failed", "killed", 1, "0.1")
    assert (lost.config_fingerprint, lost.choices) == (runs[0].config_fingerprint, runs[0].choices)
    said = CliRunner().invoke(app, ["compare", str(tmp_path)]).stdout
    assert "2 configurations, 3 runs" in said
    assert "1 of 2  1 finished, 1 failed (killed)" in said
    listed = CliRunner().invoke(app, ["ls", str(tmp_path / "sweep")]).stdout
    assert any(line.endswith("/sweep/2") and "failed (killed)" in line for line in listed.splitlines())
    assert [run.path.name for run in read_runs([tmp_path / "sweep/0"])] == ["0"]
    assert len(RunReader().read([tmp_path / "sweep/0"], lost=True)) == 1


def test_where_nothing_else_is_left(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "dead", overrides=["seed=0,1"])
    with pytest.raises(AssayError, match="holds no run"):
        RunReader().read([tmp_path], lost=True)
    journal.add([JobRecord(0, "f" * 64, ("seed=0",))])
    journal.end(0, Outcome("failed", "exception", "no such key"))
    (run,) = RunReader().read([tmp_path], lost=True)
    assert (run.path, run.cause) == (tmp_path / "dead/0", "exception")
    assert CliRunner().invoke(app, ["ls", str(tmp_path)]).exit_code == 0
    (tmp_path / "dead" / FILE).write_text("something else\n")
    with pytest.raises(AssayError, match="holds no run"):
        RunReader().read([tmp_path], lost=True)
