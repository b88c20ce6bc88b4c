from __future__ import annotations

import pytest
import torch

from assay.errors import DataError
from assay.run.predict.preprocess import of_type


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        (torch.tensor([1, 2], dtype=torch.int64), "float32", torch.float32),
        (torch.tensor([1.0, 2.0], dtype=torch.float64), "float32", torch.float64),
        (torch.tensor([1, 2], dtype=torch.uint8), "float32", None),
        (torch.tensor([0.0, 1.0]), "uint8", torch.float32),
        (torch.tensor([0.0, 255.0]), "uint8", None),
        (torch.tensor([0, 255]), "uint8", torch.uint8),
        (torch.tensor([0, 256]), "uint8", None),
        (torch.tensor([-1]), "uint8", None),
        (torch.tensor([0, 1]), "bool", torch.bool),
        (torch.tensor([0, 2]), "bool", None),
        (torch.tensor([3.5]), "int64", None),
        (torch.tensor([3.5]), "", torch.float32),
        (torch.tensor([3.5]), "no type", torch.float32),
    ],
)
def test_a_type_changes_where_no_value_means_something_else(
    given: torch.Tensor, name: str, expected: torch.dtype | None
) -> None:
    if expected is None:
        with pytest.raises(DataError, match=f"the model was trained on torch.{name}"):
            of_type(given, name)
        return
    found = of_type(given, name)
    assert found.dtype == expected
    assert found.tolist() == given.tolist()
