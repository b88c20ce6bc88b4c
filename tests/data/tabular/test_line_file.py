from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from assay.data.tabular.table_encoder import Column, TableEncoder
from assay.data.tabular.table_file import TableChunk, columns_of, is_json_lines, read_table, table_chunks
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

LINES = '{"text": "a", "n": 1}\n{"n": 2.5, "text": "b\\nb", "more": null}\n\n[1]\n{"text":\n{"n": 3}\n\n'


def read_chunks(path: Path, names: list[str], size: int) -> list[TableChunk]:
    encoder = TableEncoder()
    encoder.columns = tuple(Column(name, "text") for name in names)
    return list(table_chunks(path, encoder, size))


def test_a_table_is_as_pandas_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    frame = pd.DataFrame({"text": ["ä", "2024-01-01", "001"], "n": [1.5, None, 3.0]})
    frame.to_json(path, orient="records", lines=True)
    pd.testing.assert_frame_equal(read_table(str(path)), frame)
    assert list(read_table(str(path), columns=["n"]).columns) == ["n"]
    assert columns_of(path) == ["text", "n"]
    assert is_json_lines(path)
    assert not is_json_lines("rows.json")


def test_bad_lines_do_not_end_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(LINES, encoding="utf-8")
    chunks = read_chunks(path, ["text", "n"], 2)
    assert [list(chunk.rows) for chunk in chunks] == [[0, 1], [], [5]]
    assert pd.concat([chunk.frame for chunk in chunks])["text"].tolist()[:2] == ["a", "b\nb"]
    bad = {row: error for chunk in chunks for row, error in chunk.bad.items()}
    assert bad.keys() == {2, 3, 4}
    assert bad[2] == "is empty"
    assert bad[3] == "is a list, not an object"
    assert bad[4].startswith("is not JSON: ")
    with pytest.raises(DataError, match=r"rows\.jsonl: line 3 is empty"):
        read_table(str(path))


def test_a_text_per_line_also_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\ufefffirst\n\n'third', and more\n", encoding="utf-8")
    (chunk,) = read_chunks(path, ["words"], 10)
    assert chunk.frame["words"].tolist() == ["first", "", "'third', and more"]
    assert list(chunk.rows) == [0, 1, 2]
