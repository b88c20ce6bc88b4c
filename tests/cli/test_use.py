"""`assay eval` and `assay export` as they are typed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from assay.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_eval(digits_run: Trained, tmp_path: Path) -> None:
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run")
    result = CliRunner().invoke(app, ["eval", str(run_dir), "--split", "val", "--checkpoint", "last"])
    assert result.exit_code == 0, result.output
    assert "val   accuracy" in result.stdout
    assert "180 samples, the run's own data" in result.stdout
    assert f"assay predict {run_dir} INPUT" in result.stdout
    refused = CliRunner().invoke(app, ["eval", str(run_dir), "seed=1"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: seed: this is what the run is made of")


def test_eval_as_json(digits_run: Trained, tmp_path: Path) -> None:
    run_dir = shutil.copytree(digits_run.run_dir, tmp_path / "run")
    result = CliRunner().invoke(app, ["eval", str(run_dir), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["kind"] == "eval"
    assert document["metrics"]["test/accuracy"] == digits_run.result.metrics["test/accuracy"]
    assert (run_dir / document["predictions"]).is_file()


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
        "file",
        "card",
        "input",
        "output",
        "inside",
        "check",
        "next",
    ]
    assert "inputs: float32 [batch, 1, 8, 8]" in lines[2]
    assert "360 test samples, largest difference " in lines[5]
    assert "100 % of labels agree" in lines[5]
    assert said.stderr == ""


def test_export_as_json(run_dir: Path) -> None:
    said = RUNNER.invoke(app, ["export", str(run_dir), "--format", "safetensors", "--json"])
    document: dict[str, Any] = json.loads(said.stdout)
    assert document["kind"] == "export"
    assert document["path"] == str(run_dir / "export" / "safetensors" / "model.safetensors")
    assert document["agreement"]["largest_difference"] == 0
    assert document["agreement"]["num_samples"] == 360


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "tflite"], "--format tflite: one of onnx, torch_export, safetensors was expected"),
        (["--quantize", "int4"], "--quantize int4: int8 was expected"),
        (["--format", "torch_export", "--quantize", "int8"], "int8 is for ONNX files"),
        (["--out", "model.pt2"], "a file of --format onnx ends in .onnx"),
    ],
)
def test_what_is_refused(run_dir: Path, arguments: list[str], message: str) -> None:
    said = RUNNER.invoke(app, ["export", str(run_dir), *arguments])
    assert said.exit_code == 1
    assert message in said.stderr
    assert not (run_dir / "export").exists()


def test_no_run(tmp_path: Path) -> None:
    said = RUNNER.invoke(app, ["export", str(tmp_path)])
    assert (said.exit_code, "is not a run directory" in said.stderr) == (1, True)


def test_without_the_extra(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxscript" else find(name, *rest)
    )
    said = RUNNER.invoke(app, ["export", str(run_dir)])
    assert said.exit_code == 1
    assert "needs the package onnxscript, which is not installed" in said.stderr
    assert "pip install 'assay[export]'" in said.stderr
