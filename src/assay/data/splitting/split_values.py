"""What samples are divided by: a column, or what a regular expression finds in the paths of files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from assay.data.samples import Unfitted
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.data.samples import Samples, Stream

_SUBSETS: Final = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
}


def values_of(data: Samples | Stream | Unfitted, key: str, name: str) -> pd.Series[Any]:
    """A value for each sample.

    Args:
        data: The samples.
        key: That names the column, for messages.
        name: Of the column, or a regular expression over `data.names`.

    Raises:
        DataError: There is none, or a sample has no value.
    """
    if name in data.split_values:
        values = pd.Series(data.split_values[name])
        if len(values) != len(data.targets):
            raise DataError(
                f"{key}={name}: {len(values)} values for {len(data.targets)} samples; one each was expected",
                hint=f"{key}=null, or one value per sample",
            )
    elif not isinstance(data, Unfitted) and data.names:
        values = pd.Series(_found_in(data.names, key, name))
    else:
        raise DataError(
            f"{key}={name}: this data has neither columns beside its inputs nor file names to split by",
            hint=f"{key}=null: samples are drawn at random then",
        )
    if (missing := values.isna().to_numpy()).any():
        raise DataError(
            f"{key}={name}: no value in row {values.index[int(missing.argmax())]} (rows count from 0; "
            f"{int(missing.sum())} of {len(values)} rows)",
            hint="fill them in, or leave such rows out of the file",
        )
    return values


def _found_in(names: Sequence[str], key: str, pattern: str) -> list[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise DataError(
            f"{key}={pattern}: not a regular expression: {error}", hint=_pattern(key, names)
        ) from error
    if compiled.groups != 1:
        raise DataError(
            f"{key}={pattern}: this data has no columns; a regular expression over the paths of its files "
            f"was expected, with one group in parentheses, not with {compiled.groups}",
            hint=_pattern(key, names),
        )
    matches = [compiled.search(name) for name in names]
    for name, match in zip(names, matches, strict=True):
        if match is None or match[1] is None:
            raise DataError(
                f"{key}={pattern}: finds nothing in {name!r} ({sum(not one for one in matches)} of "
                f"{len(names)} files)",
                hint=_pattern(key, names),
            )
    return [match[1] for match in matches if match is not None]


def _pattern(key: str, names: Sequence[str]) -> str:
    return f"such as {key}='\"([^/_]+)_[^/]*$\"', for what stands before a _ in {names[0]!r}"


def groups_of(values: pd.Series[Any]) -> NDArray[np.int64]:
    """Groups as numbers from 0, in the order in which they first occur.

    Args:
        values: One for each sample.
    """
    return np.asarray(pd.factorize(values)[0], dtype=np.int64)


def times_of(values: pd.Series[Any], key: str, name: str) -> pd.Series[Any]:
    """Times that can be ordered: numbers as they are, texts as dates.

    Args:
        values: One for each sample.
        key: For messages.
        name: Of the column.

    Raises:
        DataError: A value is neither a number nor a date.
    """
    if values.dtype.kind in "iufM":
        return values
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        plain: pd.Series[Any] = values.dt.tz_convert("UTC").dt.tz_localize(None)
        return plain
    texts = values.astype(str).str.strip()
    if texts.str.fullmatch(r"\d{1,15}").all():  # years, or 20240131
        numbers: pd.Series[Any] = pd.to_numeric(texts)
        return numbers
    dates: pd.Series[Any] = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce").dt.tz_localize(
        None
    )
    if (wrong := dates.isna().to_numpy()).any():
        row = int(wrong.argmax())
        raise DataError(
            f"{key}={name}: {texts.iloc[row]!r} in row {values.index[row]} is neither a number nor a date "
            f"written as 2024-12-31 ({int(wrong.sum())} of {len(wrong)} rows)",
            hint="rewrite such values: pandas.to_datetime(column, format=…), or name another column",
        )
    return dates


def subsets_of(values: pd.Series[Any], key: str, name: str) -> NDArray[np.str_]:
    """`train`, `val` or `test` for each sample.

    Args:
        values: One for each sample.
        key: For messages.
        name: Of the column.

    Raises:
        DataError: A value is none of these.
    """
    texts = values.astype(str).str.strip().str.casefold()
    subsets = texts.map(_SUBSETS)
    if (wrong := subsets.isna().to_numpy()).any():
        unknown = values[wrong].astype(str).unique()
        more = ", …" if len(unknown) > 5 else ""
        raise DataError(
            f"{key}={name}: the column holds {', '.join(map(repr, unknown[:5]))}{more}; train, val and test "
            "were expected",
            hint="rename these values, or name another column",
        )
    return subsets.to_numpy(dtype=np.str_)
