"""Conditions on runs: groups, typed values, values of configs, scores, and what records say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.making_runs import make_run

from assay.analysis.comparison import meeting
from assay.analysis.config_values import ConfigValues
from assay.analysis.read_runs import read_runs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        (["model=small_cnn"], ["b"]),
        (["model!=small_cnn"], ["a", "c"]),
        (["optimizer.lr=1e-1"], ["a"]),
        (["optimizer.lr<0.05"], ["b"]),
        (["data.batch_size=64"], ["a", "b"]),
        (["data.batch_size>=64", "model=mlp"], ["a"]),
        (["val/loss<=0.5"], ["a"]),
        (["test/accuracy > 0.5"], ["b"]),
        (["status=failed"], ["b"]),
        (["seed=1"], ["b"]),
        (["name='digits_mlp'"], ["a", "b"]),
        (["status=broken"], ["c"]),
        (["experiment=null"], ["a", "b"]),
    ],
)
def test_what_is_kept(tmp_path: Path, conditions: list[str], kept: list[str]) -> None:
    make_run(tmp_path / "a", "optimizer.lr=0.1", metrics={"val/loss": 0.5})
    make_run(tmp_path / "b", "model=small_cnn", "seed=1", metrics={"test/accuracy": 0.7}, status="failed")
    make_run(tmp_path / "c")
    (tmp_path / "c/record.json").write_text("")
    runs = read_runs([tmp_path])
    assert [run.path.name for run in meeting(runs, conditions, ConfigValues())] == kept
