"""Reading a table from a file, and the dialect of a CSV. Imports no torch, so that it can be asked early."""

from __future__ import annotations

import codecs
import csv
import difflib
import json
import lzma
import re
import warnings
import zlib
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zipfile import BadZipFile

import pandas as pd
from pandas.io.common import get_handle  # type: ignore[import-not-found]  # its stubs lack it

from assay.data.source_paths import TABLE_FILE, SourcePath, check_path
from assay.data.tabular.column_kind import is_number, plain_numbers
from assay.errors import DataError
from assay.quoting import counted, override, reads_as_number
from assay.targets.objects import is_place, take_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


AUTO: Final = "auto"
SEPARATORS: Final = ";\t|,"
"""The comma comes last: texts hold it more often than the others."""
_PLAIN: Final = {"separator": ",", "decimal": "."}
_LINES: Final = 1000
_MOST: Final = 0.8
"""Of a column of numbers; the others may stand for a missing value."""
_UNUSED: Final = "\x1f"
"""A sign that stands in no text, so that a line is a single field."""
_COMMA_NUMBER: Final = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")
_THOUSANDS: Final = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
csv.field_size_limit(1 << 30)  # texts are longer than the 131,072 characters that the module allows


class Record(NamedTuple):
    """A header or row of a CSV file."""

    text: str
    line: int
    width: int


def read_records(path: str | Path, separator: str, encoding: str) -> Iterator[Record]:
    """Split a CSV file as pandas does, which passes over blank lines and cannot tell rows from lines."""
    with get_handle(path, "r", encoding=encoding, errors="replace", compression="infer") as opened:
        number, lines = 1, iter(opened.handle)
        for line in lines:
            if not line.strip(" \t\r\n") and not line.startswith(separator):
                number += 1
                continue
            taken, width = [line], 0
            begin = line.lstrip("\ufeff" if number == 1 else "")
            begin = begin if begin.startswith(separator) else begin.lstrip(" \t")  # as pandas does
            if '"' in line:
                width = _quoted_width(begin, lines, taken, separator)
            else:
                width = len(begin.split()) if separator == r"\s+" else begin.count(separator) + 1
            yield Record("".join(taken), number, width)
            number += len(taken)


def _quoted_width(line: str, others: Iterator[str], taken: list[str], separator: str) -> int:
    """Fields of a record with quotes; the lines that it goes on in are added to `taken`."""
    closed = True

    def more() -> Iterator[str]:
        nonlocal closed
        yield line
        for other in others:
            taken.append(other)
            yield other
        closed = False  # asked for a line after the last one

    spaced = separator == r"\s+"
    texts = (text.replace("\t", " ").rstrip(" \r\n") for text in more()) if spaced else more()
    fields = next(csv.reader(texts, delimiter=" " if spaced else separator, skipinitialspace=spaced))
    return len(fields) if closed else 0


def resolved(path: str | Path, options: Mapping[str, Any]) -> dict[str, Any]:
    r"""How to read a file: `options`, with what was found in place of `auto`."""
    found = dict(options)
    if is_csv(path) and AUTO in (found.get("separator"), found.get("decimal")):
        lines = _first_lines(path, found.get("encoding", "utf-8"))
        if found["separator"] == AUTO:
            found["separator"] = _separator(lines)
        if found["decimal"] == AUTO:
            found["decimal"] = _decimal(lines, found["separator"])
    return {**found, **{key: default for key, default in _PLAIN.items() if found.get(key) == AUTO}}


def is_csv(path: str | Path) -> bool:
    """Whether a file is read as CSV, by its name.

    >>> is_csv("a.csv.gz"), is_csv("a.tsv"), is_csv("a.parquet")
    (True, True, False)
    """
    return not is_place(path) and not str(path).lower().endswith(
        (".parquet", ".pq", ".feather", ".xlsx", ".jsonl", ".ndjson")
    )


def _first_lines(path: str | Path, encoding: str) -> list[str]:
    lines = pd.read_csv(
        path,
        sep=_UNUSED,
        header=None,
        names=["line"],
        index_col=False,
        dtype=str,
        quoting=csv.QUOTE_NONE,
        nrows=_LINES,
        keep_default_na=False,
        encoding=encoding,
        encoding_errors="replace",
        on_bad_lines="skip",
    )
    return list(lines["line"])


def _rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    if separator == r"\s+":
        return [line.split() for line in lines]
    rows = list(csv.reader((f"{line}\n" for line in lines), delimiter=separator))
    return rows[:-1] if len(lines) == _LINES and len(rows) > 1 else rows  # the last may be cut off


def _separator(lines: Sequence[str]) -> str:
    shares: dict[str, float] = {}
    for separator in SEPARATORS:
        rows = _rows(lines, separator)
        if rows and (width := len(rows[0])) > 1:
            shares[separator] = sum(len(row) == width for row in rows) / len(rows)
    return max(shares, key=lambda separator: shares[separator], default=",")


def _decimal(lines: Sequence[str], separator: str) -> str:
    rows = _rows(lines, separator)
    if separator == "," or not rows:
        return "."
    columns: list[list[str]] = [[] for _ in rows[0]]
    for row in rows[1:]:
        for column, field in zip(columns, row, strict=False):
            if text := field.strip():
                column.append(text)
    return "," if any(_has_decimal_comma(column) for column in columns) else "."


def _has_decimal_comma(texts: Sequence[str]) -> bool:
    with_comma = [text for text in texts if "," in text]
    return (
        bool(with_comma)
        and not all(_THOUSANDS.fullmatch(text) for text in with_comma)
        and sum(_COMMA_NUMBER.fullmatch(text) is not None for text in texts) >= _MOST * len(texts)
    )


def is_json_lines(path: str | Path) -> bool:
    """Whether each line of a file is a JSON object, by its name."""
    return str(path).lower().endswith((".jsonl", ".ndjson"))


def read_json_lines(path: str, key: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table of the objects of a .jsonl file; a key that an object lacks is a missing value."""
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
    """Columns of a file of lines, chunk by chunk."""
    of_json = is_json_lines(path)
    start, records = 0, _records(path, "replace") if of_json else _texts(path, columns[0], encoding)
    while some := list(islice(records, size)):
        bad = {start + at: error for at, (_, error) in enumerate(some) if error}
        good = [start + at for at, (_, error) in enumerate(some) if not error]
        frame = pd.DataFrame([some[row - start][0] for row in good], columns=list(columns))
        yield frame, good, bad
        start += len(some)


def first_keys(path: Path) -> list[str]:
    """Keys of the first object of a .jsonl file."""
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


_RENAMED = re.compile(r"\.\d+$")


def read_table(  # noqa: PLR0912 - a branch for each kind of file
    path: str,
    option: str = "path",
    *,
    separator: str = AUTO,
    decimal: str = AUTO,
    encoding: str = "utf-8",
    na_values: Sequence[str] = (),
    sheet: str | None = None,
    columns: Sequence[str] | None = None,
    texts: Sequence[str] = (),
) -> pd.DataFrame:
    r"""Read a .csv or .tsv (also compressed), .jsonl, .parquet, .feather or .xlsx file."""
    key = f"data.source.{option}={path}"
    check_path(Path(path), SourcePath(option, *TABLE_FILE), f"data.source.{option}")
    csv = {"separator": separator, "decimal": decimal, "encoding": encoding}
    wanted = None if columns is None else list(columns)
    try:
        csv = resolved(path, csv)
        if (given := take_from(path)) is not None:
            frame = (
                given.copy(deep=False)
                if wanted is None
                else given[[name for name in given if name in wanted]]
            )
        elif is_csv(path):
            frame = _read_csv(path, csv, na_values, wanted, texts)
        elif is_json_lines(path):
            frame = read_json_lines(path, key, wanted)
        elif path.lower().endswith(".xlsx"):
            frame = read_excel(path, key, sheet, na_values, texts)
            frame = frame if wanted is None else frame[[name for name in frame if name in wanted]]
        elif path.lower().endswith(".feather"):
            frame = pd.read_feather(path, columns=wanted)
        else:
            frame = pd.read_parquet(path, columns=wanted)
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        header: Any = {"sep": csv["separator"], "encoding": encoding, "encoding_errors": "replace"}
        check_separator(pd.read_csv(path, **header, nrows=0, index_col=False).columns, key, csv["separator"])
        _check_widths(path, key, csv)
        what = " ".join(str(error).split())
        raise DataError(f"{key} cannot be read: {what}", hint="repair or convert it") from error
    except UnicodeDecodeError as error:
        name = {"utf-8": "UTF-8"}.get(encoding, encoding)
        other = "utf-16" if _begins_as_utf_16(path) else "latin-1" if encoding == "utf-8" else "utf-8"
        raise DataError(
            f"{key} is not text in {name}: {error.reason}",
            hint=f"save it as UTF-8, or data.source.encoding={other}",
        ) from error
    except (ValueError, OSError, EOFError, BadZipFile, zlib.error, lzma.LZMAError, ImportError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{key} cannot be read: {what}", hint="repair or convert it") from error
    if any(name is not None for name in frame.index.names):  # Parquet keeps pandas' index apart
        frame = frame.reset_index()
    if is_csv(path):
        check_names(path, key, csv["separator"], list(map(str, frame.columns)), encoding)
    frame.columns = frame.columns.map(str)
    _check_header(frame, key, csv["separator"] if is_csv(path) else "")
    if is_csv(path) and columns is None:
        _check_quotes(frame, key, csv["separator"], csv["decimal"])
        if frame.iloc[:, -1].isna().any():  # pandas takes fields that are not there for missing values
            _check_widths(path, key, csv)
    return plain_numbers(frame.reset_index(drop=True))


def _begins_as_utf_16(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def check_columns(frame: pd.DataFrame, names: Sequence[str], path: str, option: str) -> None:
    """Refuse names of columns that a table does not have."""
    known = list(frame.columns)
    for name in names:
        if name not in known:
            guess = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {guess[0]!r}?" if guess else ""
            more = ", …" if len(known) > 20 else ""
            key = option if option.startswith("data.") else f"data.source.{option}"
            raise DataError(
                f"{key}: {path} has no column {name!r}{meant}",
                hint=f"columns: {', '.join(known[:20])}{more}",
            )


def _read_csv(
    path: str,
    csv: Mapping[str, str],
    na_values: Sequence[str],
    columns: Sequence[str] | None,
    texts: Sequence[str],
) -> pd.DataFrame:
    wanted = None if columns is None else lambda name: str(name) in columns
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            path,
            sep=csv["separator"],
            decimal=csv["decimal"],
            encoding=csv["encoding"],
            na_values=list(na_values),
            dtype=dict.fromkeys(texts, str),
            usecols=wanted,
            index_col=False,  # else a separator at the end of the rows shifts all columns by one
            low_memory=False,  # else a column's type may differ from block to block
            engine="c",
        )


def read_excel(
    path: str | Path, key: str, sheet: str | None, na_values: Sequence[str], texts: Sequence[str]
) -> pd.DataFrame:
    """Read a sheet of an Excel file."""
    with warnings.catch_warnings(), pd.ExcelFile(path, engine="openpyxl") as book:
        warnings.simplefilter("ignore", UserWarning)  # of what a sheet has beside its cells
        names = [str(name) for name in book.sheet_names]
        if sheet is None and len(names) > 1:
            raise DataError(
                f"{key} has {len(names)} sheets: {', '.join(names[:10])}",
                hint=override("data.source.sheet", names[0]),
            )
        if sheet is not None and sheet not in names:
            raise DataError(
                f"data.source.sheet={sheet}: {path} has no such sheet",
                hint=f"its sheets: {', '.join(names[:10])}",
            )
        options: Any = {"na_values": list(na_values), "dtype": dict.fromkeys(texts, str)}
        try:
            frame: pd.DataFrame = pd.read_excel(book, sheet_name=sheet or names[0], **options)
            header = pd.read_excel(book, sheet_name=sheet or names[0], header=None, nrows=1, dtype=str)
        except (KeyError, TypeError, SyntaxError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        _check_twice(header, key)
        return frame


def _check_twice(header: pd.DataFrame, key: str) -> None:
    written = [str(name) for row in header.to_numpy()[:1] for name in row if not pd.isna(name)]
    if twice := [name for name in written if name and written.count(name) > 1]:
        raise DataError(f"{key} has two columns called {twice[0]!r}", hint="rename one of them")


def _check_header(frame: pd.DataFrame, key: str, separator: str) -> None:
    if frame.empty and not frame.columns.empty:
        raise DataError(f"{key} has no rows", hint="give a table with samples")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"{key} has two columns called {twice[0]!r}", hint="rename one of them")
    if frame.shape[1] == 1 and separator:
        check_separator(frame.columns, key, separator)


def check_names(
    path: str | Path, where: str, separator: str, names: Sequence[str], encoding: str = "utf-8"
) -> None:
    """Refuse a CSV file that has two columns of one name: pandas calls the second of them `name.1`."""
    if not any(_RENAMED.sub("", name) in names for name in names if _RENAMED.search(name)):
        return
    options: Any = {"sep": separator, "nrows": 1, "header": None, "index_col": False, "dtype": str}
    options |= {"keep_default_na": False, "encoding": encoding, "encoding_errors": "replace"}
    _check_twice(pd.read_csv(path, **options), where)


def check_separator(names: pd.Index[str], key: str, separator: str) -> None:
    """Refuse a header in which another sign stands more often than what it was split by."""
    for sign in SEPARATORS:
        if sign != separator and sum(str(name).count(sign) for name in names) >= len(names):
            raise DataError(
                f"{key} looks separated by {sign!r}, not by {separator!r}",
                hint=override("data.source.separator", sign),
            )


def _check_widths(path: str, key: str, csv: Mapping[str, str]) -> None:
    """Refuse rows that have more or fewer fields than the header."""
    header, *rows = read_records(path, csv["separator"], csv["encoding"])
    wrong = [(row, record) for row, record in enumerate(rows) if record.width != header.width]
    if wrong:
        row, first = wrong[0]
        at_the_end = all(record.width == header.width + 1 for record in rows)
        raise DataError(
            f"{key}: the header has {counted(header.width, 'field')}, and {len(wrong):,} of {len(rows):,} "
            f"rows have more or fewer: first row {row} (line {first.line}; rows count from 0) with "
            f"{first.width or 'a quote that is not closed'}",
            hint="remove the separator at the end of the rows, or set data.source.separator"
            if at_the_end
            else "repair them, or leave them out",
        )


def _check_quotes(frame: pd.DataFrame, key: str, separator: str, decimal: str) -> None:
    """Refuse rows that lie in a cell: a quote that is not closed takes in all up to the next quote."""
    numbers = [is_number(frame[name]) for name in frame.columns]
    for position, name in enumerate(frame.columns):
        if numbers[position]:
            continue
        texts = frame[name].dropna().astype(str)
        for row, text in texts[texts.str.contains("\n", regex=False)].items():
            lines = [line.split(separator) for line in text.splitlines()]
            rows: list[list[str]] = [[""] * position + lines[0], *lines[1:-1]]
            rows.append(lines[-1] + [""] * (len(numbers) - position - 1))
            if any(len(one) != len(numbers) for one in rows):
                continue
            fields = [one[at] for one in rows for at, number in enumerate(numbers) if number]
            found = [field for field in fields if field]
            if found and all(reads_as_number(field.replace(decimal, ".")) for field in found):
                raise DataError(
                    f"{key}: {len(rows) - 1} rows lie within a cell of the column {name!r} in row {row} "
                    "(rows count from 0): a quote is not closed there",
                    hint='close it, double it ("") where it belongs to the text, or remove it',
                )
