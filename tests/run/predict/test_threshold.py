"""A threshold that is typed is said, and written beside what it decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def invoke(*typed: object) -> Any:
    return CliRunner().invoke(app, [*map(str, typed)])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_what_was_used_is_written_beside_the_predictions(
    yes_no_run: Trained, tmp_path: Path, suffix: str
) -> None:
    inputs = np.random.default_rng(0).random((20, 30)) * 20
    np.save(tmp_path / "new.npy", inputs)
    out = tmp_path / f"said.{suffix}"
    told = invoke("predict", yes_no_run.run_dir, tmp_path / "new.npy", "--threshold", "0.3", "-o", out)
    assert told.exit_code == 0, told.stderr
    name = yes_no_run.config.spec.class_names[1]
    assert f"note   threshold 0.3, as typed, for '{name}'" in told.stderr
    assert "assay export" in told.stdout
    assert "--threshold=0.3" in told.stdout
    read: Any = {"csv": pd.read_csv, "parquet": pd.read_parquet}.get(
        suffix, lambda path: pd.read_json(path, lines=True)
    )
    frame = read(out)
    assert np.isclose(frame["threshold"], 0.3, rtol=1e-12).all()
    assert ((frame[f"probability {name}"] >= 0.3) == (frame["prediction"] == name)).all()
    document = json.loads(
        invoke("predict", yes_no_run.run_dir, tmp_path / "new.npy", "--threshold=0.3", "--json").stdout
    )
    assert document["threshold"] == {"chosen": "as typed", "value": 0.3, "class": name}


@pytest.mark.parametrize("typed", ["recall", "1.5", "nan", ""])
def test_what_is_no_threshold_is_refused(yes_no_run: Trained, tmp_path: Path, typed: str) -> None:
    told = invoke("predict", yes_no_run.run_dir, tmp_path / "none.npy", f"--threshold={typed}")
    assert told.exit_code == 2
    assert "--threshold" in told.stderr


def test_a_threshold_of_more_classes_is_refused(kind_run: Trained, table: Path) -> None:
    told = invoke("predict", kind_run.run_dir, table / "rows.csv", "--threshold=0.3")
    assert "--threshold: the model does not predict probabilities of two classes" in told.stderr
