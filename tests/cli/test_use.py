"""`assay eval`, `assay predict` and `assay export` as they are typed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # ships no types
from tests.contract.json_page import problems_of
from typer.testing import CliRunner

from assay.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained
    from typer.testing import Result


# -- export -----------------------------------------------------------------------------------------------

RUNNER = CliRunner()


@pytest.fixture
def run_dir(digits_run: Trained, tmp_path: Path) -> Path:
    return shutil.copytree(digits_run.run_dir, tmp_path / "a run")


def test_beside_the_run_by_default(run_dir: Path) -> None:
    said = RUNNER.invoke(app, ["export", str(run_dir)])
    assert said.exit_code == 0, said.output
    folder = run_dir / "export" / "onnx"
    assert sorted(path.name for path in folder.iterdir()) == ["MODEL_CARD.md", "model.onnx"]
    lines = said.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("file", "card", "input", "output", "inside", "check", "next"),
    ]
    assert "inputs: float32 [batch, 1, 8, 8]" in lines[2]
    assert "360 test samples, largest difference " in lines[5]
    assert said.stderr == ""


def test_without_the_extra(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxscript" else find(name, *rest)
    )
    said = RUNNER.invoke(app, ["export", str(run_dir)])
    assert said.exit_code == 1
    assert "needs the package onnxscript, which is not installed" in said.stderr
    assert "pip install 'assay[export]'" in said.stderr


def predicted(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["predict", *map(str, words)], env={"COLUMNS": "120"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    np.save(tmp_path / "digits.npy", load_digits().images[:60, None].astype(np.float32))
    return tmp_path / "digits.npy"


def test_a_file_has_all_rows(digits_run: Trained, digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.csv"
    gone = tmp_path / "gone\x1b[31m.npy"
    lines = predicted(
        digits_run.run_dir, digits, gone, "--out", out, "--checkpoint", "last"
    ).stdout.splitlines()
    assert lines[0] == f"out    {out}: 61 rows"
    assert lines[-1].startswith("failed 1 of 61 samples, see column error; ")
    assert lines[-1].endswith("gone\\x1b[31m.npy: there is no such file")
    frame = pd.read_csv(out)
    assert frame["error"].notna().tolist() == [False] * 60 + [True]
    right = (frame["prediction"][:60] == load_digits().target[:60]).mean()
    assert right > 0.8


def test_one_document(digits_run: Trained, digits: Path, tmp_path: Path) -> None:
    found = json.loads(predicted(digits_run.run_dir, digits, "--json").stdout)
    assert not problems_of(found)
    assert (found["kind"], found["num_samples"], found["num_failed"]) == ("predict", 60, 0)
    assert len(found["rows"]) == 60
    assert found["rows"][7]["row"] == 7
    out = tmp_path / "x.jsonl"
    found = json.loads(predicted(digits_run.run_dir, digits, "--json", "--out", out).stdout)
    assert (found["rows"], found["out"]) == ([], str(out))
    found = json.loads(predicted(digits_run.run_dir, tmp_path / "gone", "--json", code=1).stdout)
    assert found["error"]["message"].endswith("gone: there is no such file")
    assert found["num_failed"] == 1
