"""`assay predict`, `assay export` and `assay report` as they are typed."""

from __future__ import annotations

import importlib.util
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # ships no types
from tests.command import documented, typed
from tests.contract.json_page import problems_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


@pytest.fixture
def run_dir(digits_run: Trained, tmp_path: Path) -> Path:
    return shutil.copytree(digits_run.run_dir, tmp_path / "a run")


def test_beside_the_run_by_default(run_dir: Path) -> None:
    said = typed("export", run_dir)
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
    said = typed("export", run_dir, code=1)
    assert "needs the package onnxscript, which is not installed" in said.stderr
    assert "pip install 'assay[export]'" in said.stderr


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    np.save(tmp_path / "digits.npy", load_digits().images[:60, None].astype(np.float32))
    return tmp_path / "digits.npy"


def test_a_file_has_all_rows(digits_run: Trained, digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.csv"
    gone = tmp_path / "gone\x1b[31m.npy"
    words = ("predict", digits_run.run_dir, digits, gone, "--out", out, "--checkpoint", "last")
    lines = typed(*words).stdout.splitlines()
    assert lines[0] == f"out    {out}: 61 rows"
    assert lines[-1].startswith("failed 1 of 61 samples, see column error; ")
    assert lines[-1].endswith("gone\\x1b[31m.npy: there is no such file")
    frame = pd.read_csv(out)
    assert frame["error"].notna().tolist() == [False] * 60 + [True]
    right = (frame["prediction"][:60] == load_digits().target[:60]).mean()
    assert right > 0.8


def test_one_document(digits_run: Trained, digits: Path, tmp_path: Path) -> None:
    _, found = documented("predict", digits_run.run_dir, digits)
    assert not problems_of(found)
    assert (found["kind"], found["num_samples"], found["num_failed"]) == ("predict", 60, 0)
    assert len(found["rows"]) == 60
    assert found["rows"][7]["row"] == 7
    out = tmp_path / "x.jsonl"
    _, found = documented("predict", digits_run.run_dir, digits, "--out", out)
    assert (found["rows"], found["out"]) == ([], str(out))
    code, found = documented("predict", digits_run.run_dir, tmp_path / "gone")
    assert code == 1
    assert found["error"]["message"].endswith("gone: there is no such file")
    assert found["num_failed"] == 1


def test_the_page_is_told_and_opened(
    digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = tmp_path / "page.html"
    said = typed("report", digits_run.run_dir, "--out", page, "--open").stdout
    assert said.startswith(f"page  {page}  (")
    assert f"next  assay predict {digits_run.run_dir} INPUT" in said
    assert f"assay compare {digits_run.run_dir.parent}" in said
    assert opened == [page.as_uri()]
