"""The run directory's own log: `metrics.csv`, one row a logged point."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

_FIRST = ("epoch", "step")


@final
class RunCSV(Logger):
    """Appends each logged point to a CSV file at once, and goes on where an earlier part of the same run stopped.

    Lightning's `CSVLogger` deletes the rows of an earlier part and keeps all rows in memory.

    Args:
        path: The file. Columns are `epoch`, `step`, then the metrics in the order they first appear.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)
        self._columns: list[str] | None = None

    @property
    def name(self) -> str:
        """Lightning's name of the logger."""
        return "csv"

    @property
    def version(self) -> str:
        """There is one log a run."""
        return ""

    @property
    def save_dir(self) -> str:
        """Folder of the file."""
        return str(self._path.parent)

    @rank_zero_only  # type: ignore[misc]  # Lightning's decorator is untyped
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run directory holds the whole config."""

    @rank_zero_only  # type: ignore[misc]  # as above
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one row.

        Args:
            metrics: Scalars; anything else is left out.
            step: Optimizer steps so far.
        """
        row: dict[str, Any] = {"step": step}
        row.update({name: float(value) if name != "epoch" else int(value) for name, value in metrics.items() if _scalar(value)})
        columns = self._open()
        new = [name for name in row if name not in columns]
        if new:
            self._add_columns(new)
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._open(), restval="").writerow(row)

    def _open(self) -> list[str]:
        if self._columns is None:
            self._columns = list(_FIRST)
            if self._path.is_file():
                with self._path.open(newline="", encoding="utf-8") as file:
                    self._columns = next(csv.reader(file), list(_FIRST))
            else:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(",".join(self._columns) + "\n", encoding="utf-8")
        return self._columns

    def _add_columns(self, names: list[str]) -> None:
        """Rewrite the file with more columns, through a file beside it so that no row is ever lost."""
        columns = [*self._open(), *names]
        with self._path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text(text.getvalue(), encoding="utf-8", newline="")
        temporary.replace(self._path)
        self._columns = columns


def _scalar(value: Any) -> bool:
    return isinstance(value, int | float) or (hasattr(value, "numel") and value.numel() == 1)
