"""A sweep is checked as a whole, and quickly."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from assay.check.all_jobs import check_all
from assay.errors import AssayError
from assay.sweep.session import plan

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "check_sweep.py"


def test_one_report_a_job_in_order() -> None:
    reports = check_all(plan(["data=iris,wine", "device=cpu", "trainer.max_epochs=1,2"]))
    assert [(report.spec["num_classes"], report.spec["total_steps"]) for report in reports] == [
        (3, 7),
        (3, 14),
        (3, 8),
        (3, 16),
    ]


def test_every_error_is_told_once_with_its_jobs() -> None:
    jobs = plan(["data=iris", "device=cpu", "optimizer.lr=0.1,-1,-2", "optimizer.eps=1e-8,-3"])
    with pytest.raises(AssayError) as caught:
        check_all(jobs)
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 of 6 jobs cannot run; none was started"
    assert "job 1 (data=iris device=cpu optimizer.lr=0.1 optimizer.eps=-3)" in lines
    assert "job 2 and 1 more (data=iris device=cpu optimizer.lr=-1 optimizer.eps=1e-08)" in lines
    assert "  optimizer.lr: Invalid learning rate: -2 (command line)" in lines
    assert caught.value.exit_code == 2


def test_a_single_job_has_its_own_error() -> None:
    with pytest.raises(AssayError, match=r"^optimizer\.lr: Invalid learning rate: -1 \(command line\)"):
        check_all(plan(["data=iris", "optimizer.lr=-1"]))


@pytest.mark.long
def test_a_hundred_jobs_that_differ_in_values_take_ten_seconds_more_than_one() -> None:
    benchmark = runpy.run_path(str(BENCHMARK))
    seconds = benchmark["seconds"]
    seconds(benchmark["ONE"])
    _, one, _ = seconds(benchmark["ONE"])
    number, many, _ = seconds(benchmark["MANY"])
    assert number == 100
    assert many - one <= 10
