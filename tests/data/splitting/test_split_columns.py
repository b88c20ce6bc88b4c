from __future__ import annotations

from typing import Any

import pytest

from assay.data.source_info import SourceInfo
from assay.data.spec import Declared
from assay.data.splits import ask_for_columns
from assay.data.subset import Split
from assay.errors import DataError

DECLARED = Declared("regression", input_shape=[3], num_targets=1, num_samples={"all": 9})


class Columns:
    """A source that has columns, or divides its samples itself."""

    def __init__(self, *, divides_itself: bool = False) -> None:
        self.split_columns: dict[str, str] = {}
        self.info = SourceInfo(divides_itself=divides_itself)


def test_a_source_is_told_which_columns_are_wanted() -> None:
    source: Any = Columns()
    ask_for_columns(source, Split(0.1, 0.1, group="patient"))
    assert source.split_columns == {"data.split.group": "patient"}
    ask_for_columns(source, Split(0.1, 0.1))
    assert source.split_columns == {}


@pytest.mark.parametrize(
    ("source", "split", "message"),
    [
        (DECLARED, Split(0.1, 0.1, time="day"), r"data.split.time=day: this data is declared \(data.spec\)"),
        (
            Columns(divides_itself=True),
            Split(0.1, 0.1, folds=5, fold=0),
            "data.split.folds=5: this source divides its texts itself",
        ),
    ],
)
def test_columns_that_nobody_has_are_refused(source: Any, split: Split, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ask_for_columns(source, split)
