"""Rows of a table as an exported model takes them: numbers, texts or codes of categories, hashed words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from assay.data.tabular.dates import as_dates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.data.tabular.table_encoder import Column

MISSING: Final = -2
"""Code of a category that is not given, where training has learned nothing to put there."""
UNKNOWN: Final = -1
"""Code of a category that training lacks, where it counts as none."""


def table_inputs(frame: pd.DataFrame, columns: Sequence[Column]) -> dict[str, NDArray[Any]]:
    """`numbers`, float32 `[B, N]`, `categories`, text `[B, C]`, and `words`, float32 `[B, W]`.

    Each is there only where there are such columns.

    This is the recipe of the model card, with pandas alone; the check of an export compares it with what the
    run's own encoder does.

    Args:
        frame: With the columns that the model was trained on.
        columns: What the table's encoder has learned.
    """
    numbers = [column for column in columns if column.kind in ("number", "date")]
    categories = [column.name for column in columns if column.kind == "category"]
    inputs: dict[str, NDArray[Any]] = {}
    if numbers:
        values = [
            value
            for column in numbers
            for value in (_parts(frame, column) if column.kind == "date" else [frame[column.name]])
        ]
        inputs["numbers"] = np.column_stack([value.to_numpy("float32", na_value=np.nan) for value in values])
    if categories:
        inputs["categories"] = frame[categories].astype("string").fillna("").to_numpy(object)
    if texts := [column for column in columns if column.kind == "words"]:
        from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]  # ships no types
            HashingVectorizer,
        )

        inputs["words"] = np.column_stack(
            [
                HashingVectorizer(n_features=column.buckets)
                .transform(frame[column.name].astype("string").fillna("").astype(object))
                .toarray()
                for column in texts
            ]
        ).astype(np.float32)
    return inputs


def _parts(frame: pd.DataFrame, column: Column) -> list[Any]:
    dates = as_dates(frame[column.name], column.form)
    start = pd.Timestamp("1970-01-01") + pd.Timedelta(days=column.start)
    elapsed = (dates - start) / pd.Timedelta(days=1)
    return [elapsed if part == "elapsed" else getattr(dates.dt, part) for part in column.parts or ["elapsed"]]


def codes_of(texts: NDArray[Any], columns: Sequence[Column]) -> NDArray[np.int64]:
    """Codes int64 `[B, C]` of texts `[B, C]`.

    Args:
        texts: Of the categories.
        columns: What the table's encoder has learned.
    """
    categories = [column for column in columns if column.kind == "category"]
    codes = np.empty(texts.shape, dtype=np.int64)
    for position, column in enumerate(categories):
        known = text_codes(column)
        codes[:, position] = [known.get(text, unknown_code(column)) for text in texts[:, position]]
    return codes


def text_codes(column: Column) -> dict[str, int]:
    """The texts that stand for something, and their codes.

    Args:
        column: Of categories. One of integers with a gap comes as floats: `3.0` is `3`; no text is a value
            that is missing.
    """
    floats = {f"{text}.0": code for text, code in column.codes.items() if text.lstrip("-").isdigit()}
    filled = MISSING if column.fill is None else column.codes.get(str(column.fill), unknown_code(column))
    return {"": filled, **floats, **column.codes}


def unknown_code(column: Column) -> int:
    """What stands for a category that training lacks."""
    return UNKNOWN if column.other is None else column.other
