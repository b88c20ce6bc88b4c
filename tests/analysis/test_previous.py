"""What has changed since the run before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.making_runs import make_run

from assay.analysis.run_differences import since_previous

if TYPE_CHECKING:
    from pathlib import Path


def made(path: Path, number: int, *typed: str, **fields: Any) -> Path:
    """A run that ended at a minute."""
    make_run(path, *typed, started=f"2026-11-22T12:0{number}:00+00:00", **fields)
    os.utime(path / "record.json", (1e9 + number, 1e9 + number))
    return path


def test_the_last_one_that_has_finished_under_the_same_name(tmp_path: Path) -> None:
    root = tmp_path / "outputs/digits_mlp"
    made(root / "day1/a", 1, "optimizer.lr=0.5", metrics={"val/loss": 0.9})
    before = made(root / "day1/b", 2, "optimizer.lr=0.1", metrics={"val/loss": 0.5, "test/accuracy": 0.8})
    made(root / "day2/c", 3, status="failed")
    made(root / "day2/d", 4, "name=other", metrics={"val/loss": 0.1})
    job = made(root / "sweeps/day/0", 5, metrics={"val/loss": 0.1})
    (job.parent / "journal.jsonl").touch()
    made(root / "day2/broken", 6)
    (root / "day2/broken/record.json").write_text("{}")
    best = {"monitor": "val/loss", "value": 0.4, "epoch": 1}
    now = made(
        root / "day2/e", 7, "seed=3", "model=wide", metrics={"val/loss": 0.6, "test/accuracy": 0.7}, best=best
    )
    made(root / "day3/later", 8, metrics={"val/loss": 0.0})
    step = since_previous(now)
    assert step is not None
    assert step.before.path == before
    assert step.changes == {"model": ("mlp", "wide"), "optimizer.lr": ("0.1", "0.001"), "seed": ("0", "3")}
    assert step.moves == [("val/loss", 0.5, 0.4, "better"), ("test/accuracy", 0.8, 0.7, "worse")]


def test_code_data_and_what_nobody_typed(tmp_path: Path) -> None:
    made(tmp_path / "a", 1, git={"commit": "aaaaaaaaaaaa"}, data_sha256="1" * 9, metrics={"test/x": 0.5})
    now = made(
        tmp_path / "b", 2, git={"commit": "bbbbbbbbbbbb"}, data_sha256="2" * 9, metrics={"test/x": 0.5}
    )
    step = since_previous(now)
    assert step is not None
    assert step.changes == {"code": ("aaaaaaaa", "bbbbbbbb"), "data": ("1" * 8, "2" * 8)}
    assert step.moves == [("test/x", 0.5, 0.5, "the same")]
    now = made(tmp_path / "c", 3, config={"trainer": {"max_epochs": 6}}, git={"commit": "bbbbbbbbbbbb"})
    step = since_previous(now)
    assert step is not None
    assert step.changes == {"trainer.max_epochs": ("5", "6")}


def test_losses_of_other_kinds_are_not_compared(tmp_path: Path) -> None:
    made(tmp_path / "a", 1, metrics={"test/loss": 0.5, "test/x": 1.0})
    step = since_previous(made(tmp_path / "b", 2, "loss=focal", metrics={"test/loss": 0.1, "test/x": 2.0}))
    assert step is not None
    assert step.moves == [("test/x", 1.0, 2.0, "")]


def test_the_first_of_its_name_has_none(tmp_path: Path) -> None:
    assert since_previous(made(tmp_path / "a", 1)) is None
    assert since_previous(tmp_path / "nowhere") is None


def test_losses_of_other_arguments_are_not_compared(tmp_path: Path) -> None:
    best = {"monitor": "val/loss", "value": 0.4, "epoch": 1}
    made(tmp_path / "a", 1, config={"loss": {"_target_": "BCE"}}, metrics={"val/loss": 0.1})
    now = made(
        tmp_path / "b", 2, config={"loss": {"_target_": "BCE", "pos_weight": [19]}}, metrics={}, best=best
    )
    step = since_previous(now)
    assert step is not None
    assert (step.changes, step.moves) == ({"loss.pos_weight": ("–", "[19]")}, [])


def test_a_run_of_another_table_is_no_step_before(tmp_path: Path) -> None:
    def on(path: str) -> dict[str, Any]:
        return {"data": {"source": {"path": path}}}

    first = made(tmp_path / "a", 1, config=on("a.csv"), data_sha256="1" * 64, metrics={"test/x": 0.5})
    made(tmp_path / "b", 2, config=on("b.csv"), data_sha256="2" * 64, metrics={"test/x": 0.9})
    now = made(tmp_path / "c", 3, config=on("a.csv"), data_sha256="3" * 64, metrics={"test/x": 0.4})
    step = since_previous(now)
    assert step is not None
    assert step.before.path == first
    assert step.changes == {"data": ("11111111", "33333333")}
    moved = made(tmp_path / "d", 4, config=on("/there/a.csv"), data_sha256="1" * 64, metrics={"test/x": 0.6})
    step = since_previous(moved)
    assert step is not None
    assert step.before.path == first, "the same contents under another path"


def test_scores_of_other_samples_are_neither_better_nor_worse(tmp_path: Path) -> None:
    scores = {"directions": {"test/x": "max"}}
    made(tmp_path / "a", 1, data_sha256="1" * 64, metrics={"test/x": 0.5}, **scores)
    now = made(tmp_path / "b", 2, "data.split=2", data_sha256="2" * 64, metrics={"test/x": 0.4}, **scores)
    step = since_previous(now)
    assert step is not None
    assert step.moves == [("test/x", 0.5, 0.4, "")]
