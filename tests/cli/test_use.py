"""`assay eval` prints scores, what was kept and what to do next."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

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
