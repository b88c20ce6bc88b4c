"""Columns that samples are divided by, asked of the source before it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.data.declared import Declared
from assay.errors import DataError

if TYPE_CHECKING:
    from assay.data.samples import Source
    from assay.data.splitting.split_rows import Split


def ask_for_columns(source: Source, split: Split) -> None:
    """Have a source give the values that its samples are divided by.

    Args:
        source: Not read yet.
        split: Names the columns.

    Raises:
        DataError: The source has no columns, or divides its samples itself.
    """
    columns = split.columns
    if columns and isinstance(source, Declared):
        key, name = next(iter(columns.items()))
        raise DataError(
            f"{key}={name}: this data is declared (data.spec), without such a column",
            hint=f"{key}=null; where the data has it: ~data.spec, so that it is read",
        )
    asked = {**columns, **({"data.split.folds": split.folds} if split.folds else {})}
    if asked and getattr(source, "divides_itself", False):
        key, value = next(iter(asked.items()))
        raise DataError(
            f"{key}={value}: this source divides its texts itself, and not into samples that stand alone",
            hint=f"{key}=null fold=null; data.source.split_by says how they are divided",
        )
    if hasattr(source, "split_columns"):
        source.split_columns = columns
