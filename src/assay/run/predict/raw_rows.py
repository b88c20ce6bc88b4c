"""Rows of a table and texts, in whatever form a user has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_PATH = 200


def as_rows(raw: Any, column: str) -> Any:
    """Texts as rows of a table; anything else as it is.

    Args:
        raw: A string, or a list, array or series of strings, among others.
        column: What the texts are called.

    Raises:
        DataError: The string is the name of a file.

    >>> as_rows("some text", "text")
    {'text': 'some text'}
    """
    if isinstance(raw, str):
        if len(raw) < _LONGEST_PATH and "\n" not in raw and Path(raw).is_file():
            raise DataError(
                f"{raw!r} is a text for this model, and there is a file of this name",
                hint=f"for the texts in the file: pathlib.Path({raw!r})",
            )
        return {column: raw}
    of_texts = (isinstance(raw, pd.Series) and column not in raw.index) or (
        isinstance(raw, list | tuple | np.ndarray) and len(raw) and all(isinstance(one, str) for one in raw)
    )
    return pd.DataFrame({column: list(raw)}) if of_texts else raw


def as_frame(raw: Sequence[Any]) -> pd.DataFrame:
    """One table of rows.

    Args:
        raw: Tables, rows, mappings of values, or one mapping of columns.
    """
    if not any(isinstance(one, pd.DataFrame) for one in raw):
        rows = [dict(one) for one in raw]
        if len(rows) == 1 and any(
            isinstance(value, list | np.ndarray | pd.Series) for value in rows[0].values()
        ):
            return pd.DataFrame(rows[0])  # a mapping of columns
        return pd.DataFrame(rows)
    frames = [one if isinstance(one, pd.DataFrame) else pd.DataFrame([dict(one)]) for one in raw]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
