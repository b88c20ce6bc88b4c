"""A task of the user's own, in a file of theirs."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

GRADES = """from assay.task.single_label import SingleLabel
class Grades(SingleLabel):
    suits = "loss=ordinal"
    loss_kinds = frozenset()
    form = "one grade per sample"
"""


def made(folder: Path, text: str) -> Any:
    """The task whose class has this in its body."""
    file = folder / "grades.py"
    file.write_text(GRADES + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("grades", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(GRADES + text, str(file), "exec"), module.__dict__)  # noqa: S102 - no stale byte code
    return module.Grades()
