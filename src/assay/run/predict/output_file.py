"""Files of predictions, written as they come and complete or not at all."""

from __future__ import annotations

import io
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from rich.table import Table
from rich.text import Text
from typing_extensions import override

from assay.errors import AssayError, ConfigError, cannot_write
from assay.files.atomic import remove_unfinished, replacing, temporary_folder
from assay.files.symlinks import OWN_FILES
from assay.quoting import number_text, spreadsheet_frame
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from assay.files.atomic import Output
    from assay.task.prediction.prediction_batch import PredictionBatch

SUFFIXES: Final = (".parquet", ".csv", ".jsonl")


def check_name(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse a file that predictions cannot be written to, before any are made."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"expected a name that ends in {', '.join(SUFFIXES)}, got {path}",
            key="--out",
            hint=f"--out {path.with_suffix('.csv')}",
        )
    place, records = path.absolute().parent, ("record.json", "journal.jsonl")
    reason = ""
    if path.is_dir():
        reason = "a folder"
    elif path.name in OWN_FILES and any((place / name).exists() for name in records):
        reason = "a file that the run or sweep itself writes"
    elif any(one.exists() and path.exists() and one.samefile(path) for one in inputs):
        reason = "one of the inputs"
    if reason:
        raise ConfigError(f"{path} is {reason}", key="--out", hint="give the name of another file")


@contextmanager
def writing(
    path: Path, finish: Callable[[], None] = lambda: None
) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Open a file of predictions; each call adds rows to it."""
    suffix = path.suffix.lower()
    parquet: Any = None

    def add(frame: pd.DataFrame) -> None:
        nonlocal parquet
        if suffix == ".csv":
            text = spreadsheet_frame(frame).to_csv(index=False, header=not stream.tell(), lineterminator="\n")
            stream.write(text.encode("utf-8", "surrogateescape"))
        elif suffix == ".jsonl":
            # Not DataFrame.to_json, which has decimals, not digits: of 1e-12 little would be left.
            rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
            stream.write("".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows).encode())
        else:
            import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

            parquet = parquet or _parquet_writer(stream, frame)
            parquet.write_table(pa.Table.from_pandas(frame, schema=parquet.schema, preserve_index=False))

    try:
        remove_unfinished(path.parent, path.name)
        with replacing(path) as output, _Stream(output) as stream:
            yield add
            if parquet is not None:
                parquet.close()
            finish()
    except OSError as error:
        why = cannot_write(error) or error.strerror or str(error)
        raise AssayError(f"{path} cannot be written: {why}", hint="nothing was left there") from error


@final
class _Stream(io.RawIOBase):
    """An output as a file object, such as pyarrow writes to."""

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


def _parquet_writer(stream: _Stream, frame: pd.DataFrame) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

    text = [name for name in frame.columns if frame[name].dtype == object]
    known = pa.Schema.from_pandas(frame.drop(columns=text), preserve_index=False)
    types = {field.name: field.type for field in known}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in frame.columns])
    # A dictionary of numbers, each of which occurs once, is built and thrown away.
    return pq.ParquetWriter(pa.PythonFile(stream, mode="w"), schema, use_dictionary=text)


@final
class SidecarFiles:
    """Files of predictions, such as masks, in a folder beside their table."""

    def __init__(self, folder: Path, unfinished: Path, what: str) -> None:
        self.what, self._folder, self._unfinished = what, folder, unfinished
        self._names: set[str] = set()

    def add(self, inputs: Sequence[str], found: PredictionBatch) -> list[str]:
        """Write a file for each prediction, called as its input; returns their places."""
        return [self._write(Path(name).stem, found, at) for at, name in enumerate(inputs)]

    def _write(self, stem: str, found: PredictionBatch, at: int) -> str:
        name, number = f"{stem}{found.file_suffix}", 1
        while name.casefold() in self._names:  # which some file systems hold for the same
            number += 1
            name = f"{stem}_{number}{found.file_suffix}"
        self._names.add(name.casefold())
        (self._unfinished / name).write_bytes(found.file_of(at))
        return f"{self._folder.name}/{name}"

    def finish(self) -> None:
        """Put the files where they will be, if there are any: before the table that names them."""
        if self._names:
            self._folder.mkdir(parents=True)
            self._unfinished.rename(self._folder)  # an empty folder is replaced


@contextmanager
def writing_beside(table: Path, what: str) -> Iterator[SidecarFiles]:
    """Open a folder of files beside a table; `finish` puts it there, a failure leaves nothing."""
    folder = table.with_name(f"{table.stem}_{what}s")
    if os.path.lexists(folder):
        raise ConfigError(
            f"{folder} exists, with other predictions", key="--out", hint="remove it, or choose another name"
        )
    existing = next(one for one in folder.absolute().parents if one.is_dir())
    try:
        with temporary_folder(existing / folder.name) as unfinished:
            try:
                yield SidecarFiles(folder, unfinished, what)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)  # it was not there before
                raise
    except OSError as error:
        why = cannot_write(error) or error.strerror or str(error)
        raise AssayError(f"{folder} cannot be written: {why}", hint="nothing was left there") from error


_PER_CLASS = ("probability ", "score ")
"""Beginnings of the columns that there is one of for each class."""
_MOST = 12


def as_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of what matters most: no column in which nothing stands, and not one of each class."""
    filled = [name for name in columns if any(row[name] is not None for row in rows)]
    if any(word.strip() in columns for word in _PER_CLASS):
        filled = [name for name in filled if not name.startswith(_PER_CLASS)]
    shown = filled if len(filled) <= _MOST else [*filled[: _MOST - 1], *filled[-1:]]
    table = Table(box=None, pad_edge=False)
    for name in shown:
        number = any(isinstance(row[name], float) for row in rows)
        table.add_column(Text(printable(name)), justify="right" if number else "left", overflow="fold")
    for row in rows:
        cells = (row[name] for name in shown)
        texts = (
            number_text(one) if isinstance(one, float) else str("" if one is None else one) for one in cells
        )
        table.add_row(*(Text(printable(text)) for text in texts))
    return table
