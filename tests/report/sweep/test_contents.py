"""When and where runs ran, from records of any make."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from assay.record.run_record import RunRecord
from assay.report.read_sweep import place_of, spans_of, time_of

MACHINE = {"hostname": "node7", "gpus": ["H100"], "environment": {"CUDA_VISIBLE_DEVICES": "1,2"}}


def record(**fields: Any) -> RunRecord:
    given = {"status": "finished", "started": "2026-01-01T00:00:00+00:00", **fields}
    return RunRecord("id", "name", seed=1, fingerprint="", config_fingerprint="", machine=MACHINE, **given)


def test_a_run_that_went_on_ran_twice() -> None:
    before = {"status": "interrupted", "finished": "2026-01-01T00:05:00+00:00", "seconds": 300.0}
    again = {"at": "2026-01-01T01:00:00+00:00", "before": before, "machine": {"hostname": "node8"}}
    first, second = spans_of(record(resumed=[again], finished="2026-01-01T01:10:00+00:00"), is_alive=False)
    assert (first.status, second.status) == ("interrupted", "finished")
    assert [(span.end - span.start).total_seconds() for span in (first, second)] == [300, 600]
    assert [span.place for span in (first, second)] == ["node7 · GPU 1,2", "node8"]


def test_a_run_that_runs_has_run_until_now_and_a_killed_one_has_no_length() -> None:
    (running,) = spans_of(record(status="running"), is_alive=True)
    assert running.status == "running"
    assert abs((datetime.now(UTC) - running.end).total_seconds()) < 60
    (killed,) = spans_of(record(status="running"), is_alive=False)
    assert (killed.status, killed.end) == ("failed", killed.start)


def test_what_a_strangers_record_says_is_data() -> None:
    assert spans_of(record(started="<script>"), is_alive=False) == ()
    (span,) = spans_of(record(finished="yesterday", seconds=1e300), is_alive=False)
    assert span.end == span.start
    odd = {"at": "2026-01-02T00:00:00", "before": {"status": ["x"], "seconds": "9", "finished": 3}}
    assert next(iter(spans_of(record(resumed=[odd]), is_alive=False))).status == "interrupted"
    assert place_of({"hostname": ["<b>"], "environment": "none"}) == "['<b>']"
    assert time_of("2026-01-01T00:00:00") == datetime(2026, 1, 1, tzinfo=UTC)
