from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from assay.errors import DataError
from assay.run.predict.preprocess import as_frame, as_rows

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})


@pytest.mark.parametrize(
    "raw",
    [
        [FRAME],
        [FRAME.iloc[:1], FRAME.iloc[1:]],
        [FRAME.iloc[0], FRAME.iloc[1]],
        [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
        [{"a": [1, 2], "b": np.array(["x", "y"])}],
        [FRAME.iloc[:1], {"a": 2, "b": "y"}],
    ],
)
def test_rows_become_one_table(raw: list[Any]) -> None:
    found = as_frame(raw)
    assert found.astype(str).to_numpy().tolist() == [["1", "x"], ["2", "y"]]
    assert list(found.columns) == ["a", "b"]


@pytest.mark.parametrize("raw", [["x", "y"], pd.Series(["x", "y"]), np.array(["x", "y"]), ("x", "y")])
def test_texts_become_a_column(raw: Any) -> None:
    assert as_rows(raw, "text")["text"].tolist() == ["x", "y"]


def test_what_is_no_text_stays() -> None:
    row = FRAME.iloc[0]
    assert as_rows(row, "b") is row
    assert as_rows(FRAME, "b") is FRAME
    assert as_rows("a text", "b") == {"b": "a text"}


def test_the_name_of_a_file_is_not_taken_for_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(DataError, match="is a text for this model, and there is a file of this name"):
        as_rows(str(tmp_path / "a.txt"), "text")
