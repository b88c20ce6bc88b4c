"""Names for the types that stand in many signatures here; for annotations alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame, Series
    from torch import Tensor

Frame: TypeAlias = "DataFrame"
Values: TypeAlias = "Series[Any]"
"""A column, or what was made of one."""
Floats: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"
Rows: TypeAlias = "NDArray[np.int64]"
Strings: TypeAlias = "Sequence[str]"
Options: TypeAlias = "Mapping[str, Any]"
Pair: TypeAlias = "tuple[Tensor, Tensor]"
"""Inputs and targets."""
Size: TypeAlias = "tuple[int, int]"
"""Height and width."""
