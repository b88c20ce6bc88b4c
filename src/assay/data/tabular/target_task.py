"""What the target of a table is. Imports no torch, so that it can be asked early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.data.tabular.column_kind import is_number, kind_of, to_numbers
from assay.errors import DataError
from assay.task.multitask import Multitask
from assay.task.task_of import infer_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.task.task_name import TaskName

_FEW_CLASSES = 20
_MOST_CLASSES = 100
_FEW_SAMPLES = 10
"""Of a class on average, below which so many classes are more than make sense."""


def with_targets(frame: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """The rows that have all targets, with their index; integers that gaps made floats are such again."""
    lacking = frame[list(targets)].isna().any(axis=1)
    if not lacking.any():
        return frame
    kept = frame[~lacking].copy()
    for name in targets:
        if frame[name].isna().any():
            values = kept[name].infer_objects()
            whole = pd.api.types.is_float_dtype(values) and bool((values == np.floor(values)).all())
            kept[name] = values.astype(np.int64) if whole and np.isfinite(values).all() else values
    return kept


def task_of_columns(frame: pd.DataFrame, targets: Sequence[str]) -> tuple[TaskName, str]:
    """What there is to predict, and a note where that could be meant otherwise.

    Numbers with a fraction are a regression, and so are integers of which there are many: more than 20
    different ones, each in fewer than 20 rows on average. Anything else in one column is classes. Several
    columns of 0 and 1 are labels; of several others each is predicted as what it is by itself. Rows that lack
    a target are not looked at.

    Raises:
        DataError: A target is neither numbers nor classes, could be both, or has too many classes.

    >>> task_of_columns(pd.DataFrame({"price": [1.5, 2.5], "kind": ["a", "b"]}), ["price"])
    ('regression', '')
    """
    frame = with_targets(frame, targets)
    found = [is_real(frame[name], name) for name in targets]
    real = bool(found) and all(is_number for is_number, _ in found)
    if len(targets) > 1 and not real and not frame[list(targets)].isin([0, 1]).to_numpy().all():
        return Multitask.name, ""
    notes = "; ".join(note for _, note in found if note)
    return infer_task(is_real=real, num_columns=len(targets)), notes if real else ""


def is_real(values: pd.Series[Any], name: str) -> tuple[bool, str]:
    """Whether a target is predicted as a number, and a note where that could be meant otherwise.

    Raises:
        DataError: See `task_of_columns`.
    """
    different = values.nunique() if not values.empty else 0
    if not is_number(values):
        _check_classes(values, name, different)
        return False, ""
    if pd.api.types.is_float_dtype(values):
        integral = bool((values == np.floor(values)).all())
        note = f"the target {name!r} has {different} different values and is predicted as a number"
        few = integral and 1 < different <= 10
        return True, f"{note}; for classes: data.source.task=multiclass" if few else ""
    if pd.api.types.is_bool_dtype(values) or different <= _FEW_CLASSES:
        return False, ""
    if len(values) / different >= _FEW_CLASSES:
        raise DataError(
            f"data.source.target={name}: {different:,} different integers in {len(values):,} rows: numbers, "
            "or classes?",
            hint="data.source.task=regression, or data.source.task=multiclass",
        )
    note = f"the target {name!r} has {different:,} different integers and is predicted as a number"
    return True, f"{note}; for classes: data.source.task=multiclass"


def _check_classes(values: pd.Series[Any], name: str, different: int) -> None:
    kind, why = kind_of(values)
    example = str(values.iloc[0])[:40] if len(values) else ""
    key = f"data.source.target={name}"
    if kind == "unclear":
        raise DataError(f"{key}: the column is {why}", hint=to_numbers(values))
    if kind == "date":
        raise DataError(f"{key}: the column holds {why}", hint="turn it into numbers or classes")
    if different > _FEW_CLASSES and 2 * different > len(values):
        raise DataError(
            f"{key}: {different:,} different texts in {len(values):,} rows, such as {example!r}, are not "
            "classes",
            hint="choose another column",
        )
    if different > _MOST_CLASSES and different * _FEW_SAMPLES > len(values):
        raise DataError(
            f"{key}: {different:,} classes in {len(values):,} rows, fewer than {_FEW_SAMPLES} rows a class",
            hint="choose another column; data.source.task=multiclass takes them all the same",
        )
