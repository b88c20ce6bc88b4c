"""Tables in files of each format, and their inputs as people name them: a column for each category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.data.core.normalize import expand_categories

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from assay.data.table.table import Table


def write_table(frame: pd.DataFrame, path: Path) -> str:
    """A file of these rows, in the format of its name."""
    match path.suffix:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".xlsx":
            frame.to_excel(path, index=False)
        case ".jsonl":
            frame.to_json(path, orient="records", lines=True, date_format="iso")
        case suffix:
            getattr(frame, f"to_{suffix[1:]}")(path)
    return str(path)


def encoder_of(source: Table) -> Any:
    """What a table is encoded by, fitted to all of its rows."""
    (samples, *_) = source.read().values()
    encoder: Any = samples.encoder
    encoder.fit(samples.raw, np.arange(len(samples.raw)))
    return encoder


def in_columns(encoder: Any, inputs: Tensor) -> Tensor:
    """Inputs `[N, F]` of encoded rows `[N, C]`; `encoder` also stands for samples that have been encoded."""
    return expand_categories(inputs, encoder.categories)


def named_inputs(encoder: Any, rows: pd.DataFrame) -> pd.DataFrame:
    """The inputs of these rows by their names."""
    inputs = in_columns(encoder, encoder.transform(rows)).numpy()
    return pd.DataFrame(inputs, columns=encoder.feature_names)
