"""A custom data source: how far diabetes has progressed, in grades."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from sklearn.datasets import load_diabetes

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from my_project.ordinal import Ordinal


@final
class DiabetesGrades(Source):
    """442 patients, 10 measurements each, and the progression a year later in grades of equally many.

    Args:
        num_grades: How many.

    Raises:
        ValueError: There are fewer than two.
    """

    task = Ordinal()

    def __init__(self, num_grades: int = 5) -> None:
        if num_grades < 2:
            raise ValueError(f"num_grades={num_grades}: at least 2 were expected")
        self.class_names = tuple(f"grade {number}" for number in range(1, num_grades + 1))

    def read(self) -> dict[str, Samples]:
        """Inputs float32 `[442, 10]`, targets int64 `[442]`."""
        table = load_diabetes()
        num_grades = len(self.class_names)
        edges = np.quantile(table.target, np.arange(1, num_grades) / num_grades)
        grades = np.searchsorted(edges, table.target, side="right")
        return {"all": Samples(torch.from_numpy(table.data).float(), torch.from_numpy(grades))}
