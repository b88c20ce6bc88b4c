"""What is written is read back as it was; anything else is one message."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types
import pytest

from assay.errors import AssayError
from assay.record import predictions_file
from assay.task.prediction.predictions import Predictions

if TYPE_CHECKING:
    from pathlib import Path

RANDOM = np.random.default_rng(0)
CASES = [
    Predictions(
        "multiclass",
        "probabilities",
        ("a/ä.png", "", "<script>"),
        RANDOM.random((3, 3), np.float32),
        np.array([2, 0, 1]),
        ("x", "\x1b[31m", "z"),
    ),
    Predictions(
        "binary", "probabilities", ("7",), np.array([[0.25, 0.75]], np.float32), np.array([1]), ("no", "yes")
    ),
    Predictions(
        "multilabel",
        "probabilities",
        ("0", "1"),
        RANDOM.random((2, 3), np.float32),
        np.eye(2, 3, dtype=np.int8),
        ("p", "q", "r"),
        "val",
    ),
    Predictions(
        "regression",
        "values",
        ("0", "1"),
        np.array([[np.nan], [np.inf]], np.float32),
        np.array([[1e-30], [-3.5]], np.float32),
        (),
        "train",
        9,
    ),
    Predictions("multiclass", "embeddings", ("0",), RANDOM.random((1, 16), np.float32), None, ("a", "b")),
    Predictions("multiclass", "scores", (), np.zeros((0, 2), np.float32), np.zeros(0, np.int64), ("a", "b")),
]


@pytest.mark.parametrize("predictions", CASES, ids=lambda one: f"{one.task}-{one.kind}")
def test_they_come_back_as_they_were(predictions: Predictions, tmp_path: Path) -> None:
    path = tmp_path / predictions_file.FILE
    predictions_file.write(path, predictions)
    found = predictions_file.read(path)
    np.testing.assert_array_equal(found.outputs, predictions.outputs, strict=True)
    if predictions.targets is None:
        assert found.targets is None
    else:
        assert found.targets is not None
        np.testing.assert_array_equal(found.targets, predictions.targets, strict=True)
    for name in ("task", "kind", "keys", "class_names", "subset", "num_evaluated"):
        assert getattr(found, name) == getattr(predictions, name)
    first = path.read_bytes()
    predictions_file.write(path, predictions)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def _about(**changed: Any) -> dict[bytes, bytes]:
    about = {
        "schema_version": 1,
        "task": "multiclass",
        "kind": "probabilities",
        "class_names": ["a", "b"],
        "subset": "test",
        "num_evaluated": 0,
    }
    return {b"assay": json.dumps(about | changed).encode()}


_OUTPUT = pa.array([[0.5, 0.5]], pa.list_(pa.float32(), 2))
_FINE: dict[str, Any] = {"key": ["0"], "target": [1], "output": _OUTPUT}


@pytest.mark.parametrize(
    ("columns", "metadata", "message"),
    [
        (_FINE, {}, "not a file of predictions"),
        (_FINE, {b"assay": b"[" * 100_000}, "cannot be read"),
        (_FINE, _about(schema_version=2), "schema version 2"),
        (_FINE, _about(task="clustering"), "its task is not"),
        (_FINE, _about(kind="logits"), "one of probabilities"),
        (_FINE, _about(class_names=[1, 2]), "class_names"),
        (_FINE, _about(class_names=["a"]), "1 class names for 2 outputs"),
        ({"key": ["0"]}, _about(), "got key"),
        ({**_FINE, "key": [0]}, _about(), "cannot be read"),
        ({**_FINE, "target": [2]}, _about(), "0 to 1 was expected"),
        ({**_FINE, "output": pa.array([[0.5, None]], pa.list_(pa.float32(), 2))}, _about(), "missing values"),
    ],
)
def test_another_parquet_file_is_one_message(
    columns: dict[str, Any], metadata: dict[bytes, bytes], message: str, tmp_path: Path
) -> None:
    path = tmp_path / predictions_file.FILE
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    with pytest.raises(AssayError, match=message) as error:
        predictions_file.read(path)
    assert str(path) in error.value.message
    assert "\n" not in error.value.message


def test_a_damaged_file_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / predictions_file.FILE
    predictions_file.write(path, CASES[0])
    content = path.read_bytes()
    for damaged in (b"", b"PAR1", content[:100], content[: len(content) // 2], content[:-5], b"x" * 1000):
        path.write_bytes(damaged)
        with pytest.raises(AssayError, match="cannot be read"):
            predictions_file.read(path)
    for position in range(
        0, len(content), 7
    ):  # a flipped byte is refused, or in a place that says nothing else
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        with suppress(AssayError):
            predictions_file.read(path)


def test_a_missing_file_names_what_would_make_one(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="kept no predictions") as error:
        predictions_file.read(tmp_path / "run" / predictions_file.FILE)
    assert error.value.hint == f"assay eval {tmp_path / 'run'}"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / predictions_file.FILE)
    with pytest.raises(AssayError, match="cannot be read"):
        predictions_file.read(tmp_path / predictions_file.FILE)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / predictions_file.FILE
    predictions_file.write(path, CASES[0])

    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        predictions_file.write(path, CASES[1])
    monkeypatch.undo()
    assert predictions_file.read(path).task == "multiclass"
    assert list(tmp_path.iterdir()) == [path]
