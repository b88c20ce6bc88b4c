from __future__ import annotations

import csv
import io
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from assay.errors import explain_write_errors
from assay.files.atomic import write_text
from assay.files.symlinks import open_append

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

log = logging.getLogger(__name__)

_FIRST = ("epoch", "step")
_HEADER = b"epoch,step"


@final
class RunCSV(Logger):
    """Appends each logged row to a CSV file immediately, and continues the file of a resumed run.

    Lightning's `CSVLogger` deletes the earlier rows.

    Epochs count from 1, as on the screen; that of a test is the number of trained epochs.

    Numbers are written as by `repr`, so that they read back equal, including `nan` and `inf`; an empty field
    was not logged in that row.

    Args:
        path: The file. Columns are `epoch`, `step`, then the metrics in the order they first appear.

    Raises:
        ValueError: The file exists and is not the log of a run.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.first_epoch = 0
        """Added to Lightning's number of an epoch."""
        self._path = Path(path)
        if self._path.is_file():
            with self._path.open("rb") as file:
                begin = file.read(len(_HEADER))
            if not _HEADER.startswith(begin):
                raise ValueError(
                    f"{path} exists and is not the log of a run; choose another path"
                )
        self._columns: list[str] = []
        self._count = 0
        self._synced = -1
        """Number of rows that are certainly on disk."""
        self.damage = ""
        """Difference to the state at the checkpoint from which the run resumed; empty: none."""

    @property
    def name(self) -> str:
        """Empty: the run directory has its name already."""
        return ""

    @property
    def version(self) -> str:
        """Empty: there is one log per run."""
        return ""

    @property
    def save_dir(self) -> str:
        """Folder of the file."""
        return str(self._path.parent)

    @rank_zero_only
    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """Nothing: the run directory holds the whole config."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Append one row, which survives if the process is killed afterwards."""
        row = {
            name: number
            for name, value in metrics.items()
            if (number := _to_number(value)) is not None
        }
        if not row.keys() - set(_FIRST):
            return
        if step is not None:
            row["step"] = step
        if "epoch" in row:
            # Lightning makes it a float on its way
            row["epoch"] = int(row["epoch"]) + self.first_epoch
        with self._translate_write_errors():
            if new := [name for name in row if name not in self._open()]:
                self._rewrite([*self._columns, *new], self._rows())
            with os.fdopen(open_append(self._path), "ab") as file:
                file.write(_csv_line([row.get(name, "") for name in self._columns]).encode())
        self._count += 1

    def _translate_write_errors(self) -> AbstractContextManager[None]:
        hint = "earlier rows are intact; free some space, then `assay resume` the run"
        return explain_write_errors(self._path, hint)

    def mark(self) -> dict[str, Any]:
        """Return the number of `rows`; 0 on ranks other than the first."""
        return {"rows": self._count}

    @rank_zero_only
    def position(self) -> dict[str, Any]:
        """Return the current end of the file for a checkpoint, after syncing it to disk."""
        with self._translate_write_errors():
            columns = self._open()
            if self._synced != self._count:
                with self._path.open("rb") as file:
                    os.fsync(file.fileno())
                self._synced = self._count
        return {**self.mark(), "columns": list(columns)}

    @rank_zero_only
    def rewind(self, position: Mapping[str, Any] | None) -> None:
        """Drop the rows that a run resumed from a checkpoint will write again."""
        if position is None:
            position = {"rows": 0, "columns": _FIRST}
        before = self._open()
        columns = list(position["columns"])
        rows = int(position["rows"])
        intact = [dict(zip(before, row, strict=False)) for row in self._rows()[:rows]]
        self._synced = -1
        if len(intact) < rows:
            lost = rows - len(intact)
            self.damage = (
                f"{self._path.name} has lost {lost} of the {rows} rows up to its last checkpoint"
            )
            log.warning("%s", self.damage)
        if self._count > rows or before != columns:
            self._rewrite(columns, [[row.get(name, "") for name in columns] for row in intact])

    def _open(self) -> list[str]:
        """Return the columns; create the file, or remove the incomplete row of a killed process."""
        if not self._columns:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            content = b""
            if self._path.is_file():
                content = self._path.read_bytes()
            complete = content[: content.rfind(b"\n") + 1]
            if not complete:
                self._rewrite(list(_FIRST), [])
            elif len(complete) < len(content):
                descriptor = open_append(self._path)
                os.ftruncate(descriptor, len(complete))
                os.close(descriptor)
            with self._path.open(encoding="utf-8", newline="") as file:
                self._columns, *rows = csv.reader(file)
            self._count = len(rows)
        return self._columns

    def _rows(self) -> list[list[str]]:
        with self._path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))[1:]

    def _rewrite(self, columns: list[str], rows: list[list[str]]) -> None:
        """Replace the file atomically, so that no row is lost."""
        lines = [
            _csv_line(columns),
            *(_csv_line(row + [""] * (len(columns) - len(row))) for row in rows),
        ]
        write_text(self._path, "".join(lines))
        self._columns = columns
        self._count = len(rows)


def _csv_line(values: Iterable[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _to_number(value: Any) -> float | int | None:
    if getattr(value, "ndim", None) is not None:  # a tensor, an array, or a scalar of NumPy
        if value.reshape(-1).shape == (1,):
            value = value.item()
        else:
            value = None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    return None
