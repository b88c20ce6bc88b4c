"""What ran where and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.report.sweep.made import contents, job

from assay.figure.figure import Spans
from assay.report.read_sweep import Span, read_sweep
from assay.report.sweep_figures import timeline

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def span(start: float, end: float, place: str) -> Span:
    return Span(BEGIN + timedelta(seconds=start), BEGIN + timedelta(seconds=end), "finished", 1, place)


def test_jobs_side_by_side_have_rows_of_their_own() -> None:
    times = [(0, 10, "a"), (2, 5, "a"), (5, 9, "a"), (1, 4, "b")]
    figure = timeline(contents([job(str(n), {}, 0.5, spans=(span(*one),)) for n, one in enumerate(times)]))
    assert figure is not None
    spans = figure.marks[0]
    assert isinstance(spans, Spans)
    assert list(spans.rows) == ["a · 1", "a · 2", "a · 2", "b"]
    assert list(spans.starts) == [0, 2, 5, 1]
    assert list(spans.ends) == [10, 5, 9, 4]
    assert spans.texts[3].startswith("job 3: finished, 3.0 s")


def test_of_a_real_sweep_by_its_journal(trained_sweep: Path) -> None:
    figure = timeline(read_sweep(trained_sweep))
    assert figure is not None
    spans = figure.marks[0]
    assert isinstance(spans, Spans)
    assert len(spans.rows) == 6
    assert len(set(spans.rows)) == 1, "one after another in one process"
    assert list(spans.colours) == ["finished"] * 4 + ["failed"] * 2
    assert all(end > start for start, end in zip(spans.starts, spans.ends, strict=True))
    assert list(spans.ends)[:-1] <= list(spans.starts)[1:]


def test_without_times_there_is_none() -> None:
    assert timeline(contents([job("0", {}, 0.5)])) is None


@pytest.mark.parametrize("number", [500])
def test_many_jobs_at_once(number: int) -> None:
    jobs = [job(str(n), {}, 0.5, spans=(span(n % 7, n % 7 + 3, f"host{n % 3}"),)) for n in range(number)]
    figure = timeline(contents(jobs))
    assert figure is not None
    assert len(figure.marks[0].rows) == number  # type: ignore[union-attr]  # spans
