"""How a CSV file separates its columns and writes its decimals, found at its beginning; and its records."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd
from pandas.io.common import get_handle  # type: ignore[import-not-found]  # its stubs lack it

from assay.targets.objects import is_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

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
    """A header or row of a CSV file.

    Attributes:
        text: As it stands in the file, with its line breaks.
        line: Where it begins, from 1.
        width: Number of fields; 0 where a quote is not closed, so that all that follows lies in it.
    """

    text: str
    line: int
    width: int


def read_records(path: str | Path, separator: str, encoding: str) -> Iterator[Record]:
    """Split a CSV file as pandas does, which passes over blank lines and cannot tell rows from lines.

    Args:
        path: The file, perhaps compressed.
        separator: Between its columns.
        encoding: Of the file; what is not in it is replaced.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is damaged.
    """
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
    r"""How to read a file: `options`, with what was found in place of `auto`.

    The separator is that of `;`, tab, `|` and `,` by which most of the first 1,000 lines have as many fields
    as the header has (and at least two). The decimal point is a comma where the separator is another sign and
    some column holds numbers, of which one has a comma that separates no thousands.

    Args:
        path: A table; of one that is not CSV nothing is looked at.
        options: `separator`, `decimal` and others, of which only `encoding` is looked at.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not text, or has no line.
    """
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
