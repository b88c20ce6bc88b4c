"""Files of predictions, written as they come and complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from rich.table import Table
from rich.text import Text

from assay.errors import AssayError, ConfigError, cannot_write
from assay.files.atomic import sync_directory, temporary_folder
from assay.files.symlinks import OWN_FILES
from assay.quoting import number_text, spreadsheet_frame
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from assay.task.prediction.predictions import Predictions

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
    if path.exists() and not path.is_file():
        reason = "a folder" if path.is_dir() else "not a regular file"
    elif path.name in OWN_FILES and any((place / name).exists() for name in records):
        reason = "a file that the run or sweep itself writes"
    elif any(one.exists() and path.exists() and one.samefile(path) for one in inputs):
        reason = "one of the inputs"
    if reason:
        raise ConfigError(f"{path} is {reason}", key="--out", hint="give the name of another file")


@final
class PredictionFile:
    """A table that is written as its rows come, and files such as masks in a folder beside it."""

    def __init__(self, path: Path, unfinished: Path, what: str) -> None:
        self.path, self.what, self.folder = path, what, path.with_name(f"{path.stem}_{what}s")
        self._table, self._files = unfinished / path.name, unfinished / "files"
        self._parquet: Any = None
        self._names: set[str] = set()

    def add(self, frame: pd.DataFrame) -> None:
        """Write more rows."""
        suffix, first = self.path.suffix.lower(), not self._table.exists()
        if suffix == ".csv":
            spreadsheet_frame(frame).to_csv(
                self._table,
                mode="a",
                index=False,
                header=first,
                lineterminator="\n",
                errors="surrogateescape",
            )
        elif suffix == ".jsonl":
            # Not DataFrame.to_json, which has decimals, not digits: of 1e-12 little would be left.
            rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
            with self._table.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
        else:
            import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

            self._parquet = self._parquet or _parquet_writer(self._table, frame)
            self._parquet.write_table(
                pa.Table.from_pandas(frame, schema=self._parquet.schema, preserve_index=False)
            )

    def add_files(self, inputs: Sequence[str], found: Predictions) -> list[str]:
        """Write a file for each prediction, called as its input; returns their places."""
        return [self._write(Path(name).stem, found, at) for at, name in enumerate(inputs)]

    def _write(self, stem: str, found: Predictions, at: int) -> str:
        name, number = f"{stem}{found.file_suffix}", 1
        while name.casefold() in self._names:  # which some file systems hold for the same
            number += 1
            name = f"{stem}_{number}{found.file_suffix}"
        self._names.add(name.casefold())
        self._files.mkdir(exist_ok=True)
        (self._files / name).write_bytes(found.file_of(at))
        return f"{self.folder.name}/{name}"

    def close(self) -> None:
        """Write the end of a Parquet file, which its writer would else do whenever it is collected."""
        if self._parquet is not None:
            self._parquet.close()

    def finish(self) -> None:
        """Give all of it its names: the files before the table that names them."""
        self.close()
        with self._table.open("rb") as file:
            os.fsync(file.fileno())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if self._names:
                self._files.rename(self.folder)
            self._table.replace(self.path)
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)  # it was not there before
            raise
        sync_directory(self.path.parent)


@contextmanager
def writing(path: Path, what: str = "") -> Iterator[PredictionFile]:
    """Open a file of predictions, with a folder of files beside it if they have some."""
    existing = next(one for one in path.absolute().parents if one.is_dir())
    try:
        with temporary_folder(existing / path.name) as unfinished:
            file = PredictionFile(path, unfinished, what)
            if what and os.path.lexists(file.folder):
                raise ConfigError(
                    f"{file.folder} exists, with other predictions",
                    key="--out",
                    hint="remove it, or choose another name",
                )
            try:
                yield file
                file.finish()
            finally:
                with suppress(OSError):  # the first error is the one to tell
                    file.close()
    except OSError as error:
        why = cannot_write(error) or error.strerror or str(error)
        raise AssayError(f"{path} cannot be written: {why}", hint="nothing was left there") from error


def _parquet_writer(path: Path, frame: pd.DataFrame) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

    text = [name for name in frame.columns if frame[name].dtype == object]
    known = pa.Schema.from_pandas(frame.drop(columns=text), preserve_index=False)
    types = {field.name: field.type for field in known}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in frame.columns])
    # A dictionary of numbers, each of which occurs once, is built and thrown away.
    return pq.ParquetWriter(str(path), schema, use_dictionary=text)


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
