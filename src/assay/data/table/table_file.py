"""Reading a table from a file, whole or in chunks: dialect, dtypes, missing values. Imports no torch."""

from __future__ import annotations

import csv
import json
import lzma
import re
import warnings
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype, pandas_dtype
from pandas.io.common import get_handle  # type: ignore[import-not-found]  # its stubs lack it

from assay.config.did_you_mean import did_you_mean
from assay.data.core.source_files import TABLE_FILE, SourcePath, check_path
from assay.data.table.category import as_integers, category_texts
from assay.data.table.column import (
    MISSING_WORDS,
    are_words,
    check_trained_columns,
    is_absent,
    is_category,
    is_nested,
    is_number,
    is_text,
)
from assay.data.table.column_kind import kind_of
from assay.data.table.number import TRUTH_VALUES, use_decimal_point
from assay.data.table.table_targets import task_of_columns
from assay.errors import DataError
from assay.files.read_once import keep
from assay.quoting import format_override, join_first, pluralize, reads_as_number
from assay.targets.objects import is_placeholder, take_from
from assay.task.task_of import TASKS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from assay.data.core.types import Frame, Options, Size, Strings, Values
    from assay.data.table.column import Column

    class ColumnEncoder(Protocol):
        """Of a table or of texts."""

        columns: tuple[Column, ...]


AUTO: Final = "auto"
_ARROW = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather"}
SEPARATORS = ";\t|,"
"""The comma comes last: texts hold it more often than the others."""
PLAIN = {"separator": ",", "decimal": "."}
FILE_OPTIONS: dict[str, Any] = {
    **dict.fromkeys(PLAIN, AUTO),
    "encoding": "utf-8",
    "na_values": AUTO,
    "sheet": None,
    "header": AUTO,
    "skip_rows": 0,
}
"""How files are read, where a source does not say otherwise."""
_LINES = 1000
_MOST = 0.8
"""Of a column of numbers; the others may stand for a missing value."""
_COMMA_NUMBER = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
_LARGE = 2**53
"""From here on floats are not each integer."""
_CODE = r"\s*0\d+\s*$"
_FAILURES = (ValueError, LookupError, OSError, EOFError, BadZipFile, zlib.error, lzma.LZMAError)
# texts are longer than the 131,072 characters that the module allows
csv.field_size_limit(1 << 30)


@contextmanager
def _open_lines(path: str | Path, options: Options) -> Iterator[Iterator[str]]:
    """The lines of a CSV file below those that are skipped."""
    with get_handle(
        path, "r", encoding=options["encoding"], errors="replace", compression="infer"
    ) as opened:
        yield islice(opened.handle, options["skip_rows"], None)


def _count_fields(path: str | Path, options: Options) -> Iterator[Size]:
    """The line that each record of a CSV file ends in, and how many fields it has; blank lines are none."""
    separator = options["separator"]
    spaced = separator == r"\s+"
    with _open_lines(path, options) as below:
        lines: Iterator[str] = below
        if spaced:
            separator = " "
            lines = (line.replace("\t", " ").strip(" \r\n") for line in below)
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=spaced)
        for fields in reader:
            if len(fields) > 1 or "".join(fields).strip():
                yield options["skip_rows"] + reader.line_num, len(fields)


def resolve_options(path: str | Path, options: Options) -> dict[str, Any]:
    r"""How to read a file: `options`, with what was found in place of `auto`."""
    resolved = {**FILE_OPTIONS, **options}
    if is_csv(path) and AUTO in (resolved["separator"], resolved["decimal"]):
        with _open_lines(path, resolved) as below:
            lines = [line for line in islice(below, _LINES) if line.strip(" \r\n")]
        if resolved["separator"] == AUTO:
            resolved["separator"] = _find_separator(lines)
        if resolved["decimal"] == AUTO:
            resolved["decimal"] = _find_decimal(lines, resolved["separator"])
    return {
        **resolved,
        **{key: default for key, default in PLAIN.items() if resolved[key] == AUTO},
    }


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


def _rows(lines: Strings, separator: str) -> list[list[str]]:
    if separator == r"\s+":
        return [line.split() for line in lines]
    rows = list(csv.reader(lines, delimiter=separator))
    # the last may be cut off
    if len(lines) == _LINES and len(rows) > 1:
        return rows[:-1]
    return rows


def _find_separator(lines: Strings) -> str:
    shares: dict[str, float] = {}
    below_title: dict[str, float] = {}
    for separator in SEPARATORS:
        widths = [*map(len, _rows(lines, separator))] or [0]
        usual, number = Counter(widths).most_common(1)[0]
        if widths[0] > 1:
            shares[separator] = widths.count(widths[0]) / len(widths)
        elif usual > 1 and number >= _MOST * len(widths):
            below_title[separator] = number / len(widths)
    shares = shares or below_title
    return max(shares, key=shares.__getitem__, default=",")


def _find_decimal(lines: Strings, separator: str) -> str:
    if separator == ",":
        return "."
    for column in zip_longest(*_rows(lines, separator)[1:], fillvalue=""):
        texts = [text.strip() for text in column if text.strip()]
        commas = [text for text in texts if "," in text]
        numbers = sum(_COMMA_NUMBER.fullmatch(text) is not None for text in texts)
        if (
            commas
            and not all(map(_THOUSANDS.fullmatch, commas))
            and numbers >= _MOST * len(texts)
        ):
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
                if "\\ud" in line or "\\uD" in line:  # half of a pair is no text
                    text = json.dumps(record, ensure_ascii=False)
                    record = json.loads(text.encode(errors="surrogatepass").decode(errors=errors))
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
    columns: Strings | None = None,
    texts: Strings = (),
    known: Mapping[str, Collection[str]] | None = None,
    notes: list[str] | None = None,
    **options: Any,
) -> Frame:
    """Read a .csv or .tsv (also compressed), .jsonl, .parquet, .feather or .xlsx file; see `FILE_OPTIONS`.

    Equal values have equal dtypes, whatever the file, see `settle`. Sentences on words that may stand for a
    missing value are added to `notes`; those of `known` columns were learned from other rows.
    """
    key = f"data.source.{option}={path}"
    check_path(Path(path), SourcePath(option, *TABLE_FILE), f"data.source.{option}")
    options = {**FILE_OPTIONS, **options}
    if (na_values := options["na_values"]) != AUTO:
        options["na_values"] = as_names(na_values)
    with _explain_errors(key, options["encoding"]):
        if (held := take_from(path)) is not None:
            frame = held.copy(deep=False)
        else:
            options = resolve_options(path, options)
            frame = _read_kept(path, key, options, columns, texts)
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    frame.columns = frame.columns.map(str)
    _check_unique(frame.columns, key)
    if frame.empty and not frame.columns.empty:
        raise DataError(f"{key} has no rows", hint="give a table with samples")
    if columns is not None:
        frame = frame[[name for name in frame if name in columns]]
    decimal = options["decimal"] if is_csv(path) else None
    raw = frame.reset_index(drop=True)
    frame = settle(raw, options["na_values"])
    if columns is None and held is None:
        _check_header(path, frame, key, options)
    words, is_marked = _find_words(raw, frame, decimal, texts, known or {})
    if words and columns is not None:  # what a word means is told by the other columns as well
        return read_table(path, option, texts=texts, notes=notes, **options)[list(frame.columns)]
    sentences = _take_words(frame, words, is_marked, options["na_values"])
    integers = [name for name in frame if frame[name].dtype.kind in "iu"]
    rounded = [str(name) for name in integers if (frame[name] >= 10**15).any()]
    if rounded and str(path).lower().endswith(".xlsx"):
        sentences.append(
            f"Excel keeps 15 digits of a number; integers that may be rounded: {join_first(rounded)}"
        )
    if notes is not None:
        notes += [f"{path}: {sentence}" for sentence in sentences]
    return frame


def as_names(value: Any) -> list[str]:
    """One name or several as a list of texts."""
    if isinstance(value, str | int | float):
        names = [value]
    else:
        names = list(value or ())
    return [str(name) for name in names]


def _read_kept(
    path: str, key: str, options: Options, columns: Strings | None, texts: Strings
) -> Frame:
    file = Path(path)
    size = file.stat().st_size
    try:
        frame: Frame = keep(
            file,
            repr((options, list(texts))),
            lambda: _read_whole(path, key, options, None, texts),
            lambda: _read_whole(path, key, options, columns, texts),
        )
    finally:
        if file.stat().st_size != size:
            message = f"{key} was written to while it was read"
            raise DataError(message, hint="train on a copy of it")
    return frame.copy(deep=False)


def settle(frame: Frame, na_values: str | Strings | None = None) -> Frame:
    """Bring columns to the dtypes that follow from their values, without typed `na_values` and blank texts.

    Numbers are numpy's, or Int64, UInt64 and boolean beside gaps; texts, dates and durations pandas' own.
    Integers that floats of 64 bits would merge become texts.
    Categories of numbers keep their dtype, as texts; lists, mappings and bytes stay objects.
    """
    texts = []
    if na_values is not None:
        texts = ["", *(() if na_values == AUTO else na_values)]
    numbers = [float(text) for text in texts if reads_as_number(text)]
    columns: dict[Any, Values] = {}
    for name, raw in frame.items():
        if raw.dtype == object:
            column = raw
        else:
            column = _settle(raw)
        absent = numbers if is_number(column) else [*texts, *numbers]
        if absent and not is_nested(column) and (missing := is_absent(column, absent)).any():
            column = column.mask(missing)
        if raw.dtype == object:
            column = _settle(column)
        if column.dtype.kind == "M" and len(texts) > 1:
            column = column.mask(column.isin(_as_dates(texts, column.dt.tz)))
        columns[name] = column
    return pd.DataFrame(columns, index=frame.index, copy=False)


def _as_dates(texts: Strings, zone: Any) -> Values:
    """Those texts that are dates."""
    dates = pd.Series(texts, dtype=object)
    is_zoned = zone is not None
    return pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=is_zoned).dropna()


def _settle(column: Values) -> Values:
    import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        column = pd.Series(np.asarray(column), column.index, name=column.name)
    elif isinstance(dtype, pd.ArrowDtype) or (
        not isinstance(dtype, np.dtype) and dtype.kind in "biuf"
    ):
        plain = _from_arrow(pa.chunked_array([pa.array(column.array)]))
        column = pd.Series(plain.array, column.index, name=column.name)
    if is_category(column):
        categories = _settle(column.cat.categories.to_series())
        if categories.dtype.kind in "mM":
            return column.astype(categories.dtype)
        column = column.cat.rename_categories(category_texts(categories).astype(str).tolist())
        if is_number(categories):
            return column
    if is_category(column) or is_text(column):
        return _as_texts(column)
    if column.dtype == object:
        return _settle_objects(column)
    if column.dtype.kind in "iu" and (column >= _LARGE).any():
        values = column.dropna()
        if values.astype(np.float64).nunique() < values.nunique():
            return _as_texts(category_texts(column))
    return column


def _settle_objects(column: Values) -> Values:
    values = column.dropna()
    kind = infer_dtype(values)
    if kind in ("empty", "floating", "mixed-integer-float", "decimal"):
        return column.astype(np.float64)
    if kind == "integer":
        for dtype in ("Int64", "UInt64"):
            with suppress(OverflowError, TypeError, ValueError):
                return _settle(values.astype(dtype).reindex(column.index))
    elif kind == "boolean":
        return _settle(values.astype("boolean").reindex(column.index))
    elif kind in ("datetime", "datetime64", "date", "timedelta", "timedelta64"):
        convert: Any = pd.to_datetime
        if "delta" in kind:
            convert = pd.to_timedelta
        with suppress(ValueError):  # of zones that differ
            return column.where(column.notna(), None).pipe(convert)
    elif kind not in ("string", "time") and (not kind.startswith("mixed") or is_nested(values)):
        return column
    return _as_texts(category_texts(column))


def _as_texts(column: Values) -> Values:
    if column.isna().any():
        return column.dropna().astype(str).reindex(column.index)
    return column.astype(str)


def from_arrow(table: Any, plain: Strings = ()) -> Frame:
    """A table of pyarrow's, to be settled; what pandas kept as a category is one, except `plain` columns."""
    about = json.loads((table.schema.metadata or {}).get(b"pandas", "{}"))
    kinds = {str(entry["name"]): entry["pandas_type"] for entry in about.get("columns", ())}
    index = [name for name in about.get("index_columns", ()) if name in table.column_names]
    columns = {}
    for name in dict.fromkeys([*index, *table.column_names]):
        if name not in index or not name.startswith("__index_level_"):
            column = _from_arrow(table.column(name))
            is_coded = kinds.get(name) == "categorical" and name not in plain
            if is_coded:
                columns[name] = column.astype("category")
            else:
                columns[name] = column
    return pd.DataFrame(columns, index=range(table.num_rows))


def _from_arrow(column: Any) -> Values:
    """A column of pyarrow's, in which integers stay exact beside gaps."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_decimal(kind):
        if kind.scale <= 0 and kind.precision <= 18:
            whole = pa.int64()
        else:
            whole = pa.float64()
        return _from_arrow(column.cast(whole))
    if column.null_count and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        name = {"bool": "boolean"}.get(
            str(kind), str(kind).replace("u", "U").replace("int", "Int")
        )
        nullable: Values = column.to_pandas(types_mapper=lambda _: pandas_dtype(name))
        return nullable
    settled: Values = column.to_pandas(date_as_object=False)
    return settled


def parse_texts(texts: Values, decimal: str) -> Values:
    """Numbers, or yes and no, where a CSV file of these texts alone holds such; else the texts."""
    present = texts.dropna()
    if present.empty or present.str.match(_CODE).any():
        return texts
    if present.isin(list(TRUTH_VALUES)).all():
        return _settle(texts.map(TRUTH_VALUES).astype("boolean"))
    points = texts.map(lambda text: use_decimal_point(text, decimal), na_action="ignore")
    with suppress(ValueError):
        return _settle(pd.to_numeric(points, dtype_backend="numpy_nullable"))
    return texts


def _find_words(
    raw: Frame,
    frame: Frame,
    decimal: str | None,
    texts: Strings,
    known: Mapping[str, Collection[str]],
) -> tuple[dict[str, Values], set[str]]:
    """The words for missing values in each column, and the columns that hold numbers or dates beside them.

    Of these columns the words are removed from `frame`.
    """
    words: dict[str, Values] = {}
    numeric = set[str]()
    for name, column in frame.items():
        if not is_text(column):
            continue
        if name in known:
            frame[name] = column.mask(are_words(column, known[str(name)]))
            continue
        found = are_words(column, MISSING_WORDS)
        if found.any():
            words[str(name)] = column[found]
        elif column.isna().sum() == raw[name].isna().sum():
            continue  # nor are there blank cells
        rest = parsed = column.mask(found)
        if decimal is not None:
            parsed = parse_texts(rest, decimal)
        elif (
            raw[name].dtype == object
        ):  # of an Excel or JSON file, or of Python: numbers beside words
            parsed = _settle_objects(raw[name].mask(rest.isna()))
        if is_number(parsed) or kind_of(rest)[0] not in ("category", "id", "text"):
            if str(name) in words:
                numeric.add(str(name))
            if name in texts:
                frame[name] = rest
            else:
                frame[name] = parsed
    return words, numeric


def _take_words(
    frame: Frame,
    words: Mapping[str, Values],
    numeric: set[str],
    na_values: str | Strings,
) -> list[str]:
    """Remove words from columns of text where those of numbers have them as well; sentences on all of them.

    A program writes one word for what is missing, in all columns. In columns of text alone it may be a value:
    the code of Namibia, or None for no disorder.
    """
    marks = set[str]()
    possible: list[str] = []
    if na_values == AUTO:
        marks = {word for name in numeric for word in words[name]}
    else:
        possible = list(na_values)
    removed = list[str]()
    values = list[str]()
    keep = ""
    for name, found in words.items():
        for word, number in found.value_counts().items():
            counted = f"{name} ({word!r}, {pluralize(number, 'row')})"
            if name in numeric or word in marks:
                removed.append(counted)
            else:
                values.append(counted)
                possible.append(str(word))
        if name not in numeric and found.isin(marks).any():
            frame[name] = frame[name].mask(frame[name].isin(marks))
            keep = "; where the columns of text mean them as values: 'data.source.na_values=[]'"
    sentences = []
    if removed:
        sentences.append(f"read as missing: {join_first(removed)}{keep}")
    if values:
        hint = format_override("data.source.na_values", [*dict.fromkeys(possible)])
        sentences.append(
            f"read as a value, not as missing: {join_first(values)}; if it means missing: {hint}"
        )
    return sentences


def prepare_rows(frame: Frame, columns: Sequence[Column], na_values: str | Strings) -> Frame:
    """Rows for an encoder that has learned: dtypes, words and categories as those of its training rows."""
    frame = settle(frame[[column.name for column in columns]], na_values)
    for learned in columns:
        column = frame[learned.name]
        if is_nested(column) or is_category(column):
            frame[learned.name] = _as_texts(column)
        elif is_text(column) and learned.has_integers:
            frame[learned.name] = as_integers(column)
    return frame


@contextmanager
def _explain_errors(key: str, encoding: str = "utf-8") -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        option = "--encoding "
        if key.startswith("data."):
            option = "data.source.encoding="
        raise DataError(
            f"{key} is not text in {encoding}: {error.reason}",
            hint=f"save it as UTF-8, or {option}cp1252 (of Windows), or {option}utf-16",
        ) from error
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{key} is empty", hint="give a table with samples") from error
    except (*_FAILURES, ImportError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "repair or convert it"
        if isinstance(error, ImportError) and (missing := re.search(r"Import (\w+)", reason)):
            hint = f"pip install {missing[1]}, or save it as CSV"
        raise DataError(f"{key} cannot be read: {reason}", hint=hint) from error


def _read_whole(
    path: str | Path,
    key: str,
    options: Options,
    columns: Strings | None = None,
    texts: Strings = (),
) -> Frame:
    """Read a file; some `columns`, where that saves time, and `texts` as they are written."""
    name = str(path).lower()
    if is_csv(path):
        return _read_csv(path, key, options, columns, texts)
    if name.endswith(".xlsx"):
        return _read_excel(path, key, options)
    if is_json_lines(name):
        return pd.DataFrame(list(_json_records(Path(path), errors="strict")), dtype=object)
    data = _open_arrow(path)
    names = columns and [name for name in data.schema.names if name in columns]
    return from_arrow(data.to_table(columns=names))


def _open_arrow(path: str | Path) -> Any:
    """A Parquet or Feather file."""
    import pyarrow.dataset as ds  # type: ignore[import-untyped]  # pyarrow ships no types

    file_format: Any = _ARROW[Path(path).suffix.lower()]
    if file_format == "parquet":
        # A row group may be the whole file, which is not held a second time before it is decoded.
        file_format = ds.ParquetFileFormat(pre_buffer=False)
    try:
        return ds.dataset(str(path), format=file_format)
    except (ValueError, OSError) as error:  # which names the file several times
        raise ValueError(str(error).rpartition("': ")[2]) from error


def _read_csv(
    path: str | Path, key: str, options: Options, columns: Strings | None, texts: Strings
) -> Frame:
    used = None if columns is None else lambda name: str(name) in columns
    forms = {**_csv_options(path, key, options, texts), "usecols": used}
    with _explain_widths(path, key, options):
        frame: Frame = pd.read_csv(path, **forms)
    _read_integers(frame, path, forms)
    # so pandas reads missing fields
    if columns is None and len(frame) and frame.iloc[:, -1].isna().any():
        _check_widths(path, key, options)
    return frame


def _read_integers(frame: Frame, path: str | Path, forms: Options) -> None:
    """Codes such as 01234, and large integers beside a gap, as they are written."""
    rounded = []
    integers = []
    for name, column in frame.items():
        kind = column.dtype.kind
        # pandas reads large integers beside a gap as floats, or as texts beside empty ones.
        if kind == "f" and column.hasnans and (column.dropna() % 1 == 0).all():
            integers.append(name)
            if column.abs().max() >= _LARGE:
                rounded += [name]
        elif kind in "iu":
            integers.append(name)
        elif is_text(column) and (column == "").any():
            rounded.append(name)
    names = rounded
    if integers and _has_leading_zeros(path, forms["sep"]):
        names = [*rounded, *integers]
    if not names:
        return
    texts = pd.read_csv(path, **{**forms, "usecols": names, "dtype": str})
    for name in dict.fromkeys(names):
        digits = texts[name].str.strip()
        if digits.str.match(_CODE).any():
            frame[name] = digits
        elif name in rounded and digits.dropna().str.fullmatch(r"[-+]?\d+").all():
            frame[name] = _settle_objects(
                digits.dropna().map(int).astype(object).reindex(frame.index)
            )


def _has_leading_zeros(path: str | Path, separator: str) -> bool:
    """Whether a field may begin with 0 and another digit."""
    # Searched in bytes with numpy: a regular expression takes as long as pandas does to read the file.
    before = np.frombuffer(f'\n" \t{separator[0]}'.encode("latin-1", "replace"), np.uint8)
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


def _csv_options(path: str | Path, key: str, options: Options, texts: Strings) -> Any:
    na_values = options["na_values"]
    if na_values == AUTO:
        na_values = []
    dialect = {
        "sep": options["separator"],
        "encoding": options["encoding"],
        "skiprows": options["skip_rows"],
        "engine": "c",
        "keep_default_na": False,  # its words may be values, see `_take_words`
    }
    first = pd.read_csv(
        path, encoding_errors="replace", header=None, nrows=1, dtype=str, **dialect
    )
    named: dict[str, Any] = {}
    if options["header"] is False:
        named = {"header": None, "names": [f"c{index}" for index in first]}
    else:
        _check_unique(first.iloc[0], key, options)
    return {
        **dialect,
        "decimal": options["decimal"],
        "na_values": ["", *na_values],
        "dtype": dict.fromkeys(texts, str),
        "index_col": False,  # else a separator at the end of the rows shifts all columns by one
        "low_memory": False,  # else a column's type may differ from block to block
        **named,
    }


@contextmanager
def _explain_widths(path: str | Path, key: str, options: Options) -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            yield
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        _check_widths(path, key, options)
        raise ValueError(str(error)) from error


def _read_excel(path: str | Path, key: str, options: Options) -> Frame:
    sheet = options["sheet"]
    with warnings.catch_warnings(), pd.ExcelFile(path, engine="openpyxl") as book:
        warnings.simplefilter("ignore", UserWarning)  # of what a sheet has beside its cells
        names = [str(name) for name in book.sheet_names]
        if sheet is None and len(names) > 1:
            raise DataError(
                f"{key} has {len(names)} sheets: {', '.join(names[:10])}",
                hint=format_override("data.source.sheet", names[0]),
            )
        cells: Any = {"dtype": object, "keep_default_na": False, "na_values": [""]}
        rows: Any = {
            "header": None if options["header"] is False else 0,
            "skiprows": options["skip_rows"],
        }
        try:
            frame: Frame = pd.read_excel(book, sheet_name=sheet or names[0], **cells, **rows)
        except (KeyError, TypeError, SyntaxError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if options["header"] is not False:
            return frame
        return frame.add_prefix("c")


_NO_HEADER = (
    "data.source.header=false if the first row holds values: the columns are then c0, c1, …"
)


def _check_unique(names: Any, key: str, options: Options | None = None) -> None:
    twice = [name for name in pd.Index(names)[pd.Index(names).duplicated()] if name]
    if twice:
        hint = "rename one of them"
        if options is not None:
            hint = f"rename one of them; {_NO_HEADER}"
        raise DataError(f"{key} has two columns called {twice[0]!r}", hint=hint)


def _check_header(path: str | Path, frame: Frame, key: str, options: Options) -> None:
    """Refuse a first row that is a title, or values."""
    names = list(map(str, frame.columns))
    if options["header"] != AUTO or not (is_csv(path) or str(path).lower().endswith(".xlsx")):
        return
    blank = sum(name.startswith("Unnamed: ") for name in names[1:])
    full = np.flatnonzero(frame.notna().all(axis=1))
    if 2 * blank > len(names) - 1 and len(full):
        line = full[0] + 1 + options["skip_rows"]
        if is_csv(path):
            line = next(islice(_count_fields(path, options), int(full[0]) + 1, None))[0] - 1
        raise DataError(
            f"{key}: the header names {len(names) - blank} of {len(names)} columns, such as {names[0]!r}: "
            "it may be a title",
            hint=f"data.source.skip_rows={line} if line {line + 1} is the header, or data.source.header=true",
        )
    _check_repeated_header(frame, names, key)
    same = [name for name in names if not is_number(frame[name]) and (frame[name] == name).any()]
    numbers = [float(name) for name in names if reads_as_number(name)]
    steps = set(np.diff(numbers))
    # as pandas calls columns, or of years
    are_names = len(steps) == 1 and (steps == {1} or len(numbers) > 2)
    inside = [
        name
        for name in names
        if not are_names
        and reads_as_number(name)
        and is_number(frame[name])
        and frame[name].min() <= float(name) <= frame[name].max()
    ]
    if 2 * len({*same, *inside}) > len(names) > 1:
        example = ", ".join(names[:5])
        raise DataError(
            f"{key}: the first row ({example}{', …' * (len(names) > 5)}) looks like values, not a header",
            hint=f"{_NO_HEADER}; data.source.header=true if these are their names",
        )


def _check_repeated_header(frame: Frame, names: Strings, key: str) -> None:
    """Refuse a row that holds the names of the columns, as files that were put together have it."""
    if any(is_number(frame[name]) for name in names):
        return
    rows = np.flatnonzero((frame[names].astype(str) == names).all(axis=1))
    if not len(rows):
        return
    for name in names:
        cells = frame[name].drop(rows).map(str)
        if not reads_as_number(name) and cells.map(reads_as_number).mean() > _MOST:
            raise DataError(
                f"{key}: row {rows[0]} holds the names of the columns again (rows count from 0)",
                hint="remove such rows; files that were put together have one each",
            )


def _check_widths(path: str | Path, key: str, options: Options) -> None:
    """Refuse rows that have more or fewer fields than the header."""
    (_, width), *rows = _count_fields(path, options)
    wrong = [(row, line, fields) for row, (line, fields) in enumerate(rows) if fields != width]
    if wrong:
        row, line, fields = wrong[0]
        usual = Counter(count for _, count in rows).most_common(1)[0][0]
        hint = "repair them, or leave them out; perhaps a quote is not closed"
        if all(count == width + 1 for _, count in rows):
            hint = "remove the separator at the end of the rows, or set data.source.separator"
        elif usual > max(width, 1) and 2 * width <= usual:
            start = next(end for end, count in rows if count == usual)
            hint = f"data.source.skip_rows={start - 1} if lines above line {start}, the header, are a title"
        raise DataError(
            f"{key}: the header has {pluralize(width, 'field')}, and "
            f"{len(wrong):,} of {len(rows):,} rows have "
            f"more or fewer: first row {row} (line {line}; rows count from 0) with {fields}",
            hint=hint,
        )


def find_options(path: Path, options: Options) -> dict[str, Any]:
    """How a table is read, with what was found in place of `auto`."""
    with _explain_errors(str(path), options.get("encoding", "utf-8")):
        return resolve_options(path, options)


def table_chunks(
    path: Path, encoder: ColumnEncoder, size: int, keep: Strings = (), **options: Any
) -> Iterator[Frame]:
    """Read a table that has what an encoder needs and columns to `keep`; the index numbers the rows."""
    start = 0
    with _explain_errors(str(path)):
        for raw in _read_frames(path, encoder, size, keep, {**FILE_OPTIONS, **PLAIN, **options}):
            frame = raw.set_axis(raw.columns.map(str), axis=1)
            check_trained_columns(encoder.columns, list(frame.columns), str(path))
            if missing := [name for name in keep if name not in frame]:
                similar = did_you_mean(missing[0], list(frame.columns), "; ")
                raise DataError(f"{path} has no column {missing[0]!r} to keep{similar}")
            yield settle(frame.set_axis(pd.RangeIndex(start, start + len(frame)), axis=0))
            start += len(frame)


def _read_frames(
    path: Path, encoder: ColumnEncoder, size: int, keep: Strings, options: Options
) -> Iterator[Frame]:
    needed = [column.name for column in encoder.columns]
    is_texts = path.name.lower().endswith(".txt") and encoder.columns[0].kind == "text"
    if is_texts or is_json_lines(path):
        records = _json_records(path, "replace")
        if is_texts:
            records = _text_records(path, needed[0], options["encoding"])
        names: Any = None
        while chunk := list(islice(records, size)):
            frame = pd.DataFrame(chunk, columns=names, dtype=object)
            names = frame.columns
            yield frame
    elif is_csv(path):
        texts = [column.name for column in encoder.columns if column.reads_texts]
        kept = set(keep).difference(needed)
        yield from _read_csv_frames(path, [*texts, *kept], size, options)
    elif path.suffix.lower() in _ARROW:
        import pyarrow as pa

        for batch in _open_arrow(path).to_batches(batch_size=size, batch_readahead=1):
            yield from_arrow(pa.Table.from_batches([batch]))
    else:
        whole = _read_whole(path, str(path), options)
        yield from (whole.iloc[row : row + size] for row in range(0, len(whole), size))


def _read_csv_frames(path: Path, texts: Strings, size: int, options: Options) -> Iterator[Frame]:
    key = str(path)
    is_checked = False
    forms = _csv_options(path, key, options, texts)
    with pd.read_csv(path, encoding_errors="replace", chunksize=size, **forms) as reader:
        while True:
            with _explain_widths(path, key, options):
                frame = next(reader, None)
            if frame is None:
                return
            if not is_checked and frame.iloc[:, -1].isna().any():  # as in `_read_csv`
                _check_widths(path, key, options)
                is_checked = True
            yield frame


def find_task(source: Options, names: list[str]) -> str:
    """The task of the columns to predict."""
    if source.get("label_separator") is not None:
        return TASKS["multilabel"].name
    options = {key: source[key] for key in FILE_OPTIONS if source.get(key) is not None}
    # as the source will read it
    categories = [str(name) for name in source.get("categories") or ()]
    frame = read_table(str(source["path"]), columns=names, texts=categories, **options)
    return task_of_columns(frame, names)[0]
