from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from assay.record.run_record import RunRecord
from assay.report.page import Code, Facts, Note, Table, render
from assay.report.run_page import run_page
from assay.report.run_parts import (
    config_blocks,
    environment_blocks,
    read_values,
    reproduce_blocks,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


@pytest.fixture
def run_dir(digits_run: Trained, tmp_path: Path) -> Path:
    """A copy of a real run, to change."""
    shutil.copytree(digits_run.run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    return tmp_path / "run"


def test_a_config_from_elsewhere_is_not_shown(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "secrets.yaml").write_text("passphrase: hunter2")
    (run_dir / "config.yaml").unlink()
    (run_dir / "config.yaml").symlink_to(tmp_path / "secrets.yaml")
    assert "hunter2" not in render(run_page(run_dir))
    values, problem = read_values(run_dir)
    assert not values
    assert "secrets.yaml, outside of " in problem


def test_every_value_has_a_row(run_dir: Path) -> None:
    values, problem = read_values(run_dir)
    record = RunRecord.load(run_dir)
    typed, table = config_blocks(values, problem, record)
    assert isinstance(typed, Code)
    assert shlex.split(typed.text) == record.overrides
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == list(values)
    assert "experiment" not in table.caption


def test_the_machine_and_the_packages(run_dir: Path) -> None:
    record = RunRecord.load(run_dir)
    facts, packages = environment_blocks(record)
    assert isinstance(facts, Facts)
    assert dict(facts.rows)["torch"] == record.packages["torch"]
    assert isinstance(packages, Code)
    assert f"torch=={record.packages['torch']}" in packages.text.splitlines()


@pytest.mark.parametrize(
    ("git", "said"),
    [
        (None, "not in a git repository"),
        ({"commit": "a", "dirty": True, "patch_complete": True}, "code.patch has them, as a whole"),
        ({"commit": "a", "dirty": True}, "code.patch has them in part"),
    ],
)
def test_the_way_back(git: dict[str, object] | None, said: str, run_dir: Path) -> None:
    record = RunRecord.load(run_dir)
    record.overrides, record.git = ["data=digits", "seed=7", "hydra.run.dir=a b"], git
    lines, note = reproduce_blocks(run_dir, record)
    assert isinstance(lines, Code)
    commands = [shlex.split(line) for line in lines.text.splitlines() if line and line[0] != "#"]
    assert commands == [
        ["assay", "reproduce", str(run_dir)],
        ["assay", "train", "data=digits", "seed=7"],
        ["assay", "train", "-m", "data=digits", "seed=1,2,3"],
    ]
    assert isinstance(note, Note)
    assert said in note.text
