"""What a table predicts: its task, and targets encoded for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from pandas.api.types import is_bool_dtype, is_float_dtype

from assay.data.table.column import has_few, is_category, is_nested, is_number, is_text, shorten
from assay.data.table.column_kind import FORMED, kind_of
from assay.data.table.number import find_amount, format_amount, parse_amounts
from assay.errors import DataError
from assay.quoting import format_override, join_first
from assay.task.classification import Binary
from assay.task.multitask import Multitask
from assay.task.predictions import SIGN, name_outputs
from assay.task.reconstruction import Reconstruction
from assay.task.task_of import infer_task, task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from assay.data.core.types import Floats, Frame, Strings, Values

_FEW_CLASSES = 20
_MOST_CLASSES = 100
_FEW_SAMPLES = 10
"""Of a class on average, below which so many classes are more than make sense."""


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
        columns: list[Any] = []
        for name in self._names:
            codes = {value: index for index, value in enumerate(self._classes.get(name, ()))}
            if codes:
                columns.append(frame[name].map(codes).to_numpy(np.int64, copy=True))
            else:
                columns.append(self._numbers(frame[name]))
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
            hint = "data.source.task=multiclass, or choose another target"
            mark = find_label_separator(column)
            if mark and not self._task.has_real_targets:
                hint = format_override("data.source.label_separator", mark)
            raise DataError(
                f"data.source.target: {column.name} cannot be converted to numbers "
                f"({self._task.name}): {error}",
                hint=hint,
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


# -- what is predicted ---------------------------------------------------------------------------------------


def drop_missing_targets(frame: Frame, targets: Strings) -> Frame:
    """The rows that have all targets, with their index.

    Integers that gaps made floats are such again, as are 0.0 and 1.0, which a program wrote that had gaps.
    """
    complete = frame.dropna(subset=list(targets))
    for name in targets:
        has_gaps = len(complete) < len(frame) and frame[name].isna().any()
        column = complete[name]
        is_binary = is_float_dtype(column) and has_few(column, 2) and column.nunique() == 2
        if has_gaps or is_binary:
            values = complete[name].infer_objects()
            is_integral = is_float_dtype(values) and bool((values == np.floor(values)).all())
            if is_integral and np.isfinite(values).all():
                complete[name] = values.astype(np.int64)
            else:
                complete[name] = values
    return complete


def task_of_columns(frame: Frame, targets: Strings) -> tuple[str, str]:
    """The task of the target columns, and a note where it is ambiguous."""
    frame = drop_missing_targets(frame, targets)
    parse_targets(frame, targets, {})
    judged = [is_real(frame[name], name) for name in targets]
    real = bool(judged) and all(is_number for is_number, _ in judged)
    if len(targets) > 1 and not real and not frame[list(targets)].isin([0, 1]).to_numpy().all():
        return Multitask.name, ""
    notes = "; ".join(note for _, note in judged if note)
    num_classes = 0
    if len(targets) == 1 and not real:
        if notes:  # on their spelling
            raise DataError(
                f"data.source.target={targets[0]}: {notes}",
                hint="write them in one way; data.source.task=multiclass takes them as they are",
            )
        num_classes = int(frame[targets[0]].nunique())
    return infer_task(is_real=real, num_columns=len(targets), num_classes=num_classes), notes


def parse_targets(frame: Frame, targets: Strings, forms: dict[str, str]) -> list[str]:
    """Replace the targets that are amounts by numbers, whose forms are added; the notes on them."""
    notes = []
    for name in targets:
        column = frame[name]
        is_class = is_number(column) or is_category(column)
        if name not in forms and not is_class and kind_of(column)[0] == "amount":
            forms[name] = find_amount(column)
        if name in forms and not is_number(column):
            numbers = parse_amounts(column, forms[name])
            if len(wrong := column[column.notna() & numbers.isna()]):
                raise DataError(
                    f"data.source.target={name}: expected a number such as "
                    f"{format_amount(12.5, forms[name])!r}, got {str(wrong.iloc[0])[:40]!r}",
                    hint="write all of them in one way",
                )
            notes.append(f"the target {describe_amount(column, forms[name])} is read as numbers")
            frame[name] = numbers
    return notes


def describe_amount(column: Values, form: str) -> str:
    """How a column of amounts is read, by an example."""
    example = column.dropna().iloc[:1]
    value = float(parse_amounts(example, form).iloc[0])
    return f"{column.name} ({str(example.iloc[0])[:40]!r} is {value:.15g})"


def is_real(values: Values, name: str) -> tuple[bool, str]:
    """Whether a target is predicted as a number, and a note where that is ambiguous."""
    if is_nested(values):
        raise DataError(
            f"data.source.target={name}: the column holds {kind_of(values)[1]}",
            hint="write a column of 0 and 1 for each label; a table in one file may hold them as 'a;b', with "
            + format_override("data.source.label_separator", ";"),
        )
    is_float = is_float_dtype(values)
    if is_float and not has_few(values):
        return True, ""
    different = values.nunique()
    if not is_number(values):
        if not is_category(values):  # else the file says that these are classes
            _check_classes(values, name, different)
        return False, note_on_spelling(values, name)
    note = (
        f"the target {name!r} has {different:,} different {'values' if is_float else 'integers'} and is "
        "predicted as a number; for classes: data.source.task=multiclass"
    )
    if is_float:
        return True, note if different > 1 and bool((values == np.floor(values)).all()) else ""
    if is_bool_dtype(values) or different <= 2:
        return False, ""
    # such a class cannot be in all subsets: these may be counts
    is_rare = values.value_counts().min() < 3
    if different <= _FEW_CLASSES and not is_rare:
        return False, ""
    if different <= _FEW_CLASSES or len(values) / different >= _FEW_CLASSES:
        raise DataError(
            f"data.source.target={name}: {different:,} different integers in {len(values):,} rows may be "
            "numbers or classes",
            hint="data.source.task=regression, or data.source.task=multiclass",
        )
    return True, note


def note_on_spelling(values: Values, name: str, what: str = "classes") -> str:
    """A sentence on texts that are alike but for their case and spaces."""
    texts = pd.Series(values.dropna().unique(), dtype=object).astype(str)
    for _, alike in texts.groupby(texts.str.strip().str.casefold(), sort=False):
        if len(alike) > 1:
            return (
                f"{what} of {name!r} differ only in case or spaces: {', '.join(map(repr, alike))}"
            )
    return ""


def _check_classes(values: Values, name: str, different: int) -> None:
    kind, why = kind_of(values)
    key = f"data.source.target={name}"
    if kind in FORMED:
        raise DataError(f"{key}: the column holds {why}", hint="turn it into numbers or classes")
    if different > _FEW_CLASSES and 2 * different > len(values):
        raise DataError(
            f"{key}: {different:,} different texts in {len(values):,} rows, such as "
            f"{shorten(values.iloc[0])}, are not "
            "classes",
            hint="choose another column",
        )
    if different > _MOST_CLASSES and different * _FEW_SAMPLES > len(values):
        raise DataError(
            f"{key}: {different:,} classes in {len(values):,} rows, fewer than {_FEW_SAMPLES} rows a class",
            hint="choose another column; data.source.task=multiclass uses them anyway",
        )
