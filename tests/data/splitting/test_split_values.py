"""Columns, arrays and file names that samples are divided by, and what is wrong with some."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from assay.data.divide import subsets_of, times_of, values_of
from assay.data.samples import Samples
from assay.errors import DataError

NAMES = ("a/p1_x.png", "b/p2_x.png", "b/p1_y.png")
FILES = Samples(torch.zeros(3, 1), torch.zeros(3), names=NAMES)
KEY = "data.split.group"


def test_a_column_or_a_pattern() -> None:
    table = Samples(torch.zeros(3, 1), torch.zeros(3), split_values={"patient": ["u", "v", "u"]})
    assert values_of(table, KEY, "patient").tolist() == ["u", "v", "u"]
    assert values_of(FILES, KEY, r"(p\d)_").tolist() == ["p1", "p2", "p1"]


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (Samples(torch.zeros(3, 1), torch.zeros(3)), "patient", "neither columns"),
        (
            Samples(torch.zeros(2, 1), torch.zeros(2), split_values={"p": ["a", None]}),
            "p",
            r"no value in row 1",
        ),
        (
            Samples(torch.zeros(2, 1), torch.zeros(2), split_values={"p": ["a"]}),
            "p",
            r"each of 2 samples, got 1",
        ),
        (FILES, "(", "not a regular expression"),
        (FILES, "patient", "one group in parentheses"),
        (FILES, "(p1)", r"finds nothing in 'b/p2_x.png' \(1 of 3 files\)"),
    ],
)
def test_no_value(data: Samples, name: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"data\.split\.group=.*{message}") as caught:
        values_of(data, KEY, name)
    assert caught.value.hint


def test_times() -> None:
    key = "data.split.time"
    for values, order in (
        (["2024-02-01", "2023-12-31T10:00", "2024-01-01 00:00+02:00"], [1, 2, 0]),
        ([3, 1.5, 2], [1, 2, 0]),
        (["2024", "2022", "2023"], [1, 2, 0]),
        (["20240201", "20231231", "20240101"], [1, 2, 0]),
        (pd.to_datetime(["2024-02-01", "2023-12-31", "2024-01-01"]).tz_localize("Asia/Tokyo"), [1, 2, 0]),
    ):
        found = times_of(pd.Series(values), key, "date")
        assert found.sort_values().index.tolist() == order
    with pytest.raises(DataError, match=r"data.split.time=date: '31.12.2024' in row 1 .*\(1 of 2 rows\)"):
        times_of(pd.Series(["2024-02-01", "31.12.2024"]), key, "date")


def test_parts() -> None:
    key = "data.split.column"
    values = pd.Series(["train", "Validation", " test", "val"])
    assert subsets_of(values, key, "split").tolist() == ["train", "val", "test", "val"]
    with pytest.raises(DataError, match=r"data.split.column=split: expected .*, got 'dev', '1'"):
        subsets_of(pd.Series(["train", "dev", 1]), key, "split")
