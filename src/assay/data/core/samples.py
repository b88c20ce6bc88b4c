"""The shapes a data set comes in: all of it in memory, one sample at a time, or still to be encoded."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.batch_order import BatchOrder
    from assay.data.core.transforms import Transforms
    from assay.data.core.types import Pair, Rows
    from assay.task.task import Task


@final
@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """A data set that fits in memory: one tensor of inputs, one of targets.

    Attributes:
        inputs: `[N, ...]`, channels first, in the dtype it is stored in (uint8 for images).
        targets: int64 `[N]` class indices, multi-hot `[N, L]`, or float32 `[N, T]`.
        identity: Stands for the inputs in the data hash, where the same data may also be streamed; empty: the
            inputs themselves do.
        names: What each sample is called, N of them; empty: by its row.
        columns: What each feature of inputs `[N, F]` is called; empty: by its number.
        vocab_size: Where inputs are token ids `[N, L]`: they go from 0 to below this; 0: they are not.
        token_bytes: As in `assay.data.core.spec.Spec`.
        lengths: int64 `[N]`: how many tokens come before the padding, which batches are cut by; None: they
            are not padded.
        split_values: N values of each column that `data.split` names, by its name.
        hashes: What stands for each sample's contents, N of them; empty: its inputs do.
    """

    inputs: Tensor
    targets: Tensor
    identity: str = ""
    names: Sequence[str] = ()
    columns: Sequence[str] = ()
    vocab_size: int = 0
    token_bytes: str = ""
    lengths: Tensor | None = None
    split_values: Mapping[str, Any] = field(default_factory=dict)
    hashes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]

    def digest(self) -> str:
        """SHA-256 over shapes, dtypes and contents (or the identity)."""
        return _digest(self.identity, *([] if self.identity else [self.inputs]), self.targets)


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


@final
@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """A data set that is read one sample at a time, by worker processes if asked for.

    Attributes:
        dataset: Gives the samples; images as uint8 tensors `[C, H, W]`.
        targets: All targets, known without reading an input; as in `Samples`.
        identity: What stands for the contents in the data hash, such as file names and their SHA-256.
        unlike: Samples that are known to differ in shape, one of each shape; looked at before training.
        names: What each sample is called, N of them; empty: by its row.
        split_values: As in `Samples`.
        hashes: As in `Samples`; empty: equal samples are not looked for.
    """

    dataset: IndexedDataset
    targets: Tensor
    identity: str = ""
    unlike: tuple[int, ...] = ()
    names: Sequence[str] = ()
    split_values: Mapping[str, Any] = field(default_factory=dict)
    hashes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def digest(self) -> str:
        """SHA-256 over the identity and the targets."""
        return _digest(self.identity, self.targets)


class Encoder(Protocol):
    """Turns raw records into inputs with statistics of the training subset alone."""

    def fit(self, raw: Any, rows: NDArray[np.int64]) -> None:
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


@final
@dataclass(frozen=True, eq=False)
class Unfitted:
    """A data set whose inputs depend on which samples are for training (imputation, one-hot columns).

    Attributes:
        raw: N records, in whatever form the encoder takes.
        targets: As in `Samples`.
        encoder: The same object for every subset of a source; fitted once, on the training subset.
        names: As in `Samples`.
        split_values: As in `Samples`.
        split_hints: `group` or `time`, by the names of `split_values` that `data.split` might name so.
    """

    raw: Any
    targets: Tensor
    encoder: Encoder
    names: Sequence[str] = ()
    split_values: Mapping[str, Any] = field(default_factory=dict)
    split_hints: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.targets)


class TrainStream(Protocol):
    """Training samples that are never all in memory, in an order that is a function of (seed, epoch)."""

    num_samples: int
    class_counts: tuple[int, ...]
    """Of each class; empty where there are none."""
    digest: str
    """SHA-256 of the contents."""
    row_bytes: int
    """Of a sample before it is decoded."""

    def steps_per_window(self, order: BatchOrder) -> int:
        """Batches of all ranks together whose samples are drawn from one window."""
        ...

    def rows(self, order: BatchOrder, epoch: int, first: int, count: int = 1) -> Rows:
        """Numbers of the samples that make up batches."""
        ...

    def batches(
        self, order: BatchOrder, epoch: int, first: int, count: int, transforms: Transforms
    ) -> list[Pair]:
        """Batches of this rank that lie in one window."""
        ...


class Source(Protocol):
    """Where samples come from. One class a data set, in the module of the data set's name.

    An attribute `info`, an `assay.data.core.source_info.SourceInfo`, declares what others need to know of it.
    One that has columns beside its inputs has an attribute `split_columns`: set before `read()` to what
    `data.split` names, by key, it asks for `split_values`. One that downloads has a method `prepare()`, which
    is called before that, on one process of a machine.
    """

    @property
    def task(self) -> str | Task:
        """Its name, or one of your own itself; read after `read()`."""
        ...

    class_names: tuple[str, ...]
    """One name per class or label, none for regression; read after `read()`."""

    def read(self) -> Mapping[str, Samples | Stream | Unfitted]:
        """The subsets the data set comes in: `all`, or `train` and any of `val`, `test`.

        Raises:
            DataError: The data is missing or not what it should be.
        """
        ...


def subset_of(read: Mapping[str, Any], name: str) -> Any:
    """A subset as a source reads it; the whole where the source does not divide its samples."""
    return read[name if name in read else "all" if "all" in read else "train"]


def _digest(identity: str, *tensors: Tensor) -> str:
    digest = hashlib.sha256(os.fsencode(identity))
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
        for rows in tensor.split(4096):  # type: ignore[no-untyped-call]  # torch leaves it untyped
            digest.update(rows.contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
