"""Small tables, written and read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from assay.data.samples import Samples
from assay.data.table import Table
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.data_module import DataModule

RNG = np.random.default_rng(0)


def frame(count: int = 40) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": RNG.integers(20, 60, count),
            "height": RNG.normal(170, 10, count),
            "rooms": np.resize([1, 2, 3, 4, 5], count),
            "city": RNG.choice(["Bonn", "Köln", "Ulm"], count),
            "smokes": RNG.random(count) > 0.5,
            "kind": np.resize(["no", "yes"], count),
        }
    )


def save(table: pd.DataFrame, folder: Path, name: str = "table.csv") -> str:
    path = folder / name
    if name.endswith(".parquet"):
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return str(path)


def setup(build: Callable[..., DataModule], source: Table, **options: Any) -> tuple[DataModule, Samples]:
    datamodule = build(source, **options)
    datamodule.setup()
    data = datamodule.splits.data["train"]
    assert isinstance(data, Samples)
    return datamodule, data


def with_values(**values: Any) -> pd.DataFrame:
    table = frame()
    for name, (row, value) in values.items():
        table[name] = (
            table[name].astype(object if isinstance(value, str) else float) if name in table else 0.0
        )
        table.loc[row, name] = value
    return table


def check_refused(table: pd.DataFrame, folder: Path, message: str, hint: str, **options: Any) -> None:
    """Whether reading it ends in an error of this text, with a hint that has this in it."""
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        Table(save(table, folder), **{"target": "kind", **options}).read()
    assert hint in caught.value.hint
