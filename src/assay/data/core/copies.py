"""What makes scores on held-out samples too good: copies in training, and groups and times ignored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from assay.data.core.subset import blocks
from assay.errors import DataError
from assay.quoting import format_override

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from assay.data.core.samples import Samples
    from assay.data.core.types import Bools, Rows

    Subsets = Mapping[str, Samples]
    Cuts = Mapping[str, Rows]


COPIES = "are also in training"
_HINT = (
    "scores on them are optimistic: data.split.dedup=true leaves them out of training, "
    "data.split.group keeps them in one subset"
)
_WORD = re.compile(r"\w+")
_SHARED = 0.1
"""Rows of a subset with a group in training, below which a column rather holds names than groups."""


def find_copies(all_data: Subsets, rows: Cuts) -> list[str]:
    """Note how many samples of val and test are in training."""
    hashes = hash_samples(all_data)
    if hashes is None:
        return []
    train = rows["train"]
    known = hashes["train"][train]
    equal = []
    for subset in ("val", "test"):
        pool = "train"
        if subset in all_data:
            pool = subset
        own = rows[subset]
        shared = own[_is_in(hashes[pool][own], known)]
        if len(shared):
            originals = train[_is_in(known, hashes[pool][shared])]
            pairs = _hash_pairs(all_data[pool], hashes[pool], shared)
            same = _is_in(pairs, _hash_pairs(all_data["train"], hashes["train"], originals)).sum()
            twin = originals[hashes["train"][originals] == hashes[pool][shared[0]]][0]
            equal.append(
                f"{len(shared):,} of {len(own):,} in {subset} ({same:,} with the same target; "
                f"such as {_sample_name(all_data[pool], shared[0])}, like "
                f"{_sample_name(all_data['train'], twin)})"
            )
    if equal:
        return [f"data: samples that {COPIES}: {' and '.join(equal)}; {_HINT}"]
    return []


def _is_in(values: Rows, known: Rows) -> Bools:
    """As `np.isin`, which takes many times as long for a million values."""
    found: Bools = pd.Series(values).isin(known).to_numpy()
    return found


def leave_out_copies(all_data: Subsets, rows: dict[str, Rows]) -> str:
    """Leave what `find_copies` counts out of training; val and test stay, so that scores can be compared."""
    hashes = hash_samples(all_data)
    if hashes is None:
        raise DataError(
            "data.split.dedup=true: these samples are read one by one, and cannot be compared",
            hint="data.split.dedup=false",
        )
    train = rows["train"]
    held_out = [hashes.get(subset, hashes["train"])[rows[subset]] for subset in ("val", "test")]
    rows["train"] = train[~np.isin(hashes["train"][train], np.concatenate(held_out))]
    left_out = (
        f"{len(train) - len(rows['train']):,} of {len(train):,} training samples are left out"
    )
    return f"data.split.dedup=true: {left_out}, as they are in val or test, too"


def note_ignored_columns(training: Samples, drawn: str, rows: Cuts, *, folds: bool) -> list[str]:
    """Note which groups of rows, such as those of a customer, and which times a random split ignores."""
    notes = []
    for name, hint in training.split_hints.items():
        values = training.split_values[name].reset_index(drop=True)
        if hint == "time":
            typed = (
                format_override("data.split.time", name)
                + " data.split.folds=null fold=null" * folds
            )
            times = values.dropna()
            times = (times if times.dtype.kind in "iufM" else times.astype(str)).sort_values()
            ends = " to ".join(
                str(end).removesuffix(" 00:00:00") for end in (times.iloc[0], times.iloc[-1])
            )
            notes.append(
                f"data: the rows are split at random, but {name!r} dates them ({ends}); "
                f"scores are too good if you want to predict later rows: {typed} (then no feature)"
            )
            continue
        share = values[rows[drawn]].dropna().isin(values[rows["train"]]).sum() / len(rows[drawn])
        if share >= _SHARED:
            notes.append(
                f"data: {100 * share:.0f} % of the rows in {drawn} have a {name!r} whose other rows "
                f"{COPIES}; scores are too good if you want to predict new ones: "
                f"{format_override('data.split.group', name)}"
            )
    return notes


def _sample_name(data: Samples, row: int) -> str:
    if data.names:
        return data.names[row]
    return f"row {row}"


def hash_samples(subsets: Subsets) -> dict[str, Rows] | None:
    """A number for each sample, equal where the samples are; None where they would have to be read.

    Texts are equal where case and punctuation alone differ.
    """
    # Numbers of one kind alone can be compared.
    if all(data.hashes for data in subsets.values()):
        return {subset: np.array([*map(hash, data.hashes)]) for subset, data in subsets.items()}
    if all(data.in_memory for data in subsets.values()):
        return {subset: hash_rows(data.inputs) for subset, data in subsets.items()}
    raw: list[Any] = [data.raw for data in subsets.values()]
    if not all(isinstance(frame, pd.DataFrame | pd.Series) for frame in raw):
        return None
    joined = raw[0]
    if len(raw) > 1:
        joined = pd.concat(raw, ignore_index=True)  # columns of the same type in all subsets
    column = getattr(next(iter(subsets.values())).encoder, "column", None)
    if column is not None:
        joined = joined[column].map(
            lambda text: " ".join(_WORD.findall(str(text).casefold())) or text
        )
    numbers = pd.util.hash_pandas_object(joined, index=False).to_numpy().view(np.int64)
    return dict(zip(subsets, np.split(numbers, np.cumsum([*map(len, raw)])[:-1]), strict=True))


def _hash_pairs(data: Samples, hashes: Rows, rows: Rows) -> Rows:
    """A number for each sample with its target."""
    return hashes[rows] * 31 + hash_rows(data.targets[torch.as_tensor(rows)])


def hash_rows(tensor: Tensor) -> Rows:
    """A number for each row, by its bytes."""
    numbers: list[int] = []
    for block in blocks(tensor, torch.arange(len(tensor))):
        plain = block.reshape(len(block), -1).contiguous().view(torch.uint8).numpy()
        numbers += [hash(row.tobytes()) for row in plain]
    return np.array(numbers, dtype=np.int64)
