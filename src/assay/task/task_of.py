"""The tasks by name: the built-in ones, and custom ones that were imported."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError
from assay.task.classification import Binary, Multiclass, Multilabel
from assay.task.language_modelling import LanguageModelling
from assay.task.multitask import Multitask, Regression
from assay.task.predictions import KINDS
from assay.task.reconstruction import Reconstruction, SelfSupervised
from assay.task.segmentation import Segmentation
from assay.task.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.task.predictions import Kind


def check_interface(task: Task, key: str) -> None:
    """Refuse a task that lacks a required attribute."""
    kind = type(task)
    if lacking := [name for name in Task.__annotations__ if not hasattr(kind, name)]:
        raise ConfigError(
            f"{task.name!r} lacks attributes that assay.task.task.Task requires: {', '.join(lacking)}",
            key=key,
            hint=f"set {'it' if len(lacking) == 1 else 'them'} as attributes of {kind.__name__}",
        )


def custom_output_kind(module: Any) -> Kind | None:
    """Return the kind of outputs that a custom `LightningModule` declares; None if it declares none."""
    kind: Kind | None = getattr(module, "prediction_kind", None)
    if kind is not None and kind not in KINDS:
        raise ConfigError(
            f"prediction_kind of {type(module).__name__} is {kind!r}; expected one of {', '.join(KINDS)}",
            key="module._target_",
        )
    return kind


_BUILT_IN: Sequence[Task] = (
    *(Multiclass(), Binary(), Multilabel(), Regression(), Segmentation()),
    *(Multitask(), LanguageModelling(), Reconstruction(), SelfSupervised()),
)
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _BUILT_IN})
"""Built-in tasks, by their name in a config."""
_OWN: dict[str, Task] = {}
"""Custom tasks that were imported, by their dotted path."""


def register_task(task: Task) -> None:
    """Register a custom task for `task_of`."""
    _OWN[task.name] = task


def find_task(name: str) -> Task | None:
    """Return the task of a name; None if its package was not trusted and imported."""
    return TASKS.get(name) or _OWN.get(name)


def task_of(name: str | Task) -> Task:
    """Return the task of a name, and register a custom one."""
    if isinstance(name, Task):
        if _OWN.get(name.name) is not name and TASKS.get(name.name) is not name:
            check_interface(name, "data.source.task")
            register_task(name)
        return name
    task = find_task(name)
    if task is None and "." in name:
        raise ValueError(
            f"task={name!r} is in a package that is not trusted here; if the package is yours, add "
            f"trusted_packages: [{name.partition('.')[0]}] to conf/project.yaml; a data source sets "
            f"the task itself: task = {name.rpartition('.')[2]}()"
        )
    if task is None:
        message = f"task={name!r}: expected one of {', '.join(TASKS)}, or the dotted path of a custom task"
        raise ValueError(message)
    return task


def infer_task(*, is_real: bool, num_columns: int, num_classes: int) -> str:
    """Infer the task of targets without one: regression for real numbers, else classes or labels."""
    if is_real:
        return Regression.name
    if num_columns != 1:
        return Multilabel.name
    if num_classes == Binary.num_classes:
        return Binary.name
    return Multiclass.name
