"""What there is to know of a data set before anything is trained on it, and the same on a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pandas as pd
import torch

from assay.data.loaders import KeyedDataset, input_of
from assay.data.samples import Samples, Unfitted
from assay.data.subset import hashes_of, row_numbers
from assay.data.tabular.column_kind import is_number
from assay.data.transforms import Transforms
from assay.errors import DataError
from assay.quoting import counted
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from assay.data.data_module import DataModule
    from assay.data.subset import Subset


SUBSETS: Final = ("train", "val", "test")
_MOST_READ: Final = 2000
_MOST_COLUMNS: Final = 1000
_FEW, _RARE, _UNEVEN = 5, 20, 100
_BINS: Final = 12
_COPIES: Final = "are in training, too"


@final
@dataclass(frozen=True)
class Values:
    """How numbers are distributed.

    Attributes:
        low: The smallest.
        mean: Their mean.
        high: The largest.
        histogram: How many lie in each of some bins of equal width.
    """

    low: float
    mean: float
    high: float
    histogram: Sequence[int] = ()


@final
@dataclass(frozen=True)
class SubsetSurvey:
    """One of the subsets that samples are divided into.

    Attributes:
        name: `train`, `val` or `test`.
        num_samples: How many.
        class_counts: Of each class or label; empty where there are none.
        targets: Of each real-valued target.
        values: Of the inputs of up to 2,000 samples, before they are transformed; of token ids, how many a
            sample has.
        num_equal: Samples whose inputs an earlier one of the subset has, too; null where nobody knows.
        in_training: Samples whose inputs are in training, too; null where nobody knows.
        unreadable: Samples that cannot be read, each with the reason.
    """

    name: str
    num_samples: int
    class_counts: Sequence[int] = ()
    targets: Sequence[Values] = ()
    values: Values | None = None
    num_equal: int | None = None
    in_training: int | None = None
    unreadable: Sequence[str] = ()


@final
@dataclass(frozen=True)
class ColumnSurvey:
    """A column of the training rows.

    Attributes:
        name: Of the column.
        kind: `number`, `date`, `category` or `text`.
        num_missing: Rows without a value.
        num_different: How many different values it has.
        values: Of numbers; null of others.
        frequent: The most frequent values of others, with how often each occurs.
        span: The first and the last of dates; empty of others.
    """

    name: str
    kind: str
    num_missing: int
    num_different: int
    values: Values | None = None
    frequent: Mapping[str, int] = field(default_factory=dict)
    span: Sequence[str] = ()


@final
@dataclass(frozen=True)
class Survey:
    """What was seen of the data of a job.

    Attributes:
        name: Of the data's option.
        task: What is predicted.
        in_words: The same, such as `3 classes`.
        input_shape: Of a sample as the model gets it.
        class_names: Of classes or labels.
        target_names: Of real-valued targets, as far as they have names.
        subsets: These, in the order of training, validation and test.
        columns: Of a table, or of features; at most 1,000.
        notes: What the data decided on its own.
        warnings: What will hurt.
        page: The HTML file; null where none was asked for.
    """

    name: str
    task: str
    in_words: str
    input_shape: Sequence[int]
    class_names: Sequence[str]
    target_names: Sequence[str]
    subsets: Sequence[SubsetSurvey]
    columns: Sequence[ColumnSurvey]
    notes: Sequence[str]
    warnings: Sequence[str]
    page: Path | None = None


def survey(datamodule: DataModule, name: str, tables: Mapping[str, pd.DataFrame]) -> Survey:
    """Look at all of the data as a run would get it."""
    spec, task = datamodule.spec, task_of(datamodule.spec.task)
    subsets = {name: datamodule.subset(name) for name in SUBSETS}
    hashes = {name: _hashes(subset) for name, subset in subsets.items()}
    found = Survey(
        name,
        task.name,
        task.in_words(spec.as_config()),
        tuple(spec.input_shape),
        spec.class_names,
        spec.target_names,
        [
            _surveyed(name, subset, hashes, spec.class_names, task.name)
            for name, subset in subsets.items()
            if len(subset.rows)
        ],
        _columns(datamodule, subsets["train"], tables.get("train")),
        [note for note in datamodule.notes if _COPIES not in note],
        [note for note in datamodule.notes if _COPIES in note],
    )
    conflicting = _conflicting(subsets["train"], hashes["train"]) if task.by_class else 0
    return replace(found, warnings=[*found.warnings, *_warnings(found, conflicting)])


def _hashes(subset: Subset) -> NDArray[np.int64] | None:
    known = hashes_of(subset.data)
    return None if known is None else known[subset.rows.numpy()]


def _surveyed(
    name: str,
    subset: Subset,
    hashes: Mapping[str, NDArray[np.int64] | None],
    class_names: Sequence[str],
    task_name: str,
) -> SubsetSurvey:
    task, targets = task_of(task_name), subset.data.targets[subset.rows]
    own, train = hashes[name], hashes["train"]
    read, unreadable = _read(subset)
    if getattr(subset.data, "vocab_size", 0):
        read = [(one != 0).sum() for one in read]
    numbers = np.concatenate([one.double().flatten().numpy() for one in read]) if read else np.zeros(0)
    real = targets.double().reshape(len(targets), -1).numpy() if task.has_real_targets else None
    return SubsetSurvey(
        name,
        len(subset.rows),
        tuple(task.sizes(targets, class_names).get("class_counts") or ()),
        () if real is None else tuple(values_of(real[:, at]) for at in range(real.shape[1])),
        values_of(numbers) if len(numbers) else None,
        None if own is None else len(own) - len(np.unique(own)),
        None if own is None or train is None or name == "train" else int(np.isin(own, train).sum()),
        unreadable,
    )


def _read(subset: Subset) -> tuple[list[torch.Tensor], list[str]]:
    """Inputs, evenly spread over the subset, before they are transformed; and what cannot be read."""
    spread = torch.linspace(0, len(subset.rows) - 1, min(len(subset.rows), _MOST_READ)).round().long()
    if isinstance(subset.data, Samples):
        return list(subset.data.inputs[subset.rows[spread]]), []
    dataset = KeyedDataset(subset.data, Transforms(), 0)
    inputs, unreadable = [], []
    for row in subset.rows[spread].tolist():
        try:
            inputs.append(input_of(dataset[0, row, row]))
        except DataError as error:
            unreadable.append(error.message)
    return inputs, unreadable


def values_of(numbers: NDArray[Any]) -> Values:
    """How numbers are distributed."""
    finite = np.asarray(numbers, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Values(float("nan"), float("nan"), float("nan"))
    counts = np.histogram(finite, _BINS)[0] if finite.min() < finite.max() else np.array([len(finite)])
    return Values(float(finite.min()), float(finite.mean()), float(finite.max()), tuple(counts.tolist()))


def _columns(datamodule: DataModule, train: Subset, frame: pd.DataFrame | None) -> list[ColumnSurvey]:
    if frame is None:
        frame = _features(train)
    if frame is None or len(frame.columns) > _MOST_COLUMNS:
        return []
    learned = {column.name: column.kind for column in getattr(datamodule.encoder, "columns", ())}
    found = []
    for name in frame.columns:
        column = frame[name]
        kind = learned.get(str(name), "number" if is_number(column) else "category")
        counts = column.value_counts()
        values, frequent = None, dict[str, int]()
        span: tuple[str, ...] = ()
        if kind == "number":
            values = values_of(column.to_numpy(dtype=np.float64, na_value=np.nan))
        elif kind == "date":
            first, last = (str(end).removesuffix(" 00:00:00") for end in (column.min(), column.max()))
            span = (first, last)
        else:
            frequent = {str(value)[:40]: int(count) for value, count in counts[:3].items()}
        missing = int(column.isna().sum())
        found.append(ColumnSurvey(str(name), kind, missing, len(counts), values, frequent, span))
    return found


def raw_tables(datamodule: DataModule) -> dict[str, pd.DataFrame]:
    """The rows of each subset as they stand in their table; none where the data is none."""
    if datamodule.encoder is None:
        return {}
    given = datamodule.source.read()
    tables = {}
    for subset in SUBSETS:
        whole: Any = given.get(subset, given.get("all", given.get("train")))
        if isinstance(whole, Unfitted) and isinstance(whole.raw, pd.DataFrame):
            tables[subset] = whole.raw.iloc[datamodule.subset(subset).rows.numpy()]
    return tables


def _features(train: Subset) -> pd.DataFrame | None:
    if not isinstance(train.data, Samples) or train.data.inputs.ndim != 2 or train.data.vocab_size:
        return None
    if train.data.inputs.shape[1] > _MOST_COLUMNS:
        return None
    names = list(train.data.columns) or [f"feature {at}" for at in range(train.data.inputs.shape[1])]
    return pd.DataFrame(train.data.inputs[train.rows].numpy(), columns=names)


def _conflicting(train: Subset, hashes: NDArray[np.int64] | None) -> int:
    """Training samples whose inputs are equal, and whose classes are not."""
    if hashes is None:
        return 0
    frame = pd.DataFrame({"inputs": hashes, "target": row_numbers(train.data.targets[train.rows])})
    different = frame.groupby("inputs")["target"].transform("nunique")
    return int((different > 1).sum())


def _warnings(found: Survey, conflicting: int) -> list[str]:
    told = []
    train = found.subsets[0]
    counts = train.class_counts
    for subset in found.subsets:
        if subset.in_training and not found.warnings:
            told.append(
                f"{subset.in_training:,} of {subset.num_samples:,} samples in {subset.name} {_COPIES}: "
                "scores on them say little about new data"
            )
        if subset.unreadable:
            told.append(
                f"{counted(len(subset.unreadable), 'sample')} of {subset.name} cannot be read: "
                f"{subset.unreadable[0]}"
            )
        lacking = [
            name
            for name, count in zip(found.class_names, subset.class_counts, strict=False)
            if not count and subset is not train
        ]
        if lacking:
            told.append(f"{subset.name} has no sample of {_listed(lacking)}: its scores say nothing about it")
    if train.num_equal and train.num_equal * _RARE >= train.num_samples:
        told.append(f"{train.num_equal:,} of {train.num_samples:,} training samples are copies of others")
    if conflicting:
        told.append(f"{conflicting:,} training samples have equal inputs and different classes")
    few = [name for name, count in zip(found.class_names, counts, strict=False) if count < _FEW]
    if few:
        told.append(f"fewer than {_FEW} training samples: {_listed(few)}")
    if counts and min(counts) and max(counts) >= _UNEVEN * min(counts):
        times = max(counts) / min(counts)
        told.append(f"the largest class has {times:,.0f} times the samples of the smallest")
    constant = [column.name for column in found.columns if column.num_different <= 1]
    if constant:
        told.append(f"a single value in all training rows: {_listed(constant)}")
    gaps = [column.name for column in found.columns if 2 * column.num_missing > train.num_samples]
    if gaps:
        told.append(f"more than half of the training rows have no value: {_listed(gaps)}")
    return told


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


_LEVELS: Final = "▁▂▃▄▅▆▇█"


def histogram(counts: Sequence[int]) -> str:
    """A column a bin; an empty bin is a dot."""
    highest = max(counts, default=0) or 1
    return "".join(_LEVELS[-(-8 * count // highest) - 1] if count else "·" for count in counts)
