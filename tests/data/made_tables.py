"""Small tables, written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.data.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.data_module import DataModule
    from assay.data.table import Table

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
