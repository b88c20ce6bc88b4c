"""What tasks are called."""

from __future__ import annotations

TaskName = str
"""A task as a config names it: one of `assay.task.task_of.TASKS`, or the dotted path of one of your own."""
