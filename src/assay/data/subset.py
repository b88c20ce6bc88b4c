"""Rows of train, val and test, one subset as its loader sees it, and samples that are in two of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.placement import free_memory
from assay.data.samples import Samples, Stream, Unfitted
from assay.errors import DataError
from assay.quoting import override

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.transforms import Transforms

    Data = Samples | Stream | Unfitted


@final
@dataclass(frozen=True)
class Split:
    """How the samples are divided that a source does not come divided."""

    val: float
    test: float
    seed: int = 0
    group: str | None = None
    time: str | None = None
    column: str | None = None
    folds: int | None = None
    fold: int | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The columns that samples are divided by, by the key that names each."""
        named = {"group": self.group, "time": self.time, "column": self.column}
        return {f"data.split.{key}": str(name) for key, name in named.items() if name is not None}

    def share_of_rest(self, subset: str, given: Collection[str]) -> float:
        """Share of what is left to take for `subset`; the test subset is taken before validation."""
        if subset == "test":
            return self.test
        tested = 1 / self.folds if self.folds else self.test
        return self.val if "test" in given and not self.folds else self.val / (1 - tested)


def hold_out(
    indices: NDArray[np.int64], fraction: float, labels: NDArray[np.int64] | None, seed: int, subset: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Take a subset away."""
    if fraction == 0:
        return indices, indices[:0]
    stratify = None if labels is None else labels[indices]
    try:
        rest, taken = train_test_split(indices, test_size=fraction, random_state=seed, stratify=stratify)
    except ValueError as error:
        counts: list[int] = [] if stratify is None else np.unique(stratify, return_counts=True)[1].tolist()
        classes = f" of {len(counts)} classes (the smallest has {min(counts)})" if len(counts) else ""
        raise DataError(
            f"data.split.{subset}: of {len(indices)} sample(s){classes} no share of {fraction:.3g} "
            "can be cut",
            hint=f"add samples, or take no such subset: data.split.{subset}=0",
        ) from error
    return np.sort(rest), np.sort(taken)


def long_tail(
    indices: NDArray[np.int64], labels: NDArray[np.int64], num_classes: int, ratio: float, seed: int
) -> NDArray[np.int64]:
    """Thin classes out exponentially: class j keeps ⌊n_max · ratio^(j / (C - 1))⌋ samples.

    The protocol of Cui et al., "Class-Balanced Loss Based on Effective Number of Samples" (CVPR 2019), as
    LDAM uses it.
    """
    generator = np.random.default_rng(seed)
    counts = np.bincount(labels[indices], minlength=num_classes)
    kept = []
    for label in range(num_classes):
        wanted = max(1, int(counts.max() * ratio ** (label / max(1, num_classes - 1))))
        members = indices[labels[indices] == label]
        kept.append(generator.permutation(members)[:wanted])
    return np.sort(np.concatenate(kept))


_BLOCK_ELEMENTS = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class Subset:
    """The samples of a subset and what is still to be done to each."""

    data: Samples | Stream
    rows: Tensor
    keys: Tensor
    transforms: Transforms

    def apply_once(self, processes: int = 1) -> Subset:
        """Apply the deterministic transforms the chain starts with, if data and result fit in memory."""
        head, tail = self.transforms.divide()
        if not head or not isinstance(self.data, Samples) or not len(self.rows):
            return self
        one = self.rows[:1]
        pair = self.data.inputs.index_select(0, one), self.data.targets.index_select(0, one)
        first = head.pairs(*pair, 0, 0, self.keys[:1])
        if sum(one.nbytes for one in first) * len(self.rows) > free_memory() // 4 // processes:
            return self
        inputs, targets = (one.new_empty((len(self.rows), *one.shape[1:])) for one in first)
        start = 0
        for block in blocks(self.data.inputs, self.rows):
            there = slice(start, start + len(block))
            chosen = self.data.targets.index_select(0, self.rows[there])
            inputs[there], targets[there] = head.pairs(block, chosen, 0, 0, self.keys[there])
            start += len(block)
        return Subset(Samples(inputs, targets), torch.arange(len(self.rows)), self.keys, tail)


def blocks(inputs: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """Samples in blocks of a few million values, so that work on them takes bounded memory."""
    if not len(rows):
        return
    size = max(1, _BLOCK_ELEMENTS // max(1, inputs[0].numel()))
    for chunk in rows.split(size):  # type: ignore[no-untyped-call]  # torch leaves it untyped
        yield inputs.index_select(0, chunk)


_HINT: Final = (
    "scores on them say little about new data: leave copies out, or keep them in one subset with "
    "data.split.group"
)
_SHARED = 0.1
"""Rows of a subset with a group in training, below which a column rather holds names than groups."""


def find_copies(every: Mapping[str, Data], rows: Mapping[str, NDArray[np.int64]]) -> list[str]:
    """Say how many samples of val and test are in training, too."""
    if (hashes := _hashes(every)) is None:
        return []
    pools = {subset: subset if subset in every else "train" for subset in rows}
    inputs = {subset: hashes[pools[subset]][own] for subset, own in rows.items()}
    equal = []
    for subset in ("val", "test"):
        data = every[pools[subset]]
        if len(shared := np.flatnonzero(np.isin(inputs[subset], inputs["train"]))):
            there = np.flatnonzero(np.isin(inputs["train"], inputs[subset][shared]))
            pairs = set(
                zip(inputs["train"][there], _targets(every["train"], rows["train"][there]), strict=True)
            )
            own = zip(inputs[subset][shared], _targets(data, rows[subset][shared]), strict=True)
            twin = rows["train"][np.flatnonzero(inputs["train"] == inputs[subset][shared[0]])[0]]
            equal.append(
                f"{len(shared):,} of {len(inputs[subset]):,} in {subset} "
                f"({sum(pair in pairs for pair in own):,} with the same target; such as "
                f"{_name(data, rows[subset][shared[0]])}, like {_name(every['train'], twin)})"
            )
    return [f"data: samples that are in training, too: {' and '.join(equal)}; {_HINT}"] if equal else []


def undivided_columns(
    whole: Data, given: Mapping[str, Data], rows: Mapping[str, NDArray[np.int64]], *, folds: bool
) -> list[str]:
    """Say which groups of rows, such as those of a customer, and which times a random division ignores."""
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
    raw: list[Any] = [data.raw for data in every.values() if isinstance(data, Unfitted)]
    if raw:
        if len(raw) < len(every) or not all(isinstance(frame, pd.DataFrame | pd.Series) for frame in raw):
            return None
        whole = pd.concat(raw, ignore_index=True)  # columns of the same type in all subsets
        numbers = pd.util.hash_pandas_object(whole, index=False).to_numpy().view(np.int64)
        ends = np.cumsum([len(frame) for frame in raw])[:-1]
        return dict(zip(every, np.split(numbers, ends), strict=True))
    given = {subset: data for subset, data in every.items() if not isinstance(data, Unfitted)}
    if not all(data.hashes for data in given.values()):  # numbers of one kind alone can be compared
        given = {subset: replace(data, hashes=()) for subset, data in given.items()}
    found = {subset: hashes for subset, data in given.items() if (hashes := hashes_of(data)) is not None}
    return found if len(found) == len(given) else None


def hashes_of(data: Samples | Stream) -> NDArray[np.int64] | None:
    """A number for each sample, equal where samples are; None where they would have to be read."""
    if data.hashes:
        return np.array([hash(one) for one in data.hashes])
    return None if isinstance(data, Stream) else row_numbers(data.inputs)


def row_numbers(tensor: Tensor) -> NDArray[np.int64]:
    """A number for each row, by its bytes."""
    numbers: list[int] = []
    for block in blocks(tensor, torch.arange(len(tensor))):
        plain = block.reshape(len(block), -1).contiguous().view(torch.uint8).numpy()
        numbers += [hash(row.tobytes()) for row in plain]
    return np.array(numbers, dtype=np.int64)


def _targets(data: Data, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return row_numbers(data.targets[torch.as_tensor(rows)])


def _name(data: Data, row: int) -> str:
    names: Sequence[str] = getattr(data, "names", ())
    return names[row] if names else f"row {row}"
