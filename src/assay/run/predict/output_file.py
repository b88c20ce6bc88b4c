"""Files of predictions, written as they come and complete or not at all."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from rich.table import Table
from rich.text import Text
from typing_extensions import override

from assay.errors import AssayError, ConfigError, cannot_write
from assay.files.atomic import remove_unfinished, replacing
from assay.files.symlinks import OWN_FILES
from assay.quoting import number_text, spreadsheet_frame
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from assay.files.atomic import Output

SUFFIXES: Final = (".parquet", ".csv", ".jsonl")


def check_name(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse a file that predictions cannot be written to, before any are made."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"{path}: a name that ends in {', '.join(SUFFIXES)} was expected",
            key="--out",
            hint=f"--out {path.with_suffix('.csv')}",
        )
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; the name of a file was expected", key="--out")
    place = path.absolute().parent
    if path.name in OWN_FILES and any((place / name).exists() for name in ("record.json", "journal.jsonl")):
        raise ConfigError(
            f"{path} is a file that the run or sweep itself writes", key="--out", hint="give it another name"
        )
    if any(one.exists() and path.exists() and one.samefile(path) for one in inputs):
        raise ConfigError(f"{path} is one of the inputs", key="--out", hint="give it another name")


@contextmanager
def writing(
    path: Path, finish: Callable[[], None] = lambda: None
) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Open a file of predictions; each call adds rows to it."""
    kinds: dict[str, type[_Parquet | _Csv | _JsonLines]] = {
        ".parquet": _Parquet, ".csv": _Csv, ".jsonl": _JsonLines,
    }  # fmt: skip
    try:
        remove_unfinished(path.parent, path.name)
        with replacing(path) as output, _Stream(output) as stream:
            rows = kinds[path.suffix.lower()](stream)
            yield rows.add
            rows.close()
            finish()
    except OSError as error:
        why = cannot_write(error) or error.strerror or str(error)
        raise AssayError(f"{path} cannot be written: {why}", hint="nothing was left there") from error


@final
class _Stream(io.RawIOBase):
    """An output as a file object, such as pyarrow and pandas write to."""

    def __init__(self, output: Output) -> None:
        self._output: Output | None = output
        self._size = 0

    @override
    def close(self) -> None:
        # pyarrow's writer would write its end whenever it is collected: by then the descriptor is another's.
        self._output = None

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, data: Any) -> int:
        size = len(memoryview(data).cast("B")) if self._output is None else self._output.write(data)
        self._size += size
        return size

    @override
    def tell(self) -> int:
        return self._size


@final
class _Csv:
    def __init__(self, stream: _Stream) -> None:
        self._stream, self._begun = stream, False

    def add(self, frame: pd.DataFrame) -> None:
        text = spreadsheet_frame(frame).to_csv(index=False, header=not self._begun, lineterminator="\n")
        self._stream.write(text.encode("utf-8", "surrogateescape"))
        self._begun = True

    def close(self) -> None:
        """Everything is written."""


@final
class _JsonLines:
    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def add(self, frame: pd.DataFrame) -> None:
        # Not DataFrame.to_json, which has decimals, not digits: of 1e-12 little would be left.
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        self._stream.write("".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows).encode())

    def close(self) -> None:
        """Everything is written."""


@final
class _Parquet:
    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._writer: Any = None

    def add(self, frame: pd.DataFrame) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
        import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

        text = [name for name in frame.columns if frame[name].dtype == object]
        schema = None if self._writer is None else self._writer.schema
        if schema is None:
            fields = pa.Schema.from_pandas(frame.drop(columns=text), preserve_index=False)
            known = {field.name: field.type for field in fields}
            schema = pa.schema([(name, known.get(name, pa.string())) for name in frame.columns])
            # A dictionary of numbers, each of which occurs once, is built and thrown away.
            stream = pa.PythonFile(self._stream, mode="w")
            self._writer = pq.ParquetWriter(stream, schema, use_dictionary=text)
        self._writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


_EACH = ("probability ", "score ")
"""Beginnings of the columns that there is one of for each class."""
_MOST = 12


def as_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of what matters most: no column in which nothing stands, and not one of each class."""
    filled = [name for name in columns if any(row[name] is not None for row in rows)]
    if any(word.strip() in columns for word in _EACH):
        filled = [name for name in filled if not name.startswith(_EACH)]
    shown = filled if len(filled) <= _MOST else [*filled[: _MOST - 1], *filled[-1:]]
    table = Table(box=None, pad_edge=False)
    for name in shown:
        number = any(isinstance(row[name], float) for row in rows)
        table.add_column(Text(printable(name)), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(_cell(row[name]))) for name in shown))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return number_text(value) if isinstance(value, float) else str(value)
