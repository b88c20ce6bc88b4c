"""What lies at some paths: a sweep, or runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.errors import AssayError
from assay.report.sweep.read_runs import read_runs
from assay.report.sweep.read_sweep import is_sweep, read_sweep

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.report.sweep.contents import Contents


def read_contents(paths: Sequence[Path]) -> Contents:
    """Read a sweep, or any runs; a sweep whose journal is damaged is what its runs are.

    Args:
        paths: One sweep, or any folders that hold runs.

    Raises:
        AssayError: A folder is not there, or holds nothing that could be read.
    """
    if len(paths) != 1 or not is_sweep(paths[0]):
        return read_runs(paths)
    try:
        return read_sweep(paths[0])
    except AssayError as error:
        try:
            contents = read_runs(paths)
        except AssayError:
            raise error from None
        notice = f"{error.message}. What follows is from the run directories alone."
        return replace(contents, notices=(notice, *contents.notices))
