"""The tasks there are."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from assay.task.binary import Binary
from assay.task.multiclass import Multiclass
from assay.task.multilabel import Multilabel
from assay.task.regression import Regression

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.task.task import Task
    from assay.task.task_name import TaskName

TASKS: Final[Mapping[str, Task]] = MappingProxyType(
    {task.name: task for task in (Multiclass(), Binary(), Multilabel(), Regression())}
)
"""By the name that stands in a config."""


def task_of(name: str) -> Task:
    """The task of a name.

    Args:
        name: Such as `spec.task`.

    Raises:
        ValueError: There is none.

    >>> task_of("binary").in_words({"num_classes": 2})
    '2 classes'
    """
    if name not in TASKS:
        raise ValueError(f"task={name!r}: one of {', '.join(TASKS)} was expected")
    return TASKS[name]


def infer_task(*, is_real: bool, num_columns: int) -> TaskName:
    """What targets that say nothing of it are for: real numbers a regression, others classes or labels.

    Args:
        is_real: Whether they are real numbers.
        num_columns: How many there are per sample.

    >>> infer_task(is_real=False, num_columns=1), infer_task(is_real=False, num_columns=3)
    ('multiclass', 'multilabel')
    """
    if is_real:
        return Regression.name
    return Multiclass.name if num_columns == 1 else Multilabel.name
