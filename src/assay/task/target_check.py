"""Targets that are not of their task, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from assay.task.task import Task


def subset_in_words(subset: str) -> str:
    """What a message calls a subset.

    >>> subset_in_words("test"), subset_in_words("all")
    ('the test subset', 'the whole data')
    """
    return "the whole data" if subset == "all" else f"the {subset} subset"


def wrong_form(task: Task, subset: str, targets: Tensor) -> DataError:
    """That targets have another shape or type.

    Args:
        task: What they should be of.
        subset: They are of.
        targets: At least one.
    """
    return DataError(
        f"data: {subset_in_words(subset)}'s targets have shape {tuple(targets.shape)}, type {targets.dtype}; "
        f"a {task.name} task has {task.form}",
        hint="set data.source.task, or change the targets",
    )


def check_range(subset: str, targets: Tensor, highest: int, what: str) -> None:
    """Refuse numbers that are no classes or labels."""
    if not 0 <= targets.min() <= targets.max() <= highest:
        raise DataError(
            f"data: {subset_in_words(subset)} has targets from {targets.min()} to {targets.max()}; "
            f"{what} go from 0 to {highest}",
            hint="number the classes from 0, for example with numpy.unique(targets, return_inverse=True)",
        )
