"""What tasks are called."""

from __future__ import annotations

from typing import Literal

TaskName = Literal["multiclass", "binary", "multilabel", "regression"]
"""A task as a config names it; `assay.task.task_of.task_of` gives the object."""
