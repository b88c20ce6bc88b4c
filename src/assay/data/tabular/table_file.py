"""Reading a table from a file, as a whole or in chunks, and the dialect of a CSV. Imports no torch."""

from __future__ import annotations

import csv
import json
import lzma
import re
import warnings
import zlib
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from pandas.io.common import get_handle  # type: ignore[import-not-found]  # its stubs lack it

from assay.config.did_you_mean import did_you_mean
from assay.data.source_files import TABLE_FILE, SourcePath, check_path
from assay.data.tabular.column_kind import is_number, plain_numbers
from assay.data.tabular.table_encoder import check_trained_columns
from assay.errors import DataError
from assay.quoting import format_override, pluralize, reads_as_number
from assay.targets.objects import is_placeholder, take_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from assay.data.tabular.table_encoder import Column

    class ColumnEncoder(Protocol):
        """Of a table or of texts."""

        columns: tuple[Column, ...]


AUTO: Final = "auto"
_PARQUET: Final = (".parquet", ".pq")
SEPARATORS: Final = ";\t|,"
"""The comma comes last: texts hold it more often than the others."""
_PLAIN: Final = {"separator": ",", "decimal": "."}
FILE_OPTIONS: Final[dict[str, Any]] = {
    **dict.fromkeys(_PLAIN, AUTO),
    "encoding": "utf-8",
    "na_values": [],
    "sheet": None,
}
"""How files are read, where a source does not say otherwise."""
_LINES: Final = 1000
_MOST: Final = 0.8
"""Of a column of numbers; the others may stand for a missing value."""
_COMMA_NUMBER: Final = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")
_THOUSANDS: Final = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
_POINT_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_GROUPED: Final = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
_FAILURES: Final = (ValueError, LookupError, OSError, EOFError, BadZipFile, zlib.error, lzma.LZMAError)
csv.field_size_limit(1 << 30)  # texts are longer than the 131,072 characters that the module allows


def _count_fields(path: str | Path, options: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The line that each record of a CSV file ends in, and how many fields it has; blank lines are none."""
    separator, spaced = options["separator"], options["separator"] == r"\s+"
    with get_handle(path, "r", encoding=options["encoding"], errors="replace", compression="infer") as opened:
        lines: Iterable[str] = opened.handle
        if spaced:
            lines = (line.replace("\t", " ").strip(" \r\n") for line in lines)
        reader = csv.reader(lines, delimiter=" " if spaced else separator, skipinitialspace=spaced)
        for fields in reader:
            if len(fields) > 1 or "".join(fields).strip():
                yield reader.line_num, len(fields)


def resolve_options(path: str | Path, options: Mapping[str, Any]) -> dict[str, Any]:
    r"""How to read a file: `options`, with what was found in place of `auto`."""
    resolved = dict(options)
    if is_csv(path) and AUTO in (resolved.get("separator"), resolved.get("decimal")):
        encoding = resolved.get("encoding", "utf-8")
        with get_handle(path, "r", encoding=encoding, errors="replace", compression="infer") as opened:
            lines = [line for line in islice(opened.handle, _LINES) if line.strip(" \r\n")]
        if resolved["separator"] == AUTO:
            resolved["separator"] = _find_separator(lines)
        if resolved["decimal"] == AUTO:
            resolved["decimal"] = _find_decimal(lines, resolved["separator"])
    return {**resolved, **{key: default for key, default in _PLAIN.items() if resolved.get(key) == AUTO}}


def is_csv(path: str | Path) -> bool:
    """Whether a file is read as CSV, by its name.

    >>> is_csv("a.csv.gz"), is_csv("a.tsv"), is_csv("a.parquet")
    (True, True, False)
    """
    suffixes = (".parquet", ".pq", ".feather", ".xlsx", ".jsonl", ".ndjson")
    return not is_placeholder(path) and not str(path).lower().endswith(suffixes)


def is_json_lines(path: str | Path) -> bool:
    """Whether each line of a file is a JSON object, by its name."""
    return str(path).lower().endswith((".jsonl", ".ndjson"))


def _rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    if separator == r"\s+":
        return [line.split() for line in lines]
    rows = list(csv.reader(lines, delimiter=separator))
    return rows[:-1] if len(lines) == _LINES and len(rows) > 1 else rows  # the last may be cut off


def _find_separator(lines: Sequence[str]) -> str:
    shares: dict[str, float] = {}
    for separator in SEPARATORS:
        rows = _rows(lines, separator)
        if rows and (width := len(rows[0])) > 1:
            shares[separator] = sum(len(row) == width for row in rows) / len(rows)
    return max(shares, key=lambda separator: shares[separator], default=",")


def _find_decimal(lines: Sequence[str], separator: str) -> str:
    if separator == ",":
        return "."
    header, *rows = _rows(lines, separator) or [[]]
    for index in range(len(header)):
        texts = [text for row in rows if len(row) > index and (text := row[index].strip())]
        commas = [text for text in texts if "," in text]
        numbers = sum(_COMMA_NUMBER.fullmatch(text) is not None for text in texts)
        if commas and not all(map(_THOUSANDS.fullmatch, commas)) and numbers >= _MOST * len(texts):
            return ","
    return "."


def _json_records(path: Path, errors: str) -> Iterator[dict[str, Any]]:
    """Each line's object; blank lines are skipped."""
    with path.open(encoding="utf-8-sig", errors=errors) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise ValueError(f"line {number} is a {type(record).__name__}, not an object")
            yield {str(name): value for name, value in record.items()}


def _text_records(path: Path, column: str, encoding: str) -> Iterator[dict[str, Any]]:
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    with path.open(encoding=encoding, errors="replace") as file:
        yield from ({column: line.rstrip("\n")} for line in file)


def read_table(
    path: str,
    option: str = "path",
    *,
    columns: Sequence[str] | None = None,
    texts: Sequence[str] = (),
    **options: Any,
) -> pd.DataFrame:
    """Read a .csv or .tsv (also compressed), .jsonl, .parquet, .feather or .xlsx file; see `FILE_OPTIONS`."""
    key = f"data.source.{option}={path}"
    check_path(Path(path), SourcePath(option, *TABLE_FILE), f"data.source.{option}")
    options = {**FILE_OPTIONS, **options}
    with _explain_errors(key, options["encoding"]):
        if (held := take_from(path)) is not None:
            frame = held.copy(deep=False)
        else:
            read = _read_csv if is_csv(path) else _read_whole
            frame = read(path, key, resolve_options(path, options), columns, texts)
    if any(name is not None for name in frame.index.names):  # Parquet keeps pandas' index apart
        frame = frame.reset_index()
    frame.columns = frame.columns.map(str)
    if columns is not None:
        frame = frame[[name for name in frame if name in columns]]
    if frame.empty and not frame.columns.empty:
        raise DataError(f"{key} has no rows", hint="give a table with samples")
    _check_unique(frame.columns, key)
    return mark_missing(plain_numbers(frame.reset_index(drop=True)), options["na_values"])


def mark_missing(frame: pd.DataFrame, na_values: Sequence[str]) -> pd.DataFrame:
    """Missing values in place of `na_values` and empty texts, of whatever file: as a CSV file has them."""
    numbers = [float(text) for text in na_values if reads_as_number(text)]
    for name in frame.columns:
        absent = numbers if is_number(frame[name]) else ["", *na_values, *numbers]
        if absent and (missing := frame[name].isin(absent)).any():
            frame[name] = frame[name].mask(missing)
    return frame


@contextmanager
def _explain_errors(key: str, encoding: str = "utf-8") -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(
            f"{key} is not text in {encoding}: {error.reason}",
            hint="save it as UTF-8, or data.source.encoding=cp1252 (of Windows) or utf-16",
        ) from error
    except (*_FAILURES, ImportError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        missing = re.search(r"Import (\w+)", reason) if isinstance(error, ImportError) else None
        hint = f"pip install {missing[1]}, or save it as CSV" if missing else "repair or convert it"
        raise DataError(f"{key} cannot be read: {reason}", hint=hint) from error


def _read_whole(
    path: str | Path,
    key: str,
    options: Mapping[str, Any],
    columns: Sequence[str] | None = None,
    texts: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a file that is not a CSV."""
    name, names = str(path).lower(), None if columns is None else list(columns)
    if name.endswith(".xlsx"):
        return _read_excel(path, key, options, texts)
    if name.endswith(".feather"):
        return pd.read_feather(path, columns=names)
    if not is_json_lines(name):
        return pd.read_parquet(path, columns=names)
    return pd.DataFrame(list(_json_records(Path(path), errors="strict")))


def _read_csv(
    path: str, key: str, options: Mapping[str, Any], columns: Sequence[str] | None, texts: Sequence[str]
) -> pd.DataFrame:
    _check_unique(_header(path, options), key)
    used = None if columns is None else lambda name: str(name) in columns
    with _explain_widths(path, key, options):
        frame: pd.DataFrame = pd.read_csv(path, usecols=used, **_csv_options(options, texts))
    frame = _use_points(_keep_zeros(frame, path, options), options, texts)
    if columns is None:
        _check_quotes(frame, key, options)
        if len(frame) and frame.iloc[:, -1].isna().any():  # fields that are not there are missing values
            _check_widths(path, key, options)
    return frame


def _keep_zeros(frame: pd.DataFrame, path: str, options: Mapping[str, Any]) -> pd.DataFrame:
    """Codes such as 01234 as they are written, which pandas reads as the number 1234."""
    names = [name for name in frame.columns if _are_integers(frame[name])]
    if not names or not _has_leading_zeros(path, options):
        return frame
    forms = _csv_options(options, ()) | {"dtype": str}
    texts = pd.read_csv(path, usecols=lambda name: str(name) in map(str, names), **forms)
    for name in names:
        if texts[name].str.match(r"\s*0\d").any():
            frame[name] = texts[name].str.strip()
    return frame


def _are_integers(column: pd.Series[Any]) -> bool:
    if column.dtype.kind in "iu":
        return True
    return column.dtype.kind == "f" and column.hasnans and bool((column.dropna() % 1 == 0).all())


def _has_leading_zeros(path: str, options: Mapping[str, Any]) -> bool:
    """Whether a field may begin with 0 and another digit."""
    # Searched in bytes with numpy: a regular expression takes as long as pandas does to read the file.
    separator = options["separator"] if len(options["separator"]) == 1 else " "
    before = np.frombuffer(f'\n" {separator}'.encode("latin-1", "replace"), np.uint8)
    last = b""
    with get_handle(path, "rb", is_text=False, compression="infer") as opened:
        while data := opened.handle.read(1 << 20):
            data = last + data.replace(b"\0", b"")  # of UTF-16
            codes = np.frombuffer(data, np.uint8)
            zeros = np.flatnonzero(codes[1:-1] == ord("0"))
            is_digit = codes[zeros + 2] - ord("0") < 10
            if np.isin(codes[zeros[is_digit]], before).any():
                return True
            last = data[-2:]
    return False


def _csv_options(options: Mapping[str, Any], texts: Sequence[str]) -> Any:
    return {
        "sep": options["separator"],
        "decimal": options["decimal"],
        "encoding": options["encoding"],
        "na_values": list(options["na_values"]),
        "dtype": dict.fromkeys(texts, str),
        "index_col": False,  # else a separator at the end of the rows shifts all columns by one
        "low_memory": False,  # else a column's type may differ from block to block
        "engine": "c",
    }


@contextmanager
def _explain_widths(path: str | Path, key: str, options: Mapping[str, Any]) -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            yield
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        _check_widths(path, key, options)
        raise ValueError(str(error)) from error


def _header(path: str | Path, options: Mapping[str, Any]) -> list[str]:
    """Names of the columns, as pandas calls those without one, but none of several renamed."""
    alone: Any = {"header": None, "nrows": 1, "dtype": str, "keep_default_na": False, "engine": "c"}
    separator, encoding = options["separator"], options["encoding"]
    first = pd.read_csv(path, sep=separator, encoding=encoding, encoding_errors="replace", **alone)
    return [str(name) or f"Unnamed: {index}" for index, name in enumerate(first.iloc[0])]


def _read_excel(path: str | Path, key: str, options: Mapping[str, Any], texts: Sequence[str]) -> pd.DataFrame:
    sheet = options["sheet"]
    with warnings.catch_warnings(), pd.ExcelFile(path, engine="openpyxl") as book:
        warnings.simplefilter("ignore", UserWarning)  # of what a sheet has beside its cells
        names = [str(name) for name in book.sheet_names]
        if sheet is None and len(names) > 1:
            message = f"{key} has {len(names)} sheets: {', '.join(names[:10])}"
            raise DataError(message, hint=format_override("data.source.sheet", names[0]))
        cells: Any = {"na_values": list(options["na_values"]), "dtype": dict.fromkeys(texts, str)}
        try:
            frame: pd.DataFrame = pd.read_excel(book, sheet_name=sheet or names[0], **cells)
        except (KeyError, TypeError, SyntaxError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return frame


def _check_unique(names: Any, key: str) -> None:
    twice = pd.Index(names)[pd.Index(names).duplicated()]
    if len(twice) and twice[0]:
        raise DataError(f"{key} has two columns called {twice[0]!r}", hint="rename one of them")


def _check_widths(path: str | Path, key: str, options: Mapping[str, Any]) -> None:
    """Refuse rows that have more or fewer fields than the header."""
    (_, width), *rows = _count_fields(path, options)
    wrong = [(row, line, fields) for row, (line, fields) in enumerate(rows) if fields != width]
    if wrong:
        row, line, fields = wrong[0]
        at_the_end = all(fields == width + 1 for _, fields in rows)
        raise DataError(
            f"{key}: the header has {pluralize(width, 'field')}, and "
            f"{len(wrong):,} of {len(rows):,} rows have "
            f"more or fewer: first row {row} (line {line}; rows count from 0) with {fields}",
            hint="remove the separator at the end of the rows, or set data.source.separator"
            if at_the_end
            else "repair them, or leave them out; perhaps a quote is not closed",
        )


def _check_quotes(frame: pd.DataFrame, key: str, options: Mapping[str, Any]) -> None:
    """Refuse rows that lie in a cell: a quote that is not closed takes in all up to the next quote."""
    numbers = [is_number(frame[name]) for name in frame.columns]
    for position, name in enumerate(frame.columns):
        if numbers[position]:
            continue
        texts = frame[name].dropna().astype(str)
        for row, text in texts[texts.str.contains("\n", regex=False)].items():
            lines = [line.split(options["separator"]) for line in text.splitlines()]
            rows: list[list[str]] = [[""] * position + lines[0], *lines[1:-1]]
            rows.append(lines[-1] + [""] * (len(numbers) - position - 1))
            if any(len(fields) != len(numbers) for fields in rows):
                continue
            values = [
                fields[i] for fields in rows for i, number in enumerate(numbers) if number and fields[i]
            ]
            if values and all(reads_as_number(text.replace(options["decimal"], ".")) for text in values):
                raise DataError(
                    f"{key}: {len(rows) - 1} rows are inside one cell of the column {name!r} in row {row} "
                    "(rows count from 0): a quote is not closed there",
                    hint='close it, double it ("") where it belongs to the text, or remove it',
                )


def is_texts(path: Path, encoder: ColumnEncoder) -> bool:
    """Whether each line of a file is a text."""
    return path.name.lower().endswith(".txt") and encoder.columns[0].kind == "text"


def find_options(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """How a table is read, with what was found in place of `auto`."""
    with _explain_errors(str(path)):
        return resolve_options(path, options)


def columns_of(path: Path, **options: Any) -> list[str]:
    """Names of the columns of a table, of which no more is read where that is possible."""
    options = {**FILE_OPTIONS, **_PLAIN, **options}
    with _explain_errors(str(path)):
        if is_json_lines(path):
            return list(next(_json_records(path, errors="replace"), {}))
        if path.name.lower().endswith(_PARQUET):
            import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

            return [str(name) for name in pq.read_schema(path).names]
        if not is_csv(path):
            return list(map(str, _read_whole(path, str(path), options).columns))
        names = _header(path, options)
        _check_unique(names, str(path))
    return names


def table_chunks(
    path: Path, encoder: ColumnEncoder, size: int, keep: Sequence[str] = (), **options: Any
) -> Iterator[pd.DataFrame]:
    """Read what an encoder needs and columns to `keep`, chunk by chunk; the index numbers the rows."""
    needed, options = [column.name for column in encoder.columns], {**FILE_OPTIONS, **_PLAIN, **options}
    of_texts = is_texts(path, encoder)
    names = needed if of_texts else columns_of(path, **options)
    check_trained_columns(encoder.columns, names, str(path))
    if missing := [name for name in keep if name not in names]:
        raise DataError(f"{path} has no column {missing[0]!r} to keep{did_you_mean(missing[0], names, '; ')}")
    others = [name for name in keep if name not in needed]
    needed, texts = [*needed, *others], [*text_columns(encoder), *others]
    frames: Iterator[pd.DataFrame]
    with _explain_errors(str(path)):
        if of_texts or is_json_lines(path):
            if of_texts:
                records = _text_records(path, needed[0], options["encoding"])
            else:
                records = _json_records(path, "replace")
            chunks = iter(lambda: list(islice(records, size)), [])
            frames = (pd.DataFrame(chunk, columns=needed) for chunk in chunks)
        elif is_csv(path):
            frames = _frames_of_csv(path, options, texts, size)
        elif path.name.lower().endswith(_PARQUET):
            frames = _frames_of_parquet(path, needed, size)
        else:
            whole = _read_whole(path, str(path), options, texts=texts)
            whole = whole.set_axis(whole.columns.map(str), axis=1)
            frames = (whole.iloc[row : row + size] for row in range(0, len(whole), size))
        start = 0
        for frame in frames:
            yield plain_numbers(frame.set_axis(pd.RangeIndex(start, start + len(frame)), axis=0))
            start += len(frame)


def text_columns(encoder: ColumnEncoder) -> list[str]:
    """Columns of a CSV file to be read as text.

    One of codes such as 01 and 02 alone would be read as numbers, which in training it was not.
    """
    texts = [column.name for column in encoder.columns if column.kind == "text"]
    categories = [column for column in encoder.columns if column.kind == "category"]
    return texts + [column.name for column in categories if not set(column.codes) <= {"True", "False"}]


def _frames_of_csv(
    path: Path, options: Mapping[str, Any], texts: Sequence[str], size: int
) -> Iterator[pd.DataFrame]:
    key, is_checked, forms = str(path), False, _csv_options(options, texts)
    with pd.read_csv(path, encoding_errors="replace", chunksize=size, **forms) as reader:
        while True:
            with _explain_widths(path, key, options):
                frame = next(reader, None)
            if frame is None:
                return
            if not is_checked and frame.iloc[:, -1].isna().any():  # as in `_read_csv`
                _check_widths(path, key, options)
                is_checked = True
            yield _use_points(frame, options, texts)


def _use_points(frame: pd.DataFrame, options: Mapping[str, Any], texts: Sequence[str]) -> pd.DataFrame:
    """Numbers with a decimal point beside columns with a comma, unless each may be a thousand's."""
    for name in frame.columns if options["decimal"] == "," else ():
        values = frame[name].dropna()
        if name in texts or is_number(values) or not all(map(_POINT_NUMBER.fullmatch, map(str, values))):
            continue
        if not all(_GROUPED.fullmatch(text) for text in values if "." in text):
            frame[name] = pd.to_numeric(frame[name])
    return frame


def _frames_of_parquet(path: Path, names: list[str], size: int) -> Iterator[pd.DataFrame]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=size, columns=names):
            yield batch.to_pandas(ignore_metadata=True)
