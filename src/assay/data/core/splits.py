"""A source divided into train, val and test, and its description."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from assay.data.core.normalize import have_same_scaling, stored_type
from assay.data.core.samples import Samples, Unfitted
from assay.data.core.source_info import info_of
from assay.data.core.spec import Spec
from assay.data.core.subset import (
    SUBSETS,
    Split,
    blocks,
    divide,
    find_copies,
    long_tail,
    note_ignored_columns,
    note_small_classes,
)
from assay.errors import DataError
from assay.quoting import join_first
from assay.task.classification import Multilabel
from assay.task.evaluator import LEFT_OUT
from assay.task.task import describe_subset
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from assay.data.core.samples import Encoder, Source, Stream, TrainStream
    from assay.data.core.spec import FittedPreprocessing
    from assay.data.core.types import Rows
    from assay.task.task import Task

    Data = Samples | Stream | Unfitted
    Numbers = tuple[float, ...]


def check_shapes(first: Tensor, trained: Tensor, others: Mapping[str, Tensor]) -> None:
    """Refuse subsets, and transforms of training, whose samples are not what is evaluated."""
    for name, samples in others.items():
        if samples.shape[1:] != first.shape[1:] or not have_same_scaling(samples, first):
            raise DataError(
                f"data: a sample of the {name} subset is {_form(samples)}, one of training {_form(first)}",
                hint="bring the subsets to one shape and type, for example with data.transform.eval",
            )
    same_channels = trained.ndim == first.ndim and trained.shape[1] == first.shape[1]
    if not same_channels or not have_same_scaling(trained, first):
        raise DataError(
            f"data.transform: a sample is {_form(trained)} after data.transform.train, and {_form(first)} "
            "after data.transform.eval",
            hint="give both the transforms that change channels or type",
        )


def _form(samples: Tensor) -> str:
    return f"{list(samples.shape[1:])} of {samples.dtype}"


def request_split_columns(source: Source, split: Split) -> None:
    """Make a source provide the values that its samples are divided by."""
    chosen = {**split.columns, "data.split.folds": split.folds, "data.split.dedup": split.dedup and "true"}
    if (typed := [item for item in chosen.items() if item[1]]) and info_of(source).divides_itself:
        key, name = typed[0]
        raise DataError(
            f"{key}={name}: this source divides its texts itself; its samples are not independent",
            hint=f"{key}=null fold=null; data.source.split_by sets how they are divided",
        )
    if hasattr(source, "split_columns"):
        source.split_columns = split.columns


def read_for_model(
    source: Source, split: Split, read: Callable[..., Splits], *, digest: str, whole: bool
) -> Splits:
    """Read a source and divide it as its run did, or take other samples as a whole."""
    joins = whole and bool(getattr(source, "divides", False))
    request_split_columns(source, split)
    try:
        splits = read(split=split)
        is_other = joins and splits.digest != digest
    except DataError:
        if not (split.columns or joins):
            raise
        request_split_columns(source, replace(split, group=None, time=None, column=None))
        is_other = True
    if is_other:
        if hasattr(source, "divides"):
            source.divides = False
        splits = read(split=split)
    if split.folds and splits.digest != digest:  # folds of other samples are of no use
        splits = read(split=replace(split, folds=None, fold=None))
    return splits


@final
@dataclass(frozen=True, eq=False)
class Splits:
    """The three subsets of a data set; with a stream, `train` is a sample of the training samples."""

    task: Task
    class_names: tuple[str, ...]
    data: Mapping[str, Samples | Stream]
    rows: Mapping[str, Rows]
    encoder: Encoder | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    stream: TrainStream | None = None

    @property
    def num_train(self) -> int:
        """Training samples."""
        return len(self.rows["train"]) if self.stream is None else self.stream.num_samples

    def targets(self, subset: str) -> Tensor:
        """Targets of one subset, in its order."""
        targets = self.data[subset].targets
        rows = self.rows[subset]
        is_slice = len(rows) == len(targets) and bool((np.diff(rows) == 1).all())
        return targets if is_slice else targets[torch.as_tensor(rows)]

    def check(self, batch_size: int) -> None:
        """Refuse what cannot be trained on."""
        num_train = self.num_train
        if num_train < 2:
            raise DataError(
                f"data: {num_train} training sample(s) after the split; training needs at least two",
                hint="add samples, or lower data.split.val and data.split.test",
            )
        shape = self.data["train"].targets.shape[1:]
        for subset, data in self.data.items():
            if isinstance(data, Samples) and (subset == "train" or data is not self.data["train"]):
                check_inputs(subset, data)
            if data.targets.shape[1:] != shape:
                raise DataError(
                    f"data: expected targets of shape {list(shape)} a sample, as in training, got "
                    f"{list(data.targets.shape[1:])} in the {subset} subset"
                )
        targets = {subset: self.targets(subset) for subset in self.rows}
        if self.stream is not None and self.stream.class_counts:
            targets["train"] = torch.tensor(self.stream.class_counts).nonzero()[:, 0]
        self.task.check_subsets(targets, self.class_names)
        if num_train < batch_size:  # last: too few may follow from what is wrong above
            raise DataError(
                f"data.batch_size={batch_size}: there are only {num_train} training samples",
                hint=f"data.batch_size={num_train}, or data.drop_last=false",
            )

    def note_lacking(self, subset: str) -> list[str]:
        """Name the classes or labels without a sample in a subset."""
        lacking = self.task.lacking(self.targets(subset), self.class_names) if len(self.rows[subset]) else []
        names = f"{self.task.unit[0]} {join_first(lacking)}"
        return [f"data: {describe_subset(subset)} has no {names}: {LEFT_OUT}"] if lacking else []

    def describe(self, first: Tensor, mean: Numbers, std: Numbers, **others: Any) -> Spec:
        """The spec of these subsets."""
        sizes = self.task.sizes(self.targets("train"), self.class_names)
        if self.stream is not None and self.stream.class_counts:
            sizes["class_counts"] = self.stream.class_counts
        return Spec(
            task=self.task.name,
            input_shape=tuple(first.shape[1:]),
            input_dtype=stored_type(first.dtype),
            vocab_size=getattr(self.data["train"], "vocab_size", 0),
            token_bytes=getattr(self.data["train"], "token_bytes", ""),
            **sizes,
            class_names=self.class_names,
            target_names=self.target_names,
            ignore_index=self.task.ignore_index,
            num_train=self.num_train,
            num_val=len(self.rows["val"]),
            num_test=len(self.rows["test"]),
            mean=mean,
            std=std,
            **others,
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over contents and division, as they were when first asked for; of a stream its own."""
        if self.stream is not None:
            return self.stream.digest
        digest = hashlib.sha256()
        contents: dict[int, str] = {}
        for subset in SUBSETS:
            data = self.data[subset]
            if id(data) not in contents:
                contents[id(data)] = data.digest()
            digest.update(contents[id(data)].encode())
            digest.update(self.rows[subset].tobytes())
        return digest.hexdigest()


def _labels(source: Source, task: Task, targets: Tensor) -> Rows | None:
    """Classes `[N]`, or labels `[N, L]`, to divide samples by; not by which of two classes is positive."""
    if isinstance(task, Multilabel):
        return (targets >= 0.5).long().numpy()
    if not task.by_class or targets.ndim > 1:
        return None
    labels: Rows = targets.numpy()
    return 1 - labels if getattr(source, "is_reversed", False) else labels


def read_splits(
    source: Source,
    split: Split,
    thin_classes: float | None,
    trained: FittedPreprocessing | None = None,
    *,
    compare: bool = True,
    asked: str | None = None,
) -> Splits:
    """Read a source and divide what it does not come divided."""
    parts = dict(source.read())
    stream = getattr(source, "stream", None)
    _check_stream(stream, split, thin_classes)
    _check_subsets(parts)
    if trained is not None:
        parts = trained.adapt(source, parts, asked)
    task = source_task = _task_of(source, None if asked else trained)
    class_names = trained.spec.class_names if trained else tuple(source.class_names)
    if asked is not None:
        task = _replace_task(source_task, asked)
        parts = {name: replace(data, targets=task.as_targets(data.targets)) for name, data in parts.items()}
        class_names = class_names if next(iter(parts.values())).targets.ndim == 1 else ()
    for subset, data in parts.items():
        task.check(subset, data.targets, class_names)
    undivided = "all" in parts
    training = parts.pop("all" if undivided else "train")
    labels = _labels(source, source_task, training.targets)
    try:
        # The source has divided a stream itself.
        rows, notes = divide(training, parts, split if stream is None else Split(0, 0), labels)
    except DataError:
        if trained is None:
            raise
        # They cannot be the run's own: too few, or without the columns that those were divided by.
        rows = {subset: np.arange(len(data)) for subset, data in parts.items()}
        rows["train"] = np.arange(len(training))
        rows = {subset: rows.get(subset, np.arange(0)) for subset in SUBSETS}
        notes = []
    if split.folds:
        parts.pop("test", None)
    if thin_classes is not None:
        if labels is None or labels.ndim > 1:
            raise DataError(
                f"data.thin_classes={thin_classes}: only classes are thinned out; this is {task.name}",
                hint="data.thin_classes=null",
            )
        rows["train"] = long_tail(rows["train"], labels, len(class_names), thin_classes, split.seed)
    if task is not source_task:
        use = f"its {len(class_names)} classes are used for validation only"
        use = use if class_names else "it does not see the targets"
        notes.insert(0, f"data.task={task.name}: learned from the inputs alone; {use}")
    all_data = {"train": training, **parts}
    if compare and trained is None:
        names = class_names[::-1] if getattr(source, "is_reversed", False) else class_names
        if labels is not None and names:
            notes += note_small_classes(labels, names, rows, all_data, split)
        notes += find_copies(all_data, rows)
        notes += note_ignored_columns(training, all_data, rows, folds=bool(split.folds))
    encoded = _encode(all_data, None if trained else rows["train"])
    shared = {subset: encoded.get(subset, encoded["train"]) for subset in SUBSETS}
    if trained and undivided:
        shared["all"] = encoded["train"]
        rows["all"] = np.arange(len(training))
    encoder = training.encoder if isinstance(training, Unfitted) else getattr(source, "fitted", None)
    # A baseline is fitted to texts; of other data only the test is shown.
    wants_all = bool(trained or stream) or getattr(shared["train"], "vocab_size", 0) > 0
    shown = rows if wants_all else ("test",)
    frames: dict[str, Any] = {name: getattr(all_data.get(name, training), "raw", None) for name in shown}
    raw = {name: frame.iloc[rows[name]] for name, frame in frames.items() if hasattr(frame, "iloc")}
    targets = getattr(source, "targets", ()) if task.has_real_targets else ()
    target_names = tuple(map(str, targets)) if isinstance(targets, list | tuple) else ()
    return Splits(task, class_names, shared, rows, encoder, raw, tuple(notes), target_names, stream)


def _check_stream(stream: TrainStream | None, split: Split, thin_classes: float | None) -> None:
    chosen = {"data.split.folds": split.folds, "data.split.dedup": split.dedup or None}
    for key, value in {**chosen, "data.thin_classes": thin_classes}.items():
        if stream is not None and value is not None:
            raise DataError(
                f"{key}={value}: samples that are streamed cannot be chosen one by one",
                hint=f"{key}=null{' fold=null' if split.folds else ''}",
            )


def _task_of(source: Source, trained: FittedPreprocessing | None) -> Task:
    """The source's own; of classes for a trained model the model's, which may know more of them."""
    task = task_of(source.task)
    known = task if trained is None else task_of(trained.spec.task)
    return known if task.by_class and known.by_class else task


def _replace_task(current: Task, asked: str) -> Task:
    task = task_of(asked)
    if not (task.learns_from_inputs or task is current):
        raise DataError(
            f"data.task={asked}: only a task that learns from the inputs alone can replace {current.name}",
            hint=f"data.source.task={asked}, where the source has that key, or data.task=null",
        )
    return task


def _encode(subsets: Mapping[str, Data], train: Rows | None) -> dict[str, Samples | Stream]:
    encoded: dict[str, Samples | Stream] = {}
    for subset, data in subsets.items():  # the training subset comes first
        if not isinstance(data, Unfitted):
            encoded[subset] = data
            continue
        encoder = data.encoder
        if subset == "train" and train is not None:
            encoder.fit(data.raw, train)
        inputs = encoder.transform(data.raw)
        vocab_size = getattr(encoder, "vocab_size", 0)
        lengths = (inputs != 0).sum(1) if vocab_size else None  # 0 is padding
        encoded[subset] = Samples(
            inputs, data.targets, names=data.names, vocab_size=vocab_size, lengths=lengths
        )
    return encoded


def _check_subsets(parts: Mapping[str, Data]) -> None:
    """Refuse unknown subset names, empty subsets, and subsets whose inputs and targets differ in number."""
    if ("all" in parts) == ("train" in parts) or not {*parts} <= {"all", "train", "val", "test"}:
        raise DataError(
            f"data: expected the subsets all or train, and val and test, got {', '.join(parts) or 'nothing'}",
            hint="name them train, val and test",
        )
    for subset, data in parts.items():
        num_targets = len(data.targets)
        name = describe_subset(subset)
        if not num_targets:
            raise DataError(f"data: {name} has no samples", hint="add some, or do not name it in data.source")
        num_inputs = len(data.inputs) if isinstance(data, Samples) else len(getattr(data, "dataset", data))
        if num_inputs != num_targets:
            raise DataError(
                f"data: {name} has {num_inputs} inputs and {num_targets} targets",
                hint="check which files or arrays data.source names",
            )


def check_inputs(subset: str, data: Samples) -> None:
    """Refuse inputs without a feature dimension, and values that are not finite."""
    if data.inputs.ndim < 2 or 0 in data.inputs.shape[1:]:
        raise DataError(
            f"data: expected inputs [N, features] or [N, channels, …], got {list(data.inputs.shape)} in the "
            f"{subset} subset",
            hint="give a single feature a dimension of its own: inputs.reshape(-1, 1)",
        )
    for kind, tensor in (("inputs", data.inputs), ("targets", data.targets)):
        start = 0
        for block in blocks(tensor, torch.arange(len(tensor))) if tensor.is_floating_point() else ():
            # A sum is finite only if all of it is; that it may overflow is settled by looking closer.
            if not block.sum().isfinite() and len(bad := (~block.isfinite()).nonzero()):
                raise DataError(
                    f"data: the {kind} of the {subset} subset hold NaN or infinity, first in sample "
                    f"{start + int(bad[0, 0])}",
                    hint="leave such samples out, or fill in what is missing",
                )
            start += len(block)
