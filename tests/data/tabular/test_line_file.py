from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from assay.data.tabular.table_file import first_keys, is_json_lines, line_chunks, read_json_lines
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

LINES = '{"text": "a", "n": 1}\n{"n": 2.5, "text": "b\\nb", "more": null}\n\n[1]\n{"text":\n{"n": 3}\n\n'


def test_a_table_is_as_pandas_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    frame = pd.DataFrame({"text": ["ä", "2024-01-01", "001"], "n": [1.5, None, 3.0]})
    frame.to_json(path, orient="records", lines=True)
    pd.testing.assert_frame_equal(read_json_lines(str(path), "key"), frame)
    assert list(read_json_lines(str(path), "key", ["n"]).columns) == ["n"]
    assert first_keys(path) == ["text", "n"]
    assert is_json_lines(path)
    assert not is_json_lines("rows.json")


def test_bad_lines_do_not_end_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(LINES, encoding="utf-8")
    chunks = list(line_chunks(path, ["text", "n"], 2))
    assert [list(rows) for _, rows, _ in chunks] == [[0, 1], [], [5]]
    assert pd.concat([frame for frame, _, _ in chunks])["text"].tolist()[:2] == ["a", "b\nb"]
    bad = {row: error for _, _, errors in chunks for row, error in errors.items()}
    assert bad.keys() == {2, 3, 4}
    assert bad[2] == "is empty"
    assert bad[3] == "is a list, not an object"
    assert bad[4].startswith("is not JSON: ")
    with pytest.raises(DataError, match="key: line 3 is empty"):
        read_json_lines(str(path), "key")


def test_a_text_per_line_also_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\ufefffirst\n\n'third', and more\n", encoding="utf-8")
    (chunk,) = line_chunks(path, ["words"], 10)
    assert chunk[0]["words"].tolist() == ["first", "", "'third', and more"]
    assert list(chunk[1]) == [0, 1, 2]
