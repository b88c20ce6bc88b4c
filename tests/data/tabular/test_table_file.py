from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from assay.data.tabular.table_file import check_columns, read_table, task_of_columns
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pd.DataFrame({"size": [1.5, None, 3.0], "city": ["Ulm", "Bonn", "a, b"], "rooms": [1, 2, 3]})


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.xz", ".csv.zip", ".parquet", ".PQ"])
def test_what_pandas_wrote_is_read(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / f"rows{suffix}")
    ROWS.to_csv(path, index=False) if ".csv" in suffix else ROWS.to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path), ROWS, check_dtype=False)
    pd.testing.assert_frame_equal(
        read_table(path, columns=["city", "size"])[["size", "city"]],
        ROWS[["size", "city"]],
        check_dtype=False,
    )


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a;b\n1,5;x\n2,5;-\n", {"separator": ";", "decimal": ",", "na_values": ["-"]}),
        ("a b\n1.5  x\n2.5 NA\n", {"separator": r"\s+"}),
        ("a\tb\n1.5\tx\n2.5\t\n", {"separator": "\t"}),
    ],
)
def test_forms_of_csv(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    (tmp_path / "rows.csv").write_text(text)
    found = read_table(str(tmp_path / "rows.csv"), **options)
    assert found["a"].tolist() == [1.5, 2.5]
    assert found["b"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n", "has no rows"),
        (b"a;b\n1;2\n", "looks separated by ';', not by ','"),
        (b"a,b\n1,2,3\n4,5,6\n", "more values than the header has names"),
        (b"a,b\n1,\xff\n", "not text in UTF-8"),
        (b"", "cannot be read: No columns to parse"),
        (b"a,b,a\n1,2,3\n", "has two columns called 'a'"),
        (b'a.1,"b\n",a,"b\n"\n1,2,3,4\n', "has two columns called 'b"),
        (b'a,b,c\n1,"x,1\n2,y,2\n3,z",3\n', "a quote is not closed there"),
    ],
)
def test_what_is_no_table(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(DataError) as refused:
        read_table(str(tmp_path / "rows.csv"), "test_path")
    assert says in refused.value.message
    assert refused.value.message.startswith("data.source.test_path=")


def test_names_that_pandas_might_have_made_up(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,a.1,,,v.10\n1,2,3,4,5\n")
    assert list(read_table(str(tmp_path / "rows.csv")).columns)[:2] == ["a", "a.1"]


def test_half_a_compressed_file(tmp_path: Path) -> None:
    packed = gzip.compress(ROWS.to_csv(index=False).encode())
    (tmp_path / "rows.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        read_table(str(tmp_path / "rows.csv.gz"))


def test_a_column_that_is_not_there() -> None:
    check_columns(ROWS, ["size", "city"], "rows.csv", "target")
    with pytest.raises(DataError) as refused:
        check_columns(ROWS, ["size", "citty"], "rows.csv", "target")
    assert "data.source.target: rows.csv has no column 'citty'; did you mean 'city'?" in refused.value.message
    assert refused.value.hint == "columns: size, city, rooms"


TARGETS: dict[str, tuple[list[Any], str, bool]] = {
    "fractions": ([0.5, 1.25, 2.75] * 20, "regression", False),
    "few whole floats": ([1.0, 2.0, 3.0] * 20, "regression", True),
    "yes and no": ([True, False] * 30, "multiclass", False),
    "texts": (["a", "b", "c"] * 20, "multiclass", False),
    "few integers": ([1, 2, 3] * 20, "multiclass", False),
    "many integers": (list(range(60)), "regression", True),
    "many integers, often": (list(range(30)) * 25, "multiclass", False),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_the_task_that_a_target_is(kind: str) -> None:
    values, task, said = TARGETS[kind]
    found, note = task_of_columns(pd.DataFrame({"target": values}), ["target"])
    assert found == task
    assert bool(note) == said
    assert not said or "data.source.task=multiclass" in note


def test_several_columns() -> None:
    frame = pd.DataFrame({"a": [0, 1] * 5, "b": [1, 0] * 5, "x": [0.5, 1.5] * 5, "y": [2.5, 3.5] * 5})
    assert task_of_columns(frame, ["a", "b"]) == ("multilabel", "")
    assert task_of_columns(frame, ["x", "y"]) == ("regression", "")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([f"2024-01-{day:02}" for day in range(1, 29)], "dates"),
        ([f"{price:,} €" for price in range(1000, 1030)], "looks like numbers"),
        ([f"name{n}" for n in range(40)], "40 different texts in 40 rows"),
    ],
)
def test_a_target_that_is_neither(values: list[str], says: str) -> None:
    with pytest.raises(DataError) as refused:
        task_of_columns(pd.DataFrame({"target": values}), ["target"])
    assert says in refused.value.message
