"""Samples that are in two subsets: a score on what was trained on says little about new data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from assay.data.samples import Stream, Unfitted
from assay.data.splitting.subset import blocks
from assay.quoting import override

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.samples import Samples

    Data = Samples | Stream | Unfitted

_SHARED = 0.1
"""Rows of a subset with a group in training, below which a column rather holds names than groups."""


def leaks(every: Mapping[str, Data], rows: Mapping[str, NDArray[np.int64]]) -> list[str]:
    """Say how many samples of val and test are in training, too; nothing where none is.

    Rows of a table are equal where their columns are, pictures in files where the files are, other samples
    where their inputs are. Samples that are streamed from elsewhere are not looked at.

    Args:
        every: What is divided, as `train`, and the subsets that the source has of its own.
        rows: Of each subset; a subset that `every` lacks is taken of `train`.
    """
    hashes = _hashes(every)
    if hashes is None:
        return []
    of = {subset: (subset if subset in every else "train") for subset in rows}
    inputs = {subset: hashes[of[subset]][own] for subset, own in rows.items()}
    found = []
    for subset in ("val", "test"):
        if len(shared := np.flatnonzero(np.isin(inputs[subset], inputs["train"]))):
            there = np.flatnonzero(np.isin(inputs["train"], inputs[subset][shared]))
            twins = _targets(every["train"], rows["train"][there])
            own = _targets(every[of[subset]], rows[subset][shared])
            pairs = set(zip(inputs["train"][there].tolist(), twins, strict=True))
            both = sum(pair in pairs for pair in zip(inputs[subset][shared].tolist(), own, strict=True))
            name = _name(every[of[subset]], int(rows[subset][shared[0]]))
            twin = int(rows["train"][np.flatnonzero(inputs["train"] == inputs[subset][shared[0]])[0]])
            found.append(
                f"{len(shared):,} of {len(inputs[subset]):,} in {subset} ({both:,} with the same target; "
                f"such as {name}, like {_name(every['train'], twin)})"
            )
    copies = " and ".join(found)
    hint = "leave copies out, or keep them in one subset with data.split.group"
    told = (
        f"data: samples that are in training, too: {copies}; scores on them say little about new data: {hint}"
    )
    return [told] if found else []


def undivided_columns(
    whole: Data, given: Mapping[str, Data], rows: Mapping[str, NDArray[np.int64]], *, folds: bool
) -> list[str]:
    """Say which groups of rows, such as those of a customer, and which times a random division ignores.

    Args:
        whole: What is divided.
        given: Subsets that the source has of its own.
        rows: Of each subset.
        folds: Whether the division is into folds.
    """
    drawn = [subset for subset in ("test", "val") if subset not in given and len(rows[subset])]
    notes, hints = list[str](), whole.split_hints if isinstance(whole, Unfitted) and drawn else {}
    for name, hint in hints.items():
        values = whole.split_values[name].reset_index(drop=True)
        if hint == "time":
            typed = override("data.split.time", name) + " data.split.folds=null fold=null" * folds
            notes.append(
                f"data: the rows are divided at random, and {name!r} dates them ({_ends(values.dropna())}); "
                f"scores are too good if later rows are to be predicted: {typed}"
            )
            continue
        share = values[rows[drawn[0]]].dropna().isin(values[rows["train"]]).sum() / len(rows[drawn[0]])
        if share >= _SHARED:
            notes.append(
                f"data: {100 * share:.0f} % of the rows in {drawn[0]} have a {name!r} whose other rows "
                "are in training, too; scores are too good if new ones are to be predicted: "
                f"{override('data.split.group', name)}"
            )
    return notes


def _ends(times: pd.Series[Any]) -> str:
    ends = times.sort_values(key=None if times.dtype.kind in "iufM" else lambda texts: texts.astype(str))
    return " to ".join(str(end).removesuffix(" 00:00:00") for end in (ends.iloc[0], ends.iloc[-1]))


def _hashes(every: Mapping[str, Data]) -> dict[str, NDArray[np.int64]] | None:
    """A number for each sample, equal where the samples are; None where they are not at hand."""
    if any(isinstance(data, Unfitted) for data in every.values()):
        raw: list[Any] = [data.raw for data in every.values() if isinstance(data, Unfitted)]
        if len(raw) < len(every) or not all(isinstance(one, pd.DataFrame | pd.Series) for one in raw):
            return None
        whole = pd.concat(raw, ignore_index=True)  # columns of the same type in all subsets
        numbers = pd.util.hash_pandas_object(whole, index=False).to_numpy().view(np.int64)
        return dict(zip(every, np.split(numbers, np.cumsum([len(one) for one in raw])[:-1]), strict=True))
    given = {subset: data for subset, data in every.items() if not isinstance(data, Unfitted)}
    if not all(data.hashes for data in given.values()):  # numbers of one kind alone can be compared
        given = {subset: replace(data, hashes=()) for subset, data in given.items()}
    found = {subset: hashes_of(data) for subset, data in given.items()}
    known = {subset: hashes for subset, hashes in found.items() if hashes is not None}
    return known if len(known) == len(found) else None


def hashes_of(data: Samples | Stream) -> NDArray[np.int64] | None:
    """A number for each sample, equal where samples are; None where they would have to be read."""
    if data.hashes:
        return np.array([hash(one) for one in data.hashes])
    return None if isinstance(data, Stream) else row_numbers(data.inputs)


def row_numbers(tensor: Tensor) -> NDArray[np.int64]:
    """A number for each row, by its bytes.

    Args:
        tensor: `[N, ...]`.
    """
    numbers: list[int] = []
    for block in blocks(tensor, torch.arange(len(tensor))):
        plain = block.reshape(len(block), -1).contiguous().view(torch.uint8).numpy()
        numbers += [hash(row.tobytes()) for row in plain]
    return np.array(numbers, dtype=np.int64)


def _targets(data: Data, rows: NDArray[np.int64]) -> list[int]:
    found: list[int] = row_numbers(data.targets[torch.as_tensor(rows)]).tolist()
    return found


def _name(data: Data, row: int) -> str:
    names: Sequence[str] = getattr(data, "names", ())
    return names[row] if names else f"row {row}"
