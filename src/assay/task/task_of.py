"""The tasks there are."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from assay.task.binary import Binary
from assay.task.language_modelling import LanguageModelling
from assay.task.multiclass import Multiclass
from assay.task.multilabel import Multilabel
from assay.task.multitask import Multitask
from assay.task.own_task.interface import check_interface
from assay.task.reconstruction import Reconstruction
from assay.task.regression import Regression
from assay.task.segmentation import Segmentation
from assay.task.self_supervised import SelfSupervised
from assay.task.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.task.task_name import TaskName

TASKS: Final[Mapping[str, Task]] = MappingProxyType(
    {
        task.name: task
        for task in (
            Multiclass(),
            Binary(),
            Multilabel(),
            Regression(),
            Segmentation(),
            Multitask(),
            LanguageModelling(),
            Reconstruction(),
            SelfSupervised(),
        )
    }
)
"""assay's own, by the name that stands in a config."""
_OWN: Final[dict[str, Task]] = {}
"""The user's own, as far as they were imported, by their dotted path."""


def remember_task(task: Task) -> None:
    """Let `task_of` know a task of the user's own.

    Args:
        task: From a package that the user trusts.
    """
    _OWN[task.name] = task


def known_task(name: str) -> Task | None:
    """The task of a name; None of one whose package nobody has trusted and imported.

    Args:
        name: Such as `spec.task`.
    """
    return TASKS.get(name) or _OWN.get(name)


def task_of(name: str | Task) -> Task:
    """The task of a name.

    Args:
        name: Such as `spec.task`; or the task itself, which is known by its name from then on.

    Raises:
        ValueError: There is none, or it is somebody's own and was not imported.
        ConfigError: A task that is handed over cannot be asked what the interface asks.

    >>> task_of("binary").in_words({"num_classes": 2})
    '2 classes'
    """
    if isinstance(name, Task):
        if _OWN.get(name.name) is not name and TASKS.get(name.name) is not name:
            check_interface(name, "data.source.task")
            remember_task(name)
        return name
    task = known_task(name)
    if task is None and "." in name:
        raise ValueError(
            f"task={name!r}: it lies in a package that is not trusted here; if it is your own: put "
            f"trusted_packages: [{name.partition('.')[0]}] into conf/project.yaml; a data source hands over "
            f"the task itself: task = {name.rpartition('.')[2]}()"
        )
    if task is None:
        raise ValueError(
            f"task={name!r}: one of {', '.join(TASKS)}, or the dotted path of one of your own, was expected"
        )
    return task


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
