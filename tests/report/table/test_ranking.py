"""By what runs are ordered, and in which direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.making_runs import make_run

from assay.analysis.comparison import default_metric, ranking_of
from assay.analysis.read_runs import read_runs
from assay.errors import AssayError
from assay.record.journal import Journal

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


def with_loss(path: Path, node: dict[str, Any], *typed: str, **fields: Any) -> None:
    """A run whose experiment file gave its loss these arguments."""
    make_run(path, *typed, config={"loss": node}, metrics={"val/loss": 0.5, "val/accuracy": 0.5}, **fields)


def test_losses_of_other_arguments_are_another_quantity(tmp_path: Path) -> None:
    best = {"monitor": "val/loss", "value": 0.5, "epoch": 1}
    for number, weight in enumerate(([19], None, None)):
        with_loss(
            tmp_path / str(number), {"_target_": "BCE", "pos_weight": weight}, f"seed={number}", best=best
        )
    runs = read_runs([tmp_path])
    asked, default = ranking_of(runs, "val/loss"), ranking_of(runs)
    assert asked is not None
    assert default is not None
    assert asked.losses == {"loss.pos_weight": ("[19]", "null")}
    assert not asked.decides
    assert "not the same quantity in all rows: loss.pos_weight=[19], null" in asked.notes[0]
    assert default.metric == "val/accuracy"
    accuracy = ranking_of(runs, "val/accuracy")
    assert accuracy is not None
    assert accuracy.decides


def test_what_a_loss_takes_from_the_data_makes_no_other_loss(tmp_path: Path) -> None:
    for number, counts in enumerate(([40, 60], [41, 59])):
        with_loss(
            tmp_path / str(number),
            {"_target_": "Focal", "class_counts": counts},
            f"optimizer.lr=0.{number + 1}",
            interpolations={"loss.class_counts": "${spec.class_counts}"},
        )
    found = ranking_of(read_runs([tmp_path]), "val/loss")
    assert found is not None
    assert found.decides


def test_one_name_for_two_tables_is_not_one_data_set(tmp_path: Path) -> None:
    """An experiment file names the table: nothing of it was typed."""
    for number, path in enumerate(("a.csv", "b.csv")):
        data = {"source": {"path": path}, "seed": number}
        make_run(tmp_path / str(number), config={"data": data}, metrics={"val/accuracy": 0.5})
    found = ranking_of(read_runs([tmp_path]))
    assert found is not None
    assert found.data == ("data.source.path=a.csv", "data.source.path=b.csv")
    for number in range(2):
        make_run(
            tmp_path / f"same/{number}",
            config={"data": {"source": {"path": f"{number}.csv"}}},
            metrics={"val/accuracy": 0.5},
            data_sha256="1" * 64,
        )
    same = ranking_of(read_runs([tmp_path / "same"]))
    assert same is not None
    assert same.decides
