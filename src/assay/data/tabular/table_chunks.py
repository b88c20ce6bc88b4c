"""A table in chunks, larger than memory: what is wrong with a row of a CSV file does not end the reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import pandas as pd

from assay.data.tabular.column_kind import plain_numbers
from assay.data.tabular.csv_dialect import is_csv, read_records, resolved
from assay.data.tabular.table_file import (
    check_names,
    check_separator,
    first_keys,
    is_json_lines,
    line_chunks,
    read_excel,
)
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.data.tabular.table_encoder import ColumnEncoder

_TRUTH = {"True", "False"}


@final
@dataclass(frozen=True)
class TableChunk:
    """Some rows of a table.

    Attributes:
        frame: Those that could be read.
        rows: Number of each in its file, from 0.
        bad: Why others could not be, by their number.
    """

    frame: pd.DataFrame
    rows: Sequence[int]
    bad: dict[int, str] = field(default_factory=dict)


def is_texts(path: Path, encoder: ColumnEncoder) -> bool:
    """Whether each line of a file is a text.

    Args:
        path: Of the file.
        encoder: That has learned.
    """
    return path.name.lower().endswith(".txt") and encoder.columns[0].kind == "text"


def found_options(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """How a table is read, with what was found in place of `auto`.

    Args:
        path: Of the table.
        options: Of `assay.data.tabular.table_file.read_table`.

    Raises:
        DataError: It cannot be read.
    """
    try:
        return resolved(path, options)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error


def columns_of(path: Path, *, separator: str = ",", encoding: str = "utf-8", **others: Any) -> list[str]:
    """Names of the columns of a table, of which no more is read where that is possible.

    Args:
        path: Of the table.
        separator: Between the columns of a CSV file.
        encoding: Of a CSV file.
        others: Further arguments of `table_chunks`.

    Raises:
        DataError: It cannot be read.
    """
    try:
        if is_json_lines(path):
            return first_keys(path)
        if is_parquet(path):
            import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

            return [str(name) for name in pq.read_schema(path).names]
        if not is_csv(path):
            return list(_whole(path, sheet=others.get("sheet"), na_values=(), texts=()).columns)
        options: Any = {"sep": separator, "encoding": encoding, "encoding_errors": "replace"}
        read = pd.read_csv(path, **options, nrows=0, index_col=False)
        names = [str(name) for name in read.columns]
        check_names(path, str(path), separator, names, encoding)
    except (OSError, ValueError, EOFError) as error:  # pandas' and pyarrow's own are of these kinds
        raise _unreadable(path, error) from error
    return names


def table_chunks(
    path: Path,
    encoder: ColumnEncoder,
    size: int,
    *,
    separator: str = ",",
    decimal: str = ".",
    encoding: str = "utf-8",
    na_values: Sequence[str] = (),
    sheet: str | None = None,
) -> Iterator[TableChunk]:
    r"""Read a table chunk by chunk: the columns that an encoder needs, in the types that it needs.

    Args:
        path: A file that `assay.data.tabular.table_file.read_table` reads; of Excel and Feather it is read at
            once.
        encoder: That has learned.
        size: Rows of a chunk.
        separator: Between the columns of a CSV file: one character, or `\s+`.
        decimal: Decimal point of a CSV file.
        encoding: Of a CSV or .txt file.
        na_values: More texts in a CSV or Excel file that stand for a missing value.
        sheet: Of an Excel file; None: its only one.

    Raises:
        DataError: It cannot be read, or not to its end, or it lacks a column.
    """
    wanted = [column.name for column in encoder.columns]
    of_texts = is_texts(path, encoder)
    names = wanted if of_texts else columns_of(path, separator=separator, encoding=encoding, sheet=sheet)
    try:
        encoder.check_columns(names)
    except DataError as error:
        if is_csv(path):
            check_separator(pd.Index(names), str(path), separator)
        raise DataError(f"{path}: {error.message.removeprefix('data: ')}", hint=error.hint) from error
    try:
        if of_texts or is_json_lines(path):
            yield from (TableChunk(*chunk) for chunk in line_chunks(path, wanted, size, encoding))
            return
        if is_parquet(path):
            yield from _of_parquet(path, wanted, size)
            return
        texts = dict.fromkeys(text_columns(encoder), str)
        if not is_csv(path):
            frame = plain_numbers(_whole(path, sheet=sheet, na_values=na_values, texts=list(texts)))
            for start in range(0, len(frame), size):
                some = frame.iloc[start : start + size].reset_index(drop=True)
                yield TableChunk(some, range(start, start + len(some)))
            return
        options = {"decimal": decimal, "na_values": list(na_values), "dtype": texts, "low_memory": False}
        yield from _of_csv(path, size, separator, encoding, options | {"index_col": False, "engine": "c"})
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error


def text_columns(encoder: ColumnEncoder) -> list[str]:
    """Columns of a CSV file to be read as text.

    One of codes such as 01 and 02 alone would be read as numbers, which in training it was not.

    Args:
        encoder: That has learned.
    """
    categories = [column for column in encoder.columns if column.kind == "category"]
    texts = [column.name for column in encoder.columns if column.kind == "text"]
    return texts + [column.name for column in categories if not set(column.codes) <= _TRUTH]


def is_parquet(path: Path) -> bool:
    """Whether a file is read as Parquet, by its name."""
    return path.name.lower().endswith((".parquet", ".pq"))


def _whole(path: Path, *, sheet: str | None, na_values: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    if path.name.lower().endswith(".xlsx"):
        frame = read_excel(path, str(path), sheet, na_values, texts)
    else:
        frame = pd.read_feather(path)
    return frame.set_axis(frame.columns.map(str), axis=1)


def _of_parquet(path: Path, names: list[str], size: int) -> Iterator[TableChunk]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        start = 0
        for batch in file.iter_batches(batch_size=size, columns=names):
            frame = plain_numbers(batch.to_pandas(ignore_metadata=True))
            yield TableChunk(frame, range(start, start + len(frame)))
            start += len(frame)


def _of_csv(path: Path, size: int, separator: str, encoding: str, options: Any) -> Iterator[TableChunk]:
    records = read_records(path, separator, encoding)
    header, start = next(records), 0
    while some := list(islice(records, size)):
        rows = range(start, start + len(some))
        bad = {
            row: f"line {record.line} has {record.width} values, expected {header.width}"
            if record.width
            else f"line {record.line}: a quote is not closed"
            for row, record in zip(rows, some, strict=True)
            if record.width != header.width
        }
        text = "".join([header.text, *(record.text for record in some if record.width == header.width)])
        frame = pd.read_csv(StringIO(text), sep=separator, **options)
        if len(frame) + len(bad) != len(some):
            raise ValueError(f"rows {start} to {rows[-1]} cannot be told apart (rows count from 0)")
        yield TableChunk(frame, [row for row in rows if row not in bad] if bad else rows, bad)
        start += len(some)


def _unreadable(path: Path, error: Exception) -> DataError:
    what = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{path} cannot be read: {what}", hint="repair or convert it")
