from __future__ import annotations

import math

import pytest

from assay.data.tabular.table_encoder import Column, check_columns
from assay.errors import DataError

CITY = Column("city", "category", codes={"Bonn": 0, "Aue": 1, "Ulm": 1}, other=1)
BUILT = Column("built", "date", 30.0, parts=("elapsed", "month"), start=10.0)


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (Column("size", "number"), ["size"]),
        (CITY, ["city=Bonn", "city=other"]),
        (BUILT, ["built, elapsed", "built, month"]),
        (Column("note", "words", "", buckets=2), ["note, words 0", "note, words 1"]),
    ],
)
def test_each_number_has_a_name(column: Column, names: list[str]) -> None:
    assert (column.names, column.width) == (names, len(names))


def test_a_missing_date_is_filled_in_part_by_part() -> None:
    assert BUILT.fills == (20.0, 1.0)  # 1970-01-31
    assert math.isnan(Column("size", "number").fills[0])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["size"], "the table has no columns 'city', 'built', which the model was trained on"),
        (["city", "built", "city"], "the table has two columns called 'city'"),
    ],
)
def test_a_table_has_each_column_once(names: list[str], message: str) -> None:
    check_columns([CITY, BUILT], ["built", "city", "more"])
    with pytest.raises(DataError, match=message):
        check_columns([CITY, BUILT], names)
