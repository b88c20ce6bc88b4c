"""What makes two runs one configuration, and in which keys others differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.making_runs import make_run

from assay.analysis.config_values import ConfigValues, config_columns
from assay.analysis.read_runs import read_runs

if TYPE_CHECKING:
    from pathlib import Path


def test_repetitions_share_an_identity(tmp_path: Path) -> None:
    make_run(tmp_path / "0", "seed=1")
    make_run(tmp_path / "1", "seed=2", "name=other")
    make_run(tmp_path / "2", "seed=1", "optimizer.lr=0.5")
    first, second, third = read_runs([tmp_path])
    assert first.config_fingerprint == second.config_fingerprint != third.config_fingerprint


def test_of_very_many_keys_that_nobody_typed_some_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    make_run(tmp_path / "a", config={"model": {f"size{n}": 1 for n in range(9)}})
    make_run(tmp_path / "b", config={"model": {f"size{n}": 2 for n in range(9)}})
    columns, values, notes = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == [f"model.size{n}" for n in range(6)]
    assert [own["model.size0"] for own in values] == ["1", "2"]
    assert "differ in 3 more keys" in notes[0]


def test_names_that_were_given_are_a_column(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "name=baseline")
    make_run(tmp_path / "b", "name=wide", "model=wide")
    columns, values, _ = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == ["name", "model"]
    assert values[0] == {"name": "baseline", "model": "mlp"}


def test_an_experiment_is_a_column_where_every_run_has_one(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "experiment=narrow")
    make_run(tmp_path / "b", "experiment=wide", "model=wide")
    columns, values, _ = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == ["experiment", "model"]
    assert [own["experiment"] for own in values] == ["narrow", "wide"]
    make_run(tmp_path / "c", "model=deep")
    columns, values, _ = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == ["model"]
    assert [own["model"] for own in values] == ["mlp", "wide", "deep"]


def test_what_an_experiment_sets_is_shown_where_another_run_has_none(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", "experiment=faster", config={"trainer": {"max_epochs": 9}})
    columns, values, _ = config_columns(read_runs([tmp_path]), (), ConfigValues())
    assert columns == ["trainer.max_epochs"]
    assert [own["trainer.max_epochs"] for own in values] == ["5", "9"]
