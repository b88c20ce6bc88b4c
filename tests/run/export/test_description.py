"""What a file says of itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assay.data.tabular.table_encoder import Column
from assay.run.export.agreement import read_samples
from assay.run.export.description import describe, describe_columns
from assay.run.export.exportable import read_original

if TYPE_CHECKING:
    from tests.conftest import Trained


def test_of_a_run(digits_run: Trained) -> None:
    original = read_original(digits_run.run_dir, "best")
    about = describe(original, read_samples(original), file_format="onnx", inside=True)
    assert json.loads(json.dumps(about)) == about
    assert about["inside"] == ["normalisation", "probabilities"]
    assert about["run"]["best"]["epoch"] == digits_run.record["best"]["epoch"]
    assert about["preprocessing"]["mean"] == list(digits_run.datamodule.spec.mean)


def test_of_columns() -> None:
    columns = [Column("t", "category", codes={"a": 0}), Column("n", "number", fill=1.5), Column("d", "date")]
    numbers, texts = describe_columns(columns, texts=True)
    assert (numbers["name"], numbers["dtype"], numbers["shape"]) == ("numbers", "float32", ["batch", 2])
    assert [column["kind"] for column in numbers["columns"]] == ["number", "days since 1970-01-01"]
    assert [column["missing"] for column in numbers["columns"]] == [1.5, None]
    assert (texts["name"], texts["dtype"]) == ("categories", "string")
    codes = describe_columns(columns, texts=False)[1]
    assert (codes["name"], codes["columns"][0]["codes"]) == ("codes", {"": -2, "a": 0})
