"""The run directory's own log: `metrics.csv`, one row a logged point."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping

_FIRST = ("epoch", "step")


@final
class RunCSV(Logger):
    """Appends each logged point to a CSV file at once, and goes on where an earlier part of the run stopped.

    Lightning's `CSVLogger` deletes the rows of an earlier part.

    Numbers are written as `repr` writes them, so that they read back equal, `nan` and `inf` included; an
    empty field was not logged at that point.

    Args:
        path: The file. Columns are `epoch`, `step`, then the metrics in the order they first appear.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)
        self._columns: list[str] = []

    @property
    def name(self) -> str:
        """Empty: the run directory has its name already."""
        return ""

    @property
    def version(self) -> str:
        """Empty: there is one log a run."""
        return ""

    @property
    def save_dir(self) -> str:
        """Folder of the file."""
        return str(self._path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run directory holds the whole config."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Append one row, which a process that is killed next does not lose.

        Args:
            metrics: Numbers, and tensors and arrays of one element. Anything else is left out; no row is
                written when nothing but the epoch is left.
            step: Optimizer steps before this point.
        """
        row = {name: number for name, value in metrics.items() if (number := _number(value)) is not None}
        if not row.keys() - set(_FIRST):
            return
        if step is not None:
            row["step"] = step
        if "epoch" in row:
            row["epoch"] = int(row["epoch"])  # Lightning makes it a float on its way
        new = [name for name in row if name not in self._open()]
        if new:
            self._rewrite([*self._columns, *new], self._rows())
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line([row.get(name, "") for name in self._columns]))

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Drop the rows that a run which goes on from a checkpoint will write again.

        Args:
            step: Optimizer steps done in the checkpoint; rows of this step and later ones go.
        """
        if self._path.is_file():
            columns, at = self._open(), self._columns.index("step")
            rows = self._rows()
            kept = [row for row in rows if not row[at] or int(row[at]) < step]
            if len(kept) < len(rows):
                self._rewrite(columns, kept)

    def _open(self) -> list[str]:
        """Columns of the file, which is made, or rid of the half row that a killed process left."""
        if not self._columns:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            content = self._path.read_bytes() if self._path.is_file() else b""
            whole = content[: content.rfind(b"\n") + 1]
            if not whole:
                self._rewrite(list(_FIRST), [])
            elif len(whole) < len(content):
                os.truncate(self._path, len(whole))
            with self._path.open(encoding="utf-8", newline="") as file:
                self._columns = next(csv.reader(file))
        return self._columns

    def _rows(self) -> list[list[str]]:
        with self._path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))[1:]

    def _rewrite(self, columns: list[str], rows: list[list[str]]) -> None:
        """Replace the file through one beside it, so that no row is ever lost."""
        lines = [_line(columns), *(_line(row + [""] * (len(columns) - len(row))) for row in rows)]
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        self._columns = columns


def _line(values: Iterable[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _number(value: Any) -> float | int | None:
    """A Python number, or None for what is none."""
    if getattr(value, "ndim", None) is not None:  # a tensor, an array, or a scalar of NumPy
        value = value.item() if _numel(value) == 1 else None
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float) else None


def _numel(value: Any) -> int:
    return int(value.numel()) if hasattr(value, "numel") else int(value.size)
