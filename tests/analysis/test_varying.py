"""Overrides that not all jobs of a sweep share."""

from __future__ import annotations

from assay.analysis.config_values import varying
from assay.record.journal import JobRecord


def jobs() -> list[JobRecord]:
    values = [("0.1", 1), ("0.1", 2), ("0.01", 1)]
    return [
        JobRecord(number, "", ("data=digits", f"optimizer.lr={lr}", f"seed={seed}"))
        for number, (lr, seed) in enumerate(values)
    ]


def test_rows_say_what_jobs_do_not_share() -> None:
    assert varying(jobs())[1] == {"optimizer.lr": "0.1", "seed": "2"}
    assert varying(jobs()[:1]) == [{"data": "digits", "optimizer.lr": "0.1", "seed": "1"}]
