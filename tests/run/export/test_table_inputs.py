"""Texts of categories, and the codes that stand for them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from assay.data.tabular.table_encoder import Column
from assay.run.export.exportable import MISSING, UNKNOWN, codes_of, table_inputs, text_codes


def test_codes() -> None:
    floor = Column("floor", "category", fill="2", codes={"-1": 0, "2": 1})
    town = Column("town", "category", codes={"a": 0, "b": 1, "c": 1}, other=1)
    texts = np.array([["2.0", "a"], ["", ""], ["7", "Mars"], ["-1", "c"]], dtype=object)
    assert codes_of(texts, [floor, Column("x", "number"), town]).tolist() == [
        [1, 0],
        [1, MISSING],
        [UNKNOWN, 1],
        [0, 1],
    ]
    assert text_codes(Column("e", "category", fill="x", codes={"": 0, "x": 1}))[""] == 0  # a text of its own


def test_rows() -> None:
    columns = [
        Column("town", "category", codes={"a": 0}),
        Column("day", "date", fill=0.0),
        Column("yes", "number"),
        Column("n", "number", fill=1.0),
    ]
    frame = pd.DataFrame(
        {
            "n": pd.array([3, None], dtype="Int64"),
            "yes": [True, False],
            "day": ["1970-01-03T12:00:00", None],
            "town": ["a", None],
            "else": 0,
        }
    )
    inputs = table_inputs(frame, columns)
    np.testing.assert_array_equal(
        inputs["numbers"], np.array([[2.5, 1, 3], [np.nan, 0, np.nan]], dtype=np.float32)
    )
    assert inputs["categories"].tolist() == [["a"], [""]]
    assert inputs["numbers"].dtype == np.float32
