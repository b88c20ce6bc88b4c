"""`metrics.csv` holds every logged point, whenever the process dies and whoever goes on."""

import csv
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.record.killing import dies_at

from assay.errors import AssayError
from assay.logger.run_csv import RunCSV
from assay.record.run_directory import remove_unfinished_files


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_columns_come_in_the_order_they_appear_and_early_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.csv"
    logger = RunCSV(path)
    logger.log_metrics({"train/loss": 0.5, "epoch": 0}, step=0)
    logger.log_metrics({"train/loss": 0.25, "lr": 0.1, "epoch": 0}, step=1)
    logger.log_metrics({"val/acc": 1, "epoch": 1.0}, step=1)
    assert path.read_text() == "epoch,step,train/loss,lr,val/acc\n0,0,0.5,,\n0,1,0.25,0.1,\n1,1,,,1\n"
    assert [p.name for p in path.parent.iterdir()] == ["metrics.csv"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcde"), st.floats() | st.integers(), min_size=1),
        min_size=1,
        max_size=6,
    )
)
def test_numbers_read_back_equal(tmp_path: Path, points: list[dict[str, float]]) -> None:
    path = tmp_path / "metrics.csv"
    path.unlink(missing_ok=True)
    for step, point in enumerate(points):
        RunCSV(path).log_metrics(point, step=step)  # a new process for each point
    table = rows(path)
    assert len(table) == len(points)
    for row, point in zip(table, points, strict=True):
        assert {name for name, text in row.items() if text} == {*point, "step"}
        for name, value in point.items():
            read = float(row[name]) if isinstance(value, float) else int(row[name])
            assert read == value or (math.isnan(read) and math.isnan(value))


def test_only_numbers_are_written(tmp_path: Path) -> None:
    logger = RunCSV(tmp_path / "metrics.csv")
    point = {
        "tensor": torch.tensor(0.5, dtype=torch.float64, requires_grad=True),
        "one": torch.tensor([2]),
        "bfloat": torch.tensor(0.25, dtype=torch.bfloat16),
        "numpy": np.float32(0.75),
        "array": np.array([[3.0]]),
        "true": True,
        "vector": torch.zeros(2),
        "image": np.zeros((2, 2)),
        "empty": torch.zeros(0),
        "text": "1.0",
        "none": None,
        "list": [1.0],
    }
    logger.log_metrics(point, step=7)
    assert rows(tmp_path / "metrics.csv") == [
        {
            "epoch": "",
            "step": "7",
            "tensor": "0.5",
            "one": "2",
            "bfloat": "0.25",
            "numpy": "0.75",
            "array": "3.0",
            "true": "1",
        }
    ]
    logger.log_metrics({"text": "a", "epoch": 1}, step=8)
    logger.log_metrics({}, step=9)
    assert len(rows(tmp_path / "metrics.csv")) == 1


def test_the_half_row_of_a_killed_process_is_dropped_at_any_length(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = RunCSV(path)
    for step in range(3):
        logger.log_metrics({"loss": 0.123456789, "acc": step / 7}, step=step)
    content = path.read_bytes()
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        whole = content[:length].count(b"\n")
        RunCSV(path).log_metrics({"loss": 9.0}, step=99)
        table = rows(path)
        assert [row["step"] for row in table] == [str(step) for step in range(max(0, whole - 1))] + ["99"]
        assert table[-1]["loss"] == "9.0"


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_failure_while_columns_are_added_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "metrics.csv"
    logger = RunCSV(path)
    logger.log_metrics({"a": 1.0}, step=0)
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with pytest.raises(AssayError, match="No space"):
            logger.log_metrics({"b": 1.0}, step=1)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["metrics.csv"]
    logger.log_metrics({"b": 1.0}, step=1)
    assert path.read_text() == "epoch,step,a,b\n,0,1.0,\n,1,,1.0\n"


def test_what_a_killed_process_leaves_is_removed_with_all_else_that_is_unfinished(tmp_path: Path) -> None:
    assert dies_at(1, lambda: RunCSV(tmp_path / "metrics.csv").log_metrics({"a": 1.0}, step=0), below=".tmp")
    assert len(list(tmp_path.iterdir())) == 1
    remove_unfinished_files(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_rewind_drops_what_will_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = RunCSV(path)
    for step in range(6):
        logger.log_metrics({"a": step}, step=step)
        if step == 2:
            position = logger.position()
    assert position is not None
    logger.log_metrics({"late": 1.0}, step=6)
    later = RunCSV(path)
    later.rewind(position)
    assert later.mark()["rows"] == position["rows"] == 3
    later.log_metrics({"b": 0.5}, step=3)
    assert path.read_text() == "epoch,step,a,b\n,0,0,\n,1,1,\n,2,2,\n,3,,0.5\n"
    later.rewind(None)
    assert path.read_text() == "epoch,step\n"


def test_rows_that_are_gone_are_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = RunCSV(tmp_path / "metrics.csv")
    logger.log_metrics({"a": 1.0}, step=0)
    logger.rewind({"rows": 3, "columns": ["epoch", "step", "a"]})
    assert "has lost 2 of the 3 rows" in logger.damage
    assert logger.damage in caplog.text
    assert len(rows(tmp_path / "metrics.csv")) == 1
