"""Samples of a data set: in memory, read one at a time, or still to be encoded."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from assay.data.core.types import Rows


class IndexedDataset(Protocol):
    """A map-style data set of `(input, target)` tuples or of mappings whose first two values these are."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@final
@dataclass(frozen=True, eq=False)
class LazyDataset:
    """Samples that a function reads by their index."""

    length: int
    read: Callable[[int], tuple[Any, Any]]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.read(index)


class Encoder(Protocol):
    """Turns raw records into inputs with statistics of the training subset alone."""

    @property
    def vocab_size(self) -> int:
        """Inputs are token ids from 0, which is padding, to below this; 0: they are not."""
        ...

    def fit(self, raw: Any, rows: Rows) -> None:
        """Learn the statistics.

        Args:
            raw: Records.
            rows: Those of the training subset.
        """

    def transform(self, raw: Any) -> Tensor:
        """Inputs `[N, ...]` of all records.

        Args:
            raw: N records.
        """
        ...

    def unknown(self, raw: Any) -> list[str]:
        """A sentence on records that differ from those of training.

        Args:
            raw: Records.
        """
        ...


@final
@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """A data set: what its samples are, and all targets.

    Attributes:
        inputs: One of three. A tensor `[N, ...]`, channels first, in the dtype it is stored in (uint8 for
            images). A data set that is read one sample at a time, by worker processes if asked for; see
            `IndexedDataset`. With an `encoder`: N raw records, in whatever form that takes.
        targets: int64 `[N]` class indices, multi-hot `[N, L]`, or float32 `[N, T]`.
        identity: Stands for the inputs in the data hash, such as file names and their SHA-256; empty: inputs
            in memory themselves do.
        names: What each sample is called, N of them; empty: by its row.
        columns: What each feature of inputs `[N, F]` is called; empty: by its number.
        vocab_size: Where inputs are token ids `[N, L]`: they go from 0 to below this; 0: they are not.
        token_bytes: As in `assay.data.core.spec.Spec`.
        categories: How many categories each of the last columns of inputs `[N, F]` holds the codes of, which
            go from 0 to one less; the number itself stands for one that training lacks. Empty: none do.
        lengths: int64 `[N]`: how many tokens come before the padding, which batches are cut by; None: they
            are not padded.
        split_values: N values of each column that `data.split` names, by its name.
        split_hints: `group` or `time`, by the names of `split_values` that `data.split` might name so.
        hashes: What stands for each sample's contents, N of them; empty: its inputs do, if in memory.
        unlike: Samples that are known to differ in shape, one of each shape; looked at before training.
        encoder: Makes inputs of raw records; the same object for every subset of a source, fitted once, on
            the training subset. None: they are inputs already.
    """

    inputs: Any
    targets: Tensor
    identity: str = ""
    names: Sequence[str] = ()
    columns: Sequence[str] = ()
    vocab_size: int = 0
    token_bytes: str = ""
    categories: tuple[int, ...] = ()
    lengths: Tensor | None = None
    split_values: Mapping[str, Any] = field(default_factory=dict)
    split_hints: Mapping[str, str] = field(default_factory=dict)
    hashes: Sequence[str] = ()
    unlike: tuple[int, ...] = ()
    encoder: Encoder | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        if self.in_memory:
            return (self.inputs[index], self.targets[index])
        return self.inputs[index]

    @property
    def in_memory(self) -> bool:
        """Whether the inputs are a tensor."""
        return isinstance(self.inputs, torch.Tensor)

    @property
    def raw(self) -> Any:
        """The records that are still to be encoded; None where there are none."""
        if self.encoder is None:
            return None
        return self.inputs

    def digest(self) -> str:
        """SHA-256 over the identity and the targets; without an identity over shapes and contents."""
        digest = hashlib.sha256(os.fsencode(self.identity))
        hashes_inputs = self.in_memory and not self.identity
        for tensor in (self.inputs, self.targets) if hashes_inputs else (self.targets,):
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
            for rows in tensor.split(4096):
                digest.update(rows.contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()
