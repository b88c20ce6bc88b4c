"""Copies across subsets are counted, of tables, tensors and files alike."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch

from assay.data.samples import Samples, Stream, Unfitted
from assay.data.splitting.leakage import leaks

ROWS = {"train": np.array([0, 1, 2]), "val": np.array([3]), "test": np.array([4, 5])}
TARGETS = torch.tensor([0, 1, 0, 1, 0, 0])
VALUES = torch.tensor([[1.0, 2], [3, 4], [5, 6], [3, 4], [1, 2], [3, 4]])
"""Row 3 is row 1; row 4 is row 0; row 5 is row 1 with another target."""
TOLD = (
    "1 of 1 in val (1 with the same target; such as {3}, like {1}) and "
    "2 of 2 in test (1 with the same target; such as {4}, like {0})"
)
ROW_NAMES = [f"row {row}" for row in range(6)]
FILES = [f"f{row}.png" for row in range(6)]


def table(values: torch.Tensor, targets: torch.Tensor) -> Unfitted:
    frame = pd.DataFrame(values.numpy(), columns=["a", "b"])
    frame["c"] = frame.a.map({1.0: "x", 3.0: None, 5.0: "z"})
    return Unfitted(frame, targets, cast("Any", None))


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (table(VALUES, TARGETS), ROW_NAMES),
        (Samples(VALUES, TARGETS), ROW_NAMES),
        (Samples(VALUES.bfloat16().reshape(6, 1, 2).transpose(1, 2), TARGETS), ROW_NAMES),
        (Samples(torch.zeros(6, 1), TARGETS, names=FILES, hashes=list("abcbab")), FILES),
        (Stream(cast("Any", None), TARGETS, names=FILES, hashes=list("abcbab")), FILES),
    ],
)
def test_copies_are_counted(data: Any, names: list[str]) -> None:
    assert TOLD.format(*names) in leaks({"train": data}, ROWS)
    assert (
        leaks(
            {"train": data}, {**ROWS, "val": np.array([2]), "test": ROWS["test"][:0], "train": np.arange(2)}
        )
        == ""
    )


def test_files_of_their_own_are_compared_whatever_their_types() -> None:
    whole, test = table(VALUES[:3], TARGETS[:3]), table(VALUES[4:], TARGETS[4:])
    test.raw["a"] = test.raw["a"].astype(int)
    rows = {"train": np.arange(3), "val": np.arange(0), "test": np.arange(2)}
    assert "2 of 2 in test (1 with the same target; such as row 0, like row 0)" in leaks(
        {"train": whole, "test": test}, rows
    )


def test_what_is_streamed_without_hashes_is_not_looked_at() -> None:
    assert leaks({"train": Stream(cast("Any", None), TARGETS)}, ROWS) == ""
