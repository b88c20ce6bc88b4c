"""`assay report --checklist` and the size of a leak, from records that were written by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.command import typed
from tests.making_runs import make_run

from assay.errors import AssayError, ConfigError
from assay.report.report import report, report_checklist

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = {"cpu": "A CPU", "gpus": ["A GPU"], "python": "3.12.1"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "all | runs"
    for number, (lr, loss, status) in enumerate(
        [("0.1", 0.5, "finished"), ("0.01", 0.4, "finished"), ("1.0", 0.1, "pruned"), ("0.5", 9.0, "failed")]
    ):
        make_run(
            folder / str(number),
            f"optimizer.lr={lr}",
            status=status,
            seconds=1800.0,
            machine=MACHINE,
            metrics={"val/loss": loss, "test/accuracy": 0.9},
            best={"monitor": "val/loss", "value": loss, "epoch": 1},
            config={"trainer": {"accelerator": "gpu", "devices": 2}},
            model={"parameters": 1000, "trainable_parameters": 10},
            data_sha256="ab" * 32 if number else "",
        )
    return folder


@pytest.mark.parametrize("venue", ["neurips", "acl", "reforms"])
def test_says_what_records_say_and_marks_the_rest(venue: str, runs: Path) -> None:
    text = report_checklist(venue, [runs]).page.read_text(encoding="utf-8")
    assert "4 runs of 4 configurations" in text
    assert "1 failed, 2 finished, 1 pruned" in text
    assert "| A GPU | 4 | 2 h | 4 |" in text, "two devices, two hours, whatever became of the runs"
    assert "| optimizer.lr | 4 | 0.01 to 1 | 0.01 |" in text
    assert "Selected by the best mean of val/loss (min)" in text
    assert "10 of 1,000" in text
    assert "ab" * 32 in text
    assert "SHA-256 with its split **Unknown**" in text
    assert "90.00 %" in text
    assert "$" not in text
    assert not re.search(r"\| all \| runs", text), "escaped"


def test_replaces_its_own_file_alone(runs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "notes.md"
    mine.write_text("# Notes", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a report"):
        report_checklist("acl", [runs], mine)
    with pytest.raises(ConfigError, match=r"ends in \.md"):
        report_checklist("acl", [runs], tmp_path / "a.html")
    assert report_checklist("acl", [runs]) == report_checklist("acl", [runs])
    done = typed("report", runs, "--checklist", "acl", "--open", code=2)
    assert "leave --open out" in done.stderr


def test_refuses_where_nothing_has_finished(tmp_path: Path) -> None:
    make_run(tmp_path / "runs/a", status="failed")
    with pytest.raises(AssayError, match="no run has finished"):
        report_checklist("acl", [tmp_path / "runs"])


def test_the_page_says_by_how_much_scores_fall(tmp_path: Path) -> None:
    typed, note = (
        ["data=digits", "optimizer.lr=0.1"],
        "data: samples that are also in training: 3 of 5 in test",
    )
    strict, folder = "data.split.dedup=true", tmp_path / "2026-11-22"
    make_run(folder / "a", *typed, metrics={"test/accuracy": 0.9, "test/loss": 0.5}, notes=[note])
    page = report([folder / "a"]).page
    assert f"assay train {' '.join(typed)} {strict}" in page.read_text(encoding="utf-8")
    make_run(folder / "b", "optimizer.lr=0.2", metrics={"test/accuracy": 0.8, "test/loss": 0.75})
    record = make_run(folder / "c", *typed, metrics={"test/accuracy": 0.8, "test/loss": 0.75})
    record.overrides = [*typed, strict]
    record.save(folder / "c")
    for name in ("a", "c"):
        text = report([folder / name]).page.read_text(encoding="utf-8")
        assert "falls by 10.00 points" in text
        assert "rises by 0.25" in text
    assert "falls by" not in report([folder / "b"]).page.read_text(encoding="utf-8"), "no copies, no leak"
