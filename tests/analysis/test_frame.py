"""Runs and curves as data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from tests.making_runs import make_run

import assay
from assay.errors import AssayError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_runs_of_a_real_run(digits_run: Trained) -> None:
    frame = assay.runs(digits_run.run_dir)
    assert len(frame) == 1
    row = frame.iloc[0]
    assert row["run"] == str(digits_run.run_dir)
    assert row["test/accuracy"] == digits_run.record["metrics"]["test/accuracy"]
    assert row["model"] == "mlp"
    assert row["optimizer.lr"] == 0.01
    assert str(frame["started"].dtype).startswith("datetime64")


def test_runs_are_wide_and_typed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "optimizer.lr=0.1", "seed=1", metrics={"val/loss": 0.5, "loss": 1.0})
    make_run(tmp_path / "b", "model=small_cnn", metrics={"val/loss": float("nan")}, status="pruned")
    make_run(tmp_path / "c")
    (tmp_path / "c/record.json").write_text("{}")
    frame = assay.runs([tmp_path])
    assert frame["status"].tolist() == ["finished", "pruned", "broken"]
    assert frame["optimizer.lr"].tolist()[:2] == [0.1, 0.001], "what was not typed comes from the config"
    assert frame["model"].tolist()[:2] == ["mlp", "small_cnn"]
    assert frame["seed"].tolist() == [1, 0, pd.NA]
    assert frame["loss"].tolist()[:2] == ["ce", "ce"], "the group keeps its name"
    assert frame["loss (metric)"][0] == 1.0
    assert frame["val/loss"].dtype == np.float64
    assert frame["val/loss"].isna().tolist() == [False, True, True]


def test_curves_are_long_and_equal_metrics_csv(digits_run: Trained) -> None:
    table = pd.read_csv(digits_run.run_dir / "metrics.csv")
    frame = assay.curves(str(digits_run.run_dir))
    assert list(frame.columns) == ["run", "epoch", "step", "metric", "value"]
    expected = table.melt(["epoch", "step"], var_name="metric", value_name="value").dropna(subset="value")
    keys = ["metric", "step", "value"]
    ours, theirs = (
        one.assign(metric=one["metric"].astype(str))[keys].sort_values(keys) for one in (frame, expected)
    )
    assert (ours.to_numpy() == theirs.to_numpy()).all()
    assert frame["step"].dtype == np.int64
    assert frame["value"].dtype == np.float64


def test_a_run_without_curves_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", csv=None)
    make_run(tmp_path / "c", csv="nonsense\n")
    with pytest.warns(UserWarning, match="left out") as told:
        frame = assay.curves(tmp_path)
    assert len(told) == 2
    assert frame["run"].unique().tolist() == [str(tmp_path / "a")]
    assert frame["epoch"].tolist() == [1, 2, 1, 2]


def test_no_folder() -> None:
    with pytest.raises(AssayError, match="there is no folder"):
        assay.runs("nowhere")
