"""Kept predictions and samples are read back as they were; anything else is one message."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types
import pytest

from assay.errors import AssayError
from assay.task.predictions import StoredPredictions
from assay_analysis import predictions_file
from assay_analysis.predictions_file import KeptSample

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

RANDOM = np.random.default_rng(0)


def of(task: str, kind: str, outputs: Any, targets: NDArray[Any] | None, *rest: Any) -> StoredPredictions:
    keys = ("a/ä.png", "", "<script>")[: len(outputs)]
    return StoredPredictions(task, kind, keys, np.array(outputs, np.float32), targets, *rest)  # type: ignore[arg-type]  # as it comes


CASES = [
    of("multiclass", "probabilities", RANDOM.random((3, 3)), np.array([2, 0, 1]), ("x", "\x1b[31m", "z")),
    of(
        "multilabel",
        "probabilities",
        RANDOM.random((2, 3)),
        np.eye(2, 3, dtype=np.int8),
        tuple("pqr"),
        "val",
    ),
    of("regression", "values", [[np.nan], [np.inf]], np.array([[1e-30], [-3.5]], np.float32), (), "train", 9),
    of("multiclass", "embeddings", RANDOM.random((1, 16)), None, ("a", "b")),
    of("multiclass", "scores", np.zeros((0, 2)), np.zeros(0, np.int64), ("a", "b")),
]


@pytest.mark.parametrize("predictions", CASES, ids=lambda one: f"{one.task}-{one.kind}")
def test_predictions_come_back_as_they_were(predictions: StoredPredictions, tmp_path: Path) -> None:
    path = tmp_path / predictions_file.FILE
    predictions_file.write(path, predictions)
    found = predictions_file.read(path)
    np.testing.assert_array_equal(found.outputs, predictions.outputs, strict=True)
    if predictions.targets is None:
        assert found.targets is None
    else:
        np.testing.assert_array_equal(found.targets, predictions.targets, strict=True)
    for name in ("task", "kind", "keys", "class_names", "subset", "num_evaluated"):
        assert getattr(found, name) == getattr(predictions, name)
    first = path.read_bytes()
    predictions_file.write(path, predictions)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


SAMPLES = [
    KeptSample("a/<script>.png", "worst", b"\x89PNG\r\n\x1a\n...", None),
    KeptSample("7", "random", None, {"size": 1.5, "kind": "a\x1b[0m", "on": True, "gap": None, "n": np.nan}),
]


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / predictions_file.SAMPLES
    assert predictions_file.read_samples(path) == []
    for samples in ([], SAMPLES):
        predictions_file.write_samples(path, samples)
        assert repr(predictions_file.read_samples(path)) == repr(samples)


def about(**changed: Any) -> dict[str, Any]:
    known = {"schema_version": 1, "task": "multiclass", "kind": "probabilities", "class_names": ["a", "b"]}
    return {**known, "subset": "test", "num_evaluated": 0, **changed}


def refused(read: Any, columns: dict[str, Any], metadata: dict[str, Any], message: str, folder: Path) -> None:
    path = folder / "x.parquet"
    table = pa.table(columns).replace_schema_metadata({b"assay": json.dumps(metadata).encode()})
    pq.write_table(table, path)
    with pytest.raises(AssayError, match=message) as error:
        read(path)
    assert str(path) in error.value.message
    assert "\n" not in error.value.message


def listed(*values: float | None) -> pa.Array:
    return pa.array([values], pa.list_(pa.float32(), 2))


@pytest.mark.parametrize(
    ("changed", "metadata", "message"),
    [
        ({}, {"schema_version": 2}, "schema version 2"),
        ({}, about(task="clustering"), "its task is not"),
        ({}, about(class_names=["a"]), "1 class names for 2 outputs"),
        ({"key": [0]}, about(), "cannot be read"),
        ({"output": listed(0.5, None)}, about(), "missing values"),
    ],
)
def test_another_file_is_no_predictions(
    changed: dict[str, Any], metadata: dict[str, Any], message: str, tmp_path: Path
) -> None:
    fine = {"key": ["0"], "target": [1], "output": listed(0.5, 0.5)}
    refused(predictions_file.read, fine | changed, metadata, message, tmp_path)


@pytest.mark.parametrize(
    ("changed", "version", "message"),
    [
        ({}, 2, "schema version 2"),
        ({"picture": pa.array([b"<svg onload=alert(1)>"])}, 1, "expected PNG"),
        ({"key": pa.array([None], pa.string())}, 1, "cannot be read"),
    ],
)
def test_another_file_is_no_samples(
    changed: dict[str, Any], version: int, message: str, tmp_path: Path
) -> None:
    fine: dict[str, Any] = {"key": ["0"], "reason": ["worst"], "picture": [SAMPLES[0].picture], "row": ["{}"]}
    refused(predictions_file.read_samples, fine | changed, {"schema_version": version}, message, tmp_path)


def test_a_damaged_or_missing_file_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / predictions_file.FILE
    with pytest.raises(AssayError, match="kept no predictions") as error:
        predictions_file.read(path)
    assert error.value.hint == f"assay eval {tmp_path}"
    predictions_file.write(path, CASES[0])
    content = path.read_bytes()
    for damaged in (b"", content[: len(content) // 2], content[:-5]):
        path.write_bytes(damaged)
        with pytest.raises(AssayError, match="cannot be read"):
            predictions_file.read(path)
    for at in range(0, len(content), 7):  # a flipped byte is refused, or changes what nobody reads
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        with suppress(AssayError):
            predictions_file.read(path)
