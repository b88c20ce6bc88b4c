"""What a sweep shows while it runs."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pytest

from assay.analysis.config_values import in_one_line
from assay.analysis.objective import Objective
from assay.record.journal import JobRecord
from assay.record.outcome import Outcome
from assay.sweep.progress import SweepProgress, last_progress, shown, why
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

AIM = Objective("val/accuracy", "maximize")


def job(number: int, *overrides: str) -> JobRecord:
    return JobRecord(number, f"fingerprint {number}", overrides)


def lines(*ended: tuple[JobRecord, Outcome, bool], encoding: str = "utf-8") -> list[str]:
    """What stays in a terminal of these ends."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    with SweepProgress(Console(file=file, width=200), AIM, 2, fixed=["data=wine"]) as progress:
        for job_record, outcome, again in ended:
            progress.ended(job_record, outcome, again=again)
    return file.buffer.getvalue().decode(encoding).splitlines()


def test_each_end_is_one_line_with_what_is_the_jobs_own() -> None:
    finished = Outcome("finished", metrics={"val/accuracy": 0.91}, seconds=2.0)
    failed = Outcome("failed", "out_of_memory", "CUDA out of memory\nmore")
    pruned, stopped = Outcome("pruned", reason="below the median"), Outcome("interrupted")
    found = lines(
        (job(0, "data=wine", "seed=1"), finished, False),
        (job(1, "data=wine", "seed=2"), failed, True),
        (job(2, "data=wine", "seed=3"), pruned, False),
        (job(3, "data=wine", "seed=4"), stopped, False),
    )
    assert [line.split()[:3] for line in found] == [
        [mark, str(number), f"seed={number + 1}"] for number, mark in enumerate("✓✗✂⏸")
    ]
    assert "val/accuracy 91" in found[0]
    assert found[1].endswith(
        "out of memory: CUDA out of memory  tried again: goes on from its last checkpoint"
    )
    assert "below the median" in found[2]
    assert "interrupted" in found[3]


def test_a_terminal_without_the_marks() -> None:
    (line,) = lines((job(0, "seed=1"), Outcome("finished"), False), encoding="ascii")
    assert line.startswith("+ 0 ")


def test_a_log_has_the_same_lines_with_the_time(tmp_path: Path) -> None:
    log = tmp_path / "sweep.txt"
    with SweepProgress(Console(file=io.StringIO(), width=80), AIM, 2, log=log) as progress:
        progress.say("three jobs are new")
    (line,) = log.read_text().splitlines()
    when, _, text = line.partition(" ")
    assert when.startswith("20")
    assert text == "three jobs are new"


def test_how_far_a_run_is_is_read_from_the_end_of_its_metrics(tmp_path: Path) -> None:
    rows = [f"{epoch},{epoch * 10},{'' if epoch % 2 else epoch / 1000}" for epoch in range(900)]
    (tmp_path / "metrics.csv").write_text("\n".join(["epoch,step,val/accuracy", *rows, "900,9000,0.8"]))
    assert last_progress(tmp_path, "val/accuracy", 1000).startswith("epoch 901/1000  val/accuracy 80")
    assert last_progress(tmp_path, "val/other") == "epoch 901"


@pytest.mark.parametrize("text", [None, "", "epoch,step\n", "epoch,val/accuracy\nx,y\n"])
def test_nothing_is_known_yet(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "metrics.csv").write_text(text)
    assert last_progress(tmp_path, "val/accuracy", 3) == ""


def test_a_row_that_is_being_written(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,val/accuracy\n0,0.5\n1,0.")
    assert last_progress(tmp_path, "val/accuracy").startswith("epoch 2")
    (tmp_path / "metrics.csv").write_text("epoch,val/accuracy\n0,0.5\n1,-")
    assert last_progress(tmp_path, "val/accuracy") == "epoch 2"


def test_a_reader_that_has_gone_ends_no_sweep() -> None:
    reading, writing = os.pipe()
    file = os.fdopen(writing, "w")
    console = Console(file=file, width=80)
    os.close(reading)
    with shown(console):
        console.print("x" * 100)
    with shown(console):
        console.print("y")
    file.close()


def test_words() -> None:
    assert in_one_line({"optimizer.lr": "0.1", "seed": "1"}) == "optimizer.lr=0.1 seed=1"
    assert why(Outcome("failed", "exception", "ValueError: x\nmore")) == "ValueError: x"
    assert why(Outcome("failed", "killed")) == "killed"
