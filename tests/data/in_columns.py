"""A table's inputs with a column for each category, which scikit-learn and people name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.data.core.normalize import expand_categories

if TYPE_CHECKING:
    from torch import Tensor


def in_columns(encoder: Any, inputs: Tensor) -> Tensor:
    """Inputs `[N, F]` of encoded rows `[N, C]`; `encoder` also stands for samples that have been encoded."""
    return expand_categories(inputs, encoder.categories)
