"""Runs of any folders, as the contents of a page."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.report.page import render
from assay.report.read_sweep import ranked, read_runs, read_sweep
from assay.report.sweep_page import sweep_page

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sweeps_runs_alone_say_what_its_journal_says(trained_sweep: Path) -> None:
    runs, sweep = read_runs([trained_sweep]), read_sweep(trained_sweep)
    assert not runs.is_sweep
    (aim,) = runs.objectives
    assert (aim.name, aim.direction) == ("val/loss", "minimize"), "what checkpoints are kept by"
    by_name = {job.name: job for job in runs.jobs}
    for job in sweep.jobs:
        assert by_name[job.name].values == job.values
        assert (by_name[job.name].seed, by_name[job.name].status) == (job.seed, job.status)
    scores = {group.label: group.scores[0] for group in ranked(runs)}
    assert scores.keys() == {"optimizer.lr=0.1", "optimizer.lr=0.01", "optimizer.lr=100"}
    assert all(len(group.jobs) == 2 for group in ranked(runs))


def test_several_folders_and_broken_runs_have_a_page(sweep: Path) -> None:
    (sweep / "1" / "record.json").write_text("<script>")
    (sweep / "2" / "metrics.csv").unlink()
    shutil.copytree(sweep / "0", sweep.parent / "other" / "again")
    contents = read_runs([sweep, sweep.parent / "other"])
    assert contents.title == f"{len(contents.jobs)} runs"
    broken = [job for job in contents.jobs if job.status == "broken"]
    assert [job.name for job in broken] == ["sweep/1"]
    assert any("of the same config and seed" in notice for notice in contents.notices)
    text = render(sweep_page(contents, sweep))
    assert "1 run broken: sweep/1." in text
    assert "has no metrics.csv" in text


def test_runs_without_any_score_have_a_page(sweep: Path) -> None:
    for name in ("0", "1", "2", "3"):
        shutil.rmtree(sweep / name)
    (sweep / "4" / "record.json").write_text("")
    contents = read_runs([sweep])
    assert {job.status for job in contents.jobs} == {"failed", "broken"}
    assert "Failures" in render(sweep_page(contents, sweep))


def test_a_folder_without_runs_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="holds no run"):
        read_runs([tmp_path])
