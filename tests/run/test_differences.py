"""The first difference between two runs, and what it is put down to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from assay.record import predictions_file
from assay.record.run_record import RunRecord
from assay.run.reproduce import causes, differences, first_value
from assay.task.predictions import StoredPredictions

if TYPE_CHECKING:
    from pathlib import Path


TABLE = "epoch,step,train/loss,DeviceStatsMonitor.cpu\n0,1,0.5,3\n0,2,,9\n0,2,0.25,\n"
MACHINE = {"cpu": "A", "cpu_flags": ["avx2"], "threads": 1, "python": "3.11.7", "gpus": [], "environment": {}}


def record(**fields: Any) -> RunRecord:
    known: dict[str, Any] = {
        "git": {"commit": "1"},
        "packages": {"torch": "2.15", "a": "1"},
        "machine": MACHINE,
    }
    plain = RunRecord("r", "r", "finished", "2026-01-01", 0, "f", "c", weights_sha256="1" * 64)
    return msgspec.structs.replace(plain, **{**known, **fields})


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (TABLE, ""),
        (TABLE.replace(",9", ",8"), ""),
        (TABLE.replace("0.25", "0.250001"), "step 2: train/loss 0.25 then, 0.250001 now"),
        (TABLE.replace("0,2,0.25,\n", ""), "step 2: train/loss 0.25 then, not logged now"),
        ("epoch,step,val/loss\n0,1,0.5\n", "step 1: train/loss 0.5 then, not logged now"),
        ("epoch,step\n", "step 1: train/loss 0.5 then, not logged now"),
    ],
)
def test_the_first_value(tmp_path: Path, table: str, expected: str) -> None:
    for name, content in (("then", TABLE), ("now", table)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.csv").write_text(content)
    assert first_value(tmp_path / "then", tmp_path / "now") == expected


def test_scores_and_weights(tmp_path: Path) -> None:
    one = record(metrics={"test/loss": math.nan, "test/accuracy": 0.5})
    assert differences(tmp_path, one, tmp_path, record(metrics=dict(one.metrics))) == []
    other = record(metrics={"test/loss": math.nan, "test/accuracy": 0.25}, weights_sha256="2" * 64)
    assert differences(tmp_path, one, tmp_path, other) == [
        "final scores: test/accuracy 0.5 then, 0.25 now",
        "weights: SHA-256 111111111111 then, 222222222222 now",
    ]


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"packages": {"a": "2", "torch": "2.14"}}, "packages: torch 2.14 then, 2.15 now, a 2 then, 1 now"),
        ({"machine": {**MACHINE, "cpu": "B"}}, "CPU: B then, A now"),
        (
            {"machine": {**MACHINE, "environment": {"MKL_CBWR": "AVX2"}}},
            "environment: MKL_CBWR=AVX2 then,  now",
        ),
        ({"machine": {**MACHINE, "environment": {"OMP_NUM_THREADS": "1"}}}, "nothing on record differs"),
        ({"git": None}, "code: it is not known"),
        (
            {"resumed": [{"from_step": 3, "changed": {"optimizer.lr": [1, 2]}}]},
            "config: changed at step 3 (optimizer.lr)",
        ),
        ({}, "nothing on record differs"),
    ],
)
def test_causes(fields: dict[str, Any], first: str) -> None:
    assert causes(record(**fields), record())[0].startswith(first)


def test_predictions(tmp_path: Path) -> None:
    outputs = np.array([[0.25, np.nan], [0.5, 0.5]], np.float32)
    one = StoredPredictions("multiclass", "scores", ("0", "1"), outputs, None, ("a", "b"))
    now = tmp_path / "now"
    predictions_file.write(tmp_path / predictions_file.FILE, one)
    for other, expected in (
        (one, []),
        (
            replace(one, outputs=outputs + np.array([[0], [1e-7]], np.float32)),
            ["predictions: of 1 of 2 samples other ones"],
        ),
        (replace(one, keys=("0", "2")), ["predictions: they are of other samples"]),
    ):
        predictions_file.write(now / predictions_file.FILE, other)
        assert differences(tmp_path, record(), now, record()) == expected
    (now / predictions_file.FILE).unlink()
    assert differences(tmp_path, record(), now, record()) == []
