"""Reading a table from a file, and what its target is. Imports no torch, so that it can be asked early."""

from __future__ import annotations

import difflib
import lzma
import re
import warnings
import zlib
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from assay.data.source_paths import check_argument
from assay.data.tabular.column_kind import is_number, kind_of, plain_numbers
from assay.errors import DataError
from assay.quoting import override, reads_as_number
from assay.task.task_of import infer_task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.task.task_name import TaskName

_SEPARATORS = ";\t|,"
_FEW_CLASSES = 20
_RENAMED = re.compile(r"\.\d+$")
CLEAN = (
    f"remove signs of units and of thousands; {override('data.source.decimal', ',')} or "
    f"{override('data.source.na_values', ['?'])} where that is the reason"
)
"""What to do about text that looks like numbers."""


def read_table(
    path: str,
    option: str = "path",
    *,
    separator: str = ",",
    decimal: str = ".",
    na_values: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    r"""Read a .csv (also compressed) or .parquet file.

    Args:
        path: The file.
        option: Of `data.source`, for messages.
        separator: Between the columns of a CSV file: one character, or `\s+`.
        decimal: Decimal point of a CSV file.
        na_values: More texts in a CSV file that stand for a missing value.
        columns: Read these alone; None for all.

    Raises:
        ConfigError: There is no such file.
        DataError: It is not a table.
    """
    key = f"data.source.{option}={path}"
    check_argument("assay.data.table.Table", option, path)
    is_parquet = path.lower().endswith((".parquet", ".pq"))
    try:
        if is_parquet:
            frame = pd.read_parquet(path, columns=None if columns is None else list(columns))
        else:
            frame = _read_csv(path, separator, decimal, na_values, columns)
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        check_separator(pd.read_csv(path, sep=separator, nrows=0, index_col=False).columns, key, separator)
        if isinstance(error, pd.errors.ParserError):
            what = " ".join(str(error).split())
            raise DataError(f"{key} cannot be read: {what}", hint="repair or convert it") from error
        raise DataError(
            f"{key}: the rows have more values than the header has names",
            hint="remove the separator at the end of the rows, or set data.source.separator",
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{key} is not text in UTF-8: {error.reason}", hint="save it as UTF-8") from error
    except (ValueError, OSError, EOFError, BadZipFile, zlib.error, lzma.LZMAError, ImportError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{key} cannot be read: {what}", hint="repair or convert it") from error
    if any(name is not None for name in frame.index.names):  # Parquet keeps pandas' index apart
        frame = frame.reset_index()
    if not is_parquet:
        check_names(path, key, separator, list(map(str, frame.columns)))
    frame.columns = frame.columns.map(str)
    _check_header(frame, key, separator)
    if not is_parquet and columns is None and separator != r"\s+":
        _check_quotes(frame, key, separator, decimal)
    return plain_numbers(frame.reset_index(drop=True))


def check_columns(frame: pd.DataFrame, names: Sequence[str], path: str, option: str) -> None:
    """Refuse names of columns that a table does not have.

    Args:
        frame: The table.
        names: Asked for.
        path: Of the table, for the message.
        option: Of `data.source`, for the message.

    Raises:
        DataError: Naming the first one.
    """
    known = list(frame.columns)
    for name in names:
        if name not in known:
            guess = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {guess[0]!r}?" if guess else ""
            more = ", …" if len(known) > 20 else ""
            raise DataError(
                f"data.source.{option}: {path} has no column {name!r}{meant}",
                hint=f"columns: {', '.join(known[:20])}{more}",
            )


def task_of_columns(frame: pd.DataFrame, targets: Sequence[str]) -> tuple[TaskName, str]:
    """What there is to predict, and a note where that could be meant otherwise.

    Numbers with a fraction are a regression, and so are integers of which there are many: more than 20
    different ones, each in fewer than 20 rows on average. Anything else in one column is classes, in several
    columns labels.

    Args:
        frame: Holds the targets.
        targets: Names of columns.

    Raises:
        DataError: A target is neither numbers nor classes.

    >>> task_of_columns(pd.DataFrame({"price": [1.5, 2.5], "kind": ["a", "b"]}), ["price"])
    ('regression', '')
    """
    numbers, notes = [], []
    for name in targets:
        is_real, note = _is_real(frame[name].dropna(), name)
        numbers.append(is_real)
        notes += [note] if note else []
    is_real = bool(numbers) and all(numbers)
    return infer_task(is_real=is_real, num_columns=len(targets)), "; ".join(notes) if is_real else ""


def _is_real(values: pd.Series[Any], name: str) -> tuple[bool, str]:
    different = values.nunique() if not values.empty else 0
    if not is_number(values):
        _check_classes(values, name, different)
        return False, ""
    if pd.api.types.is_float_dtype(values):
        integral = bool((values == np.floor(values)).all())
        note = f"the target {name!r} has {different} different values and is predicted as a number"
        few = integral and 1 < different <= 10
        return True, f"{note}; for classes: data.source.task=multiclass" if few else ""
    if pd.api.types.is_bool_dtype(values) or different <= _FEW_CLASSES:
        return False, ""
    if len(values) / different >= _FEW_CLASSES:
        return False, ""
    note = f"the target {name!r} has {different:,} different integers and is predicted as a number"
    return True, f"{note}; for classes: data.source.task=multiclass"


def _check_classes(values: pd.Series[Any], name: str, different: int) -> None:
    kind, why = kind_of(values)
    example = str(values.iloc[0])[:40] if len(values) else ""
    key = f"data.source.target={name}"
    if kind == "unclear":
        raise DataError(f"{key}: the column is {why}", hint=CLEAN)
    if kind == "date":
        raise DataError(f"{key}: the column holds {why}", hint="turn it into numbers or classes")
    if different > _FEW_CLASSES and 2 * different > len(values):
        raise DataError(
            f"{key}: {different:,} different texts in {len(values):,} rows, such as {example!r}, are not "
            "classes",
            hint="choose another column",
        )


def _read_csv(
    path: str, separator: str, decimal: str, na_values: Sequence[str], columns: Sequence[str] | None
) -> pd.DataFrame:
    wanted = None if columns is None else lambda name: str(name) in columns
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            path,
            sep=separator,
            decimal=decimal,
            na_values=list(na_values),
            usecols=wanted,
            index_col=False,  # else a separator at the end of the rows shifts all columns by one
            low_memory=False,  # else a column's type may differ from block to block
            engine="c",
        )


def _check_header(frame: pd.DataFrame, key: str, separator: str) -> None:
    if frame.empty and not frame.columns.empty:
        raise DataError(f"{key} has no rows", hint="give a table with samples")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"{key} has two columns called {twice[0]!r}", hint="rename one of them")
    if frame.shape[1] == 1:
        check_separator(frame.columns, key, separator)


def check_names(path: str | Path, where: str, separator: str, names: Sequence[str]) -> None:
    """Refuse a CSV file that has two columns of one name: pandas calls the second of them `name.1`.

    Args:
        path: The file.
        where: What the message calls it.
        separator: Between its columns.
        names: As pandas calls them.

    Raises:
        DataError: Naming the column.
    """
    if not any(_RENAMED.sub("", name) in names for name in names if _RENAMED.search(name)):
        return
    options: Any = {"sep": separator, "nrows": 1, "header": None, "index_col": False, "dtype": str}
    header = pd.read_csv(path, keep_default_na=False, encoding_errors="replace", **options)
    if len(twice := (written := header.iloc[0])[written.duplicated() & (written != "")]):
        raise DataError(f"{where} has two columns called {twice.iloc[0]!r}", hint="rename one of them")


def check_separator(names: pd.Index[str], key: str, separator: str) -> None:
    """Refuse a header in which another sign stands more often than what it was split by."""
    for sign in _SEPARATORS:
        if sign != separator and sum(str(name).count(sign) for name in names) >= len(names):
            raise DataError(
                f"{key} looks separated by {sign!r}, not by {separator!r}",
                hint=override("data.source.separator", sign),
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
