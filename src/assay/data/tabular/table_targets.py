"""The targets of a table as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from assay.data.tabular.target_task import is_real
from assay.errors import DataError
from assay.task.heads import SIGN, output_names
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor


@final
class TableTargets:
    """What is to be predicted, as the task of a table wants it.

    Args:
        task: Its name.
        names: Of the columns.
        every: These columns of all subsets.

    Attributes:
        class_names: Of classes or labels; of several heads one name per output, see `assay.task.heads`.
        notes: What was found about the classes, a sentence each.

    Raises:
        DataError: A column cannot be one of several targets.
    """

    def __init__(self, task: str, names: Sequence[str], every: pd.DataFrame) -> None:
        self._task, self._names = task_of(task), list(names)
        self.notes: list[str] = []
        columns: list[str] = []
        if self._task.by_class:
            columns = self._names[:1]
        elif self._task.has_heads:
            columns = [name for name in self._names if not is_real(every[name], name)[0]]
        self._classes = {name: self._find_classes(every[name], name) for name in columns}
        self.class_names = self._output_names()

    def _output_names(self) -> tuple[str, ...]:
        if self._task.has_real_targets:
            return ()
        if self._task.by_class:
            return tuple(map(str, self._classes[self._names[0]]))
        if not self._task.has_heads:
            return tuple(self._names)
        for name in self._names:
            if SIGN in name:
                raise DataError(
                    f"data.source.target: the column {name!r} holds {SIGN!r}, which stands between a "
                    "target and its classes",
                    hint="rename the column",
                )
        told, outputs = [], []
        for name in self._names:
            classes = [str(value) for value in self._classes.get(name, ())]
            told.append(f"{name} as one of {len(classes)} classes" if classes else f"{name} as a number")
            outputs += output_names(name, classes)
        self.notes.append(f"predicted side by side: {', '.join(told)}")
        return tuple(outputs)

    def _find_classes(self, column: pd.Series[Any], name: str) -> list[Any]:
        values: list[Any] = column.unique().tolist()
        alike: dict[str, list[Any]] = {}
        for value in values:
            alike.setdefault(" ".join(str(value).split()).casefold(), []).append(value)
        if several := next((same for same in alike.values() if len(same) > 1), None):
            of = f" of {name}" if len(self._names) > 1 else ""
            told = (
                f"classes{of} that differ only in blanks or capital letters: {', '.join(map(repr, several))}"
            )
            self.notes.append(told)
        return sorted(values, key=str if len({type(value) for value in values}) > 1 else None)

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """Targets: int64 `[N]` of classes, int64 `[N, L]` of labels, float32 `[N, T]` of all else.

        Raises:
            DataError: A column holds something else.
        """
        if self._task.by_class:
            return torch.from_numpy(self._indices(frame, self._names[0]))
        numbers = [name for name in self._names if name not in self._classes]
        exact = np.empty((len(frame), len(self._names)))
        for at, name in enumerate(self._names):
            exact[:, at] = self._indices(frame, name) if name in self._classes else self._numbers(frame, name)
        with np.errstate(over="ignore"):
            values = exact.astype(np.float32)
        if self._task.has_real_targets or self._task.has_heads:
            for name in numbers:
                at = self._names.index(name)
                _check_precision(name, exact[:, at], values[:, at])
            return torch.from_numpy(values)
        if not ((values == 0) | (values == 1)).all():
            raise DataError(
                f"data.source.target: {', '.join(self._names)} hold more than 0 and 1, which labels are",
                hint="data.source.task=multitask, or data.source.task=regression",
            )
        return torch.from_numpy(values).to(torch.int64)

    def _indices(self, frame: pd.DataFrame, name: str) -> NDArray[np.int64]:
        index = {value: position for position, value in enumerate(self._classes[name])}
        return np.array([index[value] for value in frame[name]], dtype=np.int64)

    def _numbers(self, frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
        try:
            return frame[name].to_numpy(dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.source.target: {name} cannot be numbers ({self._task.name}): {error}",
                hint="data.source.task=multiclass, or choose another target",
            ) from error


def _check_precision(name: str, exact: NDArray[Any], stored: NDArray[Any]) -> None:
    """Refuse numbers that differ by less than float32 can tell so far from 0."""
    spread = exact.std()
    if spread > 0 and not np.abs(exact - stored).max() <= 1e-2 * spread:
        raise DataError(
            f"data.source.target: the values of {name!r} differ too little for 32-bit numbers of their size "
            f"(mean {exact.mean():.6g}, deviation {spread:.3g})",
            hint="subtract a constant, or scale the column",
        )
