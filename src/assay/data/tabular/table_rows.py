"""Rows of a new table, in chunks: one that cannot be read or encoded is told and ends nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd

from assay.data.tabular import column_kind
from assay.data.tabular.column_kind import is_number, plain_numbers
from assay.data.tabular.table_encoder import category_texts, distinct_texts
from assay.data.tabular.table_file import (
    check_names,
    check_separator,
    first_keys,
    is_csv,
    is_json_lines,
    line_chunks,
    read_excel,
    read_records,
    resolved,
)
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from assay.data.tabular.table_encoder import Column, ColumnEncoder


_TRUTH = {"True", "False"}


@final
@dataclass(frozen=True)
class TableChunk:
    """Some rows of a table."""

    frame: pd.DataFrame
    rows: Sequence[int]
    bad: dict[int, str] = field(default_factory=dict)


def is_texts(path: Path, encoder: ColumnEncoder) -> bool:
    """Whether each line of a file is a text."""
    return path.name.lower().endswith(".txt") and encoder.columns[0].kind == "text"


def found_options(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """How a table is read, with what was found in place of `auto`."""
    try:
        return resolved(path, options)
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, error) from error


def columns_of(path: Path, *, separator: str = ",", encoding: str = "utf-8", **others: Any) -> list[str]:
    """Names of the columns of a table, of which no more is read where that is possible."""
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
    r"""Read a table chunk by chunk: the columns that an encoder needs, in the types that it needs."""
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


_LARGEST = float(np.finfo(np.float32).max)
_TRUTH_VALUES = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
_SHOWN = 40


@final
@dataclass(frozen=True)
class JudgedRows:
    """A table whose every row is judged."""

    frame: pd.DataFrame
    errors: dict[int, str] = field(default_factory=dict)
    warnings: dict[int, str] = field(default_factory=dict)


def judge_rows(frame: pd.DataFrame, columns: Sequence[Column], *, decimal: str = ".") -> JudgedRows:
    """Tell the rows that an encoder takes from those that it would refuse."""
    judged = JudgedRows(pd.DataFrame(index=range(len(frame))))
    for learned in columns:
        column = frame[learned.name].reset_index(drop=True)
        if learned.kind == "text":
            values, missing = column, blank_texts(column)
            foreign = ~missing & column.astype(str).str.contains("\ufffd", regex=False).to_numpy(dtype=bool)
            _note(
                judged.warnings,
                foreign,
                column,
                "is {}, which is not all text in UTF-8 (--encoding names another)",
            )
        elif learned.kind in ("category", "words"):
            values, missing = column, column.isna().to_numpy()
            if learned.kind == "category":
                _judge_categories(judged, learned, column)
        else:
            of_date = learned.kind == "date"
            values, bad = _dates(column, learned.form) if of_date else _numbers(column, decimal)
            what = f"a date such as {_example(learned.form)}" if of_date else "a number"
            _note(judged.errors, bad, column, f"is {{}}, not {what}")
            missing = values.isna().to_numpy() & ~bad
            far = learned.far_off(values)
            if learned.kind == "number":
                numbers = values.to_numpy()
                large = (np.abs(numbers) > _LARGEST) & (np.isfinite(numbers) | (learned.fill is None))
                _note(judged.errors, large, column, "is {}, which is too large")
                missing, far = missing | (np.isinf(numbers) & ~large), far & ~large
            _note(
                judged.warnings, far, column, f"is {{}}, far outside the training range, {learned.span_text}"
            )
        if learned.fill is None:
            what = "text" if learned.kind == "text" else "value"
            _note(judged.errors, missing, column, f"has no {what}")
        elif not learned.gaps:
            filled = "has no value, which each training row has: it is filled in"
            _note(judged.warnings, missing, column, filled)
        judged.frame[learned.name] = values
    return judged


def blank_texts(texts: pd.Series[Any]) -> NDArray[np.bool_]:
    """Which texts are missing, or are nothing but white space."""
    blank: NDArray[np.bool_] = (texts.isna() | ~texts.astype(str).str.contains(r"\S")).to_numpy(dtype=bool)
    return blank


def _judge_categories(judged: JudgedRows, learned: Column, column: pd.Series[Any]) -> None:
    places, distinct = distinct_texts(column)
    unknown = np.array([*(text not in learned.codes for text in distinct), False])[places]
    if not unknown.any():
        return
    texts = category_texts(column).reindex(column.index, fill_value="")
    foreign = unknown & texts.str.contains("\ufffd", regex=False).to_numpy()
    _note(judged.errors, foreign, column, "is {}, which is not text in UTF-8 (--encoding names another)")
    lines = unknown & texts.str.contains("\n", regex=False).to_numpy()
    _note(judged.errors, lines, column, "is {}: is a quote not closed there?")
    counts = "with the rarest ones" if learned.other is not None else "as none of the known ones"
    odd = unknown & ~foreign & ~lines
    _note(judged.warnings, odd, column, f"is {{}}, which no training row has: it counts {counts}")


def _note(noted: dict[int, str], wrong: NDArray[np.bool_], column: pd.Series[Any], sentence: str) -> None:
    for row in np.flatnonzero(wrong):
        message = f"{column.name!r} {sentence.format(repr(str(column.iloc[row])[:_SHOWN]))}"
        noted[int(row)] = f"{noted[int(row)]}; {message}" if int(row) in noted else message


def _numbers(column: pd.Series[Any], decimal: str) -> tuple[pd.Series[float], NDArray[np.bool_]]:
    if is_number(column):
        values = pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        return values, np.zeros(len(column), dtype=bool)
    if column.dtype.kind in "mM" or isinstance(column.dtype, pd.PeriodDtype):
        return pd.Series(np.full(len(column), np.nan)), column.notna().to_numpy()
    texts = column.astype(object).where(column.notna(), None)
    as_text = texts.map(lambda value: _with_point(str(value).strip(), decimal), na_action="ignore")
    values = pd.to_numeric(as_text, errors="coerce").astype(np.float64)
    if values.isna().all():  # a column of yes and no in which another text stands, too
        values = as_text.map(_TRUTH_VALUES).astype(np.float64)
    return values, (texts.notna() & values.isna()).to_numpy()


def _dates(column: pd.Series[Any], form: str) -> tuple[pd.Series[Any], NDArray[np.bool_]]:
    numeric = form in ("s", "ms", "%Y%m%d")
    # Numbers among texts are no dates, though 20240105 reads as one.
    numbers = column.map(lambda value: isinstance(value, int | float), na_action="ignore").eq(True)
    values = column_kind.as_dates(
        column if numeric or column.dtype.kind == "M" else column.mask(numbers), form
    )
    return values, (column.notna() & values.isna()).to_numpy()


def _example(form: str) -> str:
    last = datetime(2024, 12, 31, tzinfo=UTC)
    if form in ("s", "ms"):
        return str(int(last.timestamp()) * (1000 if form == "ms" else 1))
    return "2024-12-31" if form == column_kind.ISO else last.strftime(form)


def _with_point(text: str, decimal: str) -> str:
    """A number as pandas reads it; 1.234 is none where the decimal point is a comma."""
    return text if decimal == "." else text.replace(".", "?").replace(decimal, ".")
