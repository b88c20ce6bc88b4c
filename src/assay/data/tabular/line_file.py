"""Files of a record per line: JSON objects (.jsonl), or plain texts (.txt)."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def is_json_lines(path: str | Path) -> bool:
    """Whether each line of a file is a JSON object, by its name."""
    return str(path).lower().endswith((".jsonl", ".ndjson"))


def read_json_lines(path: str, key: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table of the objects of a .jsonl file; a key that an object lacks is a missing value.

    Args:
        path: The file.
        key: What a message calls it.
        columns: Read these alone; None for all.

    Raises:
        DataError: A line is not a JSON object.
        OSError: It cannot be read.
    """
    records = []
    for number, (record, error) in enumerate(_records(Path(path), errors="strict"), start=1):
        if error:
            raise DataError(f"{key}: line {number} {error}", hint="repair it, or leave it out")
        wanted = record if columns is None else {name: record[name] for name in columns if name in record}
        records.append(wanted)
    return pd.DataFrame(records)


def line_chunks(
    path: Path, columns: Sequence[str], size: int, encoding: str = "utf-8"
) -> Iterator[tuple[pd.DataFrame, Sequence[int], dict[int, str]]]:
    """Columns of a file of lines, chunk by chunk.

    Args:
        path: A .jsonl file; or a .txt file, whose lines are texts of the one column.
        columns: Read these alone.
        size: Lines of a chunk.
        encoding: Of a .txt file.

    Yields:
        Rows that could be read, their numbers in the file, and why others could not be, by number.

    Raises:
        OSError: It cannot be read.
    """
    of_json = is_json_lines(path)
    start, records = 0, _records(path, "replace") if of_json else _texts(path, columns[0], encoding)
    while some := list(islice(records, size)):
        bad = {start + at: error for at, (_, error) in enumerate(some) if error}
        good = [start + at for at, (_, error) in enumerate(some) if not error]
        frame = pd.DataFrame([some[row - start][0] for row in good], columns=list(columns))
        yield frame, good, bad
        start += len(some)


def first_keys(path: Path) -> list[str]:
    """Keys of the first object of a .jsonl file.

    Raises:
        OSError: It cannot be read.
    """
    return next((list(record) for record, error in _records(path, errors="replace") if not error), [])


def _texts(path: Path, column: str, encoding: str) -> Iterator[tuple[dict[str, Any], str]]:
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    with path.open(encoding=encoding, errors="replace") as file:
        yield from (({column: line.rstrip("\n")}, "") for line in file)


def _records(path: Path, errors: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each line's object, and what is wrong with it; empty lines are passed over at the end alone."""
    with path.open(encoding="utf-8-sig", errors=errors) as file:
        blank = 0
        for line in file:
            if not line.strip():
                blank += 1
                continue
            yield from (({}, "is empty") for _ in range(blank))
            blank = 0
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield {}, f"is not JSON: {error}"
                continue
            if isinstance(record, dict):
                yield {str(name): value for name, value in record.items()}, ""
            else:
                yield {}, f"is a {type(record).__name__}, not an object"
