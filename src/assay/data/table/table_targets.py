"""What a table predicts: its task, and targets encoded for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from assay.data.table.column_kind import is_real, is_text, task_of_columns
from assay.errors import DataError
from assay.quoting import join_first
from assay.task.classification import Binary
from assay.task.predictions import SIGN, name_outputs
from assay.task.reconstruction import Reconstruction
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from assay.data.core.types import Floats, Frame, Strings, Values


@final
class TableTargets:
    """The targets of a table, encoded for its task."""

    def __init__(
        self,
        task: str,
        names: Sequence[str],
        values: Mapping[str, Collection[Any]],
        positive: str | float | bool | None = None,
    ) -> None:
        self._task = task_of(task)
        self._names = list(names)
        self.notes: list[str] = []
        self.is_reversed = False
        self._classes: dict[str, list[Any]] = {}
        for name, classes in values.items():
            is_mixed = len({type(value) for value in classes}) > 1
            ordered = sorted(classes, key=str if is_mixed else None)
            self._classes[name] = sorted(
                ordered, key=lambda value: _is_class(positive, str(value))
            )
            self.is_reversed = self._classes[name] != ordered
        self.class_names = self._output_names()
        is_known = task == Binary.name and any(
            _is_class(positive, name) for name in self.class_names
        )
        if positive is not None and not is_known:
            classes = ""
            if self.class_names:
                classes = f" of the classes {join_first(sorted(self.class_names))}"
            raise DataError(
                f"data.source.positive={positive}: expected a class of a binary task, got {task}{classes}",
                hint="data.source.positive=null takes the last of two in alphabetical order",
            )

    def _output_names(self) -> tuple[str, ...]:
        if self._task.has_real_targets:
            return ()
        if self._task.by_class:
            return tuple(map(str, self._classes[self._names[0]]))
        if not self._task.has_heads:
            return tuple(self._names)
        if signed := [name for name in self._names if SIGN in name]:
            raise DataError(
                f"data.source.target: the column {signed[0]!r} holds {SIGN!r}, which stands between a target "
                "and its classes",
                hint="rename the column",
            )
        kinds = []
        outputs = []
        for name in self._names:
            classes = [str(value) for value in self._classes.get(name, ())]
            kinds.append(
                f"{name} as one of {len(classes)} classes" if classes else f"{name} as a number"
            )
            outputs += name_outputs(name, classes)
        self.notes.append(f"predicted side by side: {', '.join(kinds)}")
        return tuple(outputs)

    def encode(self, frame: Frame) -> Tensor:
        """Targets: int64 `[N]` of classes, int64 `[N, L]` of labels, float32 `[N, T]` of all else."""
        columns = []
        for name in self._names:
            codes = {value: index for index, value in enumerate(self._classes.get(name, ()))}
            if codes:
                column = frame[name].map(codes).to_numpy(np.int64, copy=True)
            else:
                column = None
            columns.append(self._numbers(frame[name]) if column is None else column)
        if self._task.by_class:
            return torch.from_numpy(columns[0])
        exact = np.column_stack([np.empty((len(frame), 0)), *columns])
        if self._task.has_real_targets or self._task.has_heads:
            return torch.from_numpy(exact.astype(np.float32))
        if not np.isin(exact, (0, 1)).all():
            raise DataError(
                f"data.source.target: {', '.join(self._names)} hold values other than 0 and 1, not labels",
                hint="data.source.task=multitask, or data.source.task=regression",
            )
        return torch.from_numpy(exact.astype(np.int64))

    def _numbers(self, column: Values) -> Floats:
        try:
            exact = column.to_numpy(dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.source.target: {column.name} cannot be converted to numbers "
                f"({self._task.name}): {error}",
                hint="data.source.task=multiclass, or choose another target",
            ) from error
        with np.errstate(over="ignore"):
            lost = np.abs(exact - exact.astype(np.float32)).max()
        if exact.std() > 0 and not lost <= 1e-2 * exact.std():
            raise DataError(
                f"data.source.target: the values of {column.name!r} differ too little for 32-bit numbers of "
                f"their size (mean {exact.mean():.6g}, deviation {exact.std():.3g})",
                hint="subtract a constant, or scale the column",
            )
        return exact


def _is_class(positive: str | float | bool | None, name: str) -> bool:
    """Whether `positive` means a class; YAML reads yes as true, and 1 may be written 1.0."""
    if isinstance(positive, bool):
        return name.casefold() in (("true", "yes") if positive else ("false", "no"))
    text = f"{positive:g}" if isinstance(positive, float) else positive
    return name == text


def class_columns(task: str, names: Strings, frame: Frame) -> list[str]:
    """The targets that are classes, not numbers."""
    if task_of(task).has_heads:
        return [name for name in names if not is_real(frame[name], name)[0]]
    if task_of(task).by_class:
        return list(names[:1])
    return []


def choose_task(asked: str, frame: Frame, targets: Strings) -> tuple[str, str]:
    """The task that is asked for, else the one of the target columns, and a note where that is ambiguous."""
    if asked != "auto":
        return asked, ""
    if targets:
        return task_of_columns(frame, targets)
    return (Reconstruction.name, "")


def find_label_separator(target: Values) -> str:
    """What stands between labels of a target: fewer of them make up all of its texts; empty for classes."""
    if not is_text(target):
        return ""
    texts = target.dropna().unique()
    for mark in ";|,/":
        divided = [{label.strip() for label in str(text).split(mark)} for text in texts]
        labels = set[str]().union(*divided)
        numbers = {*map(len, divided)}
        if (
            "" not in labels
            and 1 < len(labels) < len(divided)
            and 1 in numbers
            and max(numbers) > 1
        ):
            return mark
    return ""
