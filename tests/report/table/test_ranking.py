"""By what runs are ordered, and in which direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.making_runs import make_run

from assay.errors import AssayError
from assay.record.journal import Journal
from assay.record.runs.read_runs import read_runs
from assay.report.table.ranking import default_metric, ranking_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("directions", "asked", "direction", "note"),
    [
        ({"test/x": "max"}, "test/x", "max", ""),
        ({"test/x": "min"}, "test/x", "min", ""),
        ({}, "test/x", "", "is not known"),
        ({}, "test/x:min", "min", ""),
        ({"test/x": "max"}, "test/x:min", "min", ""),
        ({}, "test/mae", "min", ""),
        ({"test/mae": "max"}, "test/mae", "max", ""),
    ],
)
def test_the_direction_is_what_the_run_says(
    tmp_path: Path, directions: dict[str, str], asked: str, direction: str, note: str
) -> None:
    make_run(tmp_path / "a", metrics={"test/x": 0.5, "test/mae": 0.5}, directions=directions)
    found = ranking_of(read_runs([tmp_path]), asked)
    assert found is not None
    assert found.direction == direction
    assert note in " ".join(found.notes)


def test_runs_that_do_not_agree(tmp_path: Path) -> None:
    for number, mode in enumerate(("min", "max")):
        make_run(tmp_path / str(number), f"seed={number}", metrics={"m": 0.5}, directions={"m": mode})
    found = ranking_of(read_runs([tmp_path]), "m")
    assert found is not None
    assert found.direction == ""
    assert "do not agree" in found.notes[0]


def test_no_score_at_all(tmp_path: Path) -> None:
    make_run(tmp_path / "a", status="failed")
    assert ranking_of(read_runs([tmp_path])) is None
    with pytest.raises(AssayError, match="no run has a metric 'x'"):
        ranking_of(read_runs([tmp_path]), "x")


def test_a_sweep_is_ordered_by_its_objective(tmp_path: Path) -> None:
    make_run(tmp_path / "0", metrics={"val/accuracy": 0.5})
    journal = {"overrides": ["seed=1,2"], "objectives": ["val/accuracy"], "directions": ["maximize"]}
    Journal.create(tmp_path, **journal)
    runs = read_runs([tmp_path])
    assert default_metric([tmp_path], runs) == "val/accuracy:max"
    assert default_metric([tmp_path / "0"], runs) == ""
    (tmp_path / "journal.jsonl").write_text("nonsense")
    assert default_metric([tmp_path], runs) == ""
