"""Columns of a table as one tensor of floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.preprocessing import OneHotEncoder  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


@final
class TableEncoder:
    """Numbers as they are, categories as one column each; see `assay.data.table.Table`.

    Made of scikit-learn's `SimpleImputer` and `OneHotEncoder`, fitted on the training rows. A category that
    training lacks counts with the rarest ones, or as none of them.

    Args:
        impute: Fill in missing values; otherwise there must be none.
        max_categories: Columns a categorical column may become; None for any number.
    """

    def __init__(self, impute: bool = False, max_categories: int | None = None) -> None:
        self._impute, self._max_categories = impute, max_categories
        self._columns: ColumnTransformer | None = None
        self._categorical: list[str] = []

    def fit(self, raw: pd.DataFrame, rows: NDArray[np.int64]) -> None:
        """Learn the categories, and the values to fill in.

        Args:
            raw: The table.
            rows: Those of the training part.

        Raises:
            DataError: A column is neither numbers nor categories.
        """
        self._categorical = [str(name) for name in raw.columns if not _is_number(raw[name])]
        numerical = [str(name) for name in raw.columns if name not in self._categorical]
        one_hot: Any = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=self._max_categories,
            sparse_output=False,
            dtype=np.float32,
        )
        numbers: Any = "passthrough"
        if self._impute:
            numbers = SimpleImputer(strategy="median", keep_empty_features=True)
            one_hot = make_pipeline(
                SimpleImputer(strategy="most_frequent", keep_empty_features=True), one_hot
            )
        self._columns = ColumnTransformer(
            [("numbers", numbers, numerical), ("categories", one_hot, self._categorical)], sparse_threshold=0
        )
        self._columns.fit(self._plain(raw.iloc[rows]))

    def transform(self, raw: pd.DataFrame) -> Tensor:
        """Float32 `[N, F]`: the numbers in the table's order, then the categories of each column.

        Args:
            raw: A table of the same columns.

        Raises:
            DataError: A column that held numbers in training holds something else.
        """
        if self._columns is None:
            raise RuntimeError("fit() comes first")
        values = self._columns.transform(self._plain(raw))
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))

    def _plain(self, raw: pd.DataFrame) -> pd.DataFrame:
        """Float64 and text columns with NaN for missing values, as scikit-learn takes them."""
        plain = {}
        for name in raw.columns:
            column = raw[name]
            if name in self._categorical:
                text = column.astype(str).astype(object)
                plain[name] = text.where(column.notna(), np.nan)
            elif _is_number(column):
                values = column.to_numpy(dtype=np.float64, na_value=np.nan)
                plain[name] = pd.Series(np.where(np.isinf(values), np.nan, values), index=raw.index)
            else:
                raise DataError(
                    f"data: the column {name!r} holds numbers in the training table, but not in every part",
                    hint="clean the column, or leave it out with data.source.features=[…]",
                )
        return pd.DataFrame(plain, index=raw.index)


def _is_number(column: pd.Series[Any]) -> bool:
    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        raise DataError(
            f"data: the column {column.name!r} holds dates, which are neither numbers nor categories",
            hint="turn it into numbers, or leave it out with data.source.features=[…]",
        )
    if pd.api.types.is_complex_dtype(column):
        raise DataError(
            f"data: the column {column.name!r} holds complex numbers", hint="split it into two columns"
        )
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))
