"""A source divided into train, val and test, and its description."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from assay.data.core.copies import find_copies, note_ignored_columns
from assay.data.core.normalize import have_same_scaling, stored_type
from assay.data.core.source_files import SUBSETS
from assay.data.core.spec import Spec
from assay.data.core.split import Split, divide, long_tail, note_small_classes
from assay.data.core.subset import blocks, refuse_non_finite
from assay.errors import DataError
from assay.quoting import join_first
from assay.task.classification import Multilabel
from assay.task.evaluator import LEFT_OUT
from assay.task.task import describe_subset
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from assay.data.core.samples import Encoder, Samples
    from assay.data.core.source import Source, TrainStream
    from assay.data.core.spec import FittedPreprocessing
    from assay.data.core.types import Rows
    from assay.task.task import Task

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
    chosen = {
        **split.columns,
        "data.split.folds": split.folds,
        "data.split.dedup": split.dedup and "true",
    }
    if (typed := [item for item in chosen.items() if item[1]]) and source.info.divides_itself:
        key, name = typed[0]
        raise DataError(
            f"{key}={name}: this source divides its texts itself; its samples are not independent",
            hint=f"{key}=null fold=null; data.source.split_by sets how they are divided",
        )
    source.split_columns = split.columns


def read_for_model(
    source: Source, split: Split, read: Callable[..., Splits], *, digest: str, whole: bool
) -> Splits:
    """Read a source and divide it as its run did, or take other samples as a whole."""
    joins = whole and source.divides
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
    data: Mapping[str, Samples]
    rows: Mapping[str, Rows]
    encoder: Encoder | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    stream: TrainStream | None = None

    @property
    def num_train(self) -> int:
        """Training samples."""
        if self.stream is None:
            return len(self.rows["train"])
        return self.stream.num_samples

    def targets(self, subset: str) -> Tensor:
        """Targets of one subset, in its order."""
        targets = self.data[subset].targets
        rows = self.rows[subset]
        is_slice = len(rows) == len(targets) and bool((np.diff(rows) == 1).all())
        if is_slice:
            return targets
        return targets[torch.as_tensor(rows)]

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
            if subset == "train" or data is not self.data["train"]:
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
        lacking = []
        if len(self.rows[subset]):
            lacking = self.task.lacking(self.targets(subset), self.class_names)
        names = f"{self.task.unit[0]} {join_first(lacking)}"
        if lacking:
            return [f"data: {describe_subset(subset)} has no {names}: {LEFT_OUT}"]
        return []

    def describe(self, first: Tensor, mean: Numbers, std: Numbers, **others: Any) -> Spec:
        """The spec of these subsets."""
        sizes = self.task.sizes(self.targets("train"), self.class_names)
        if self.stream is not None and self.stream.class_counts:
            sizes["class_counts"] = self.stream.class_counts
        return Spec(
            task=self.task.name,
            input_shape=tuple(first.shape[1:]),
            input_dtype=stored_type(first.dtype),
            vocab_size=self.data["train"].vocab_size,
            categories=self.data["train"].categories,
            token_bytes=self.data["train"].token_bytes,
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
    if source.is_reversed:
        return 1 - labels
    return labels


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
    stream = source.stream
    _check_stream(stream, split, thin_classes)
    _check_subsets(parts)
    class_names = tuple(source.class_names)
    if trained is not None:
        parts = trained.adapt(source, parts, asked)
        class_names = trained.spec.class_names
    task = source_task = _task_of(source, None if asked else trained)
    notes: list[str] = []
    if asked is not None:
        task = _replace_task(source_task, asked)
        parts = {
            name: replace(data, targets=task.as_targets(data.targets))
            for name, data in parts.items()
        }
        if next(iter(parts.values())).targets.ndim > 1:
            class_names = ()
    if task is not source_task:
        use = "it does not see the targets"
        if class_names:
            use = f"its {len(class_names)} classes are used for validation only"
        notes.append(f"data.task={task.name}: learned from the inputs alone; {use}")
    for subset, data in parts.items():
        task.check(subset, data.targets, class_names)
    undivided = "all" in parts
    training = parts.pop("all" if undivided else "train")
    labels = _labels(source, source_task, training.targets)
    # The source has divided a stream itself.
    drawn = split if stream is None else Split(0, 0)
    rows, decisions = _divide(training, parts, drawn, labels, is_other=trained is not None)
    notes += decisions
    if split.folds:
        parts.pop("test", None)
    if thin_classes is not None:
        if labels is None or labels.ndim > 1:
            raise DataError(
                f"data.thin_classes={thin_classes}: only classes are thinned out; this is {task.name}",
                hint="data.thin_classes=null",
            )
        rows["train"] = long_tail(
            rows["train"], labels, len(class_names), thin_classes, split.seed
        )
    all_data = {"train": training, **parts}
    if compare and trained is None:
        names = class_names[::-1] if source.is_reversed else class_names
        notes += _compare(all_data, rows, split, labels, names)
    encoded = _encode(all_data, None if trained else rows["train"])
    shared = {subset: encoded.get(subset, encoded["train"]) for subset in SUBSETS}
    if trained and undivided:
        shared["all"] = encoded["train"]
        rows["all"] = np.arange(len(training))
    # A baseline is fitted to texts; of other data only the test is shown.
    wants_all = bool(trained or stream) or shared["train"].vocab_size > 0
    frames = {
        name: all_data.get(name, training).raw for name in (rows if wants_all else ("test",))
    }
    return Splits(
        task,
        class_names,
        shared,
        rows,
        source.fitted if training.encoder is None else training.encoder,
        {
            name: frame.iloc[rows[name]]
            for name, frame in frames.items()
            if hasattr(frame, "iloc")
        },
        tuple(notes),
        tuple(source.targets) if task.has_real_targets else (),
        stream,
    )


def _divide(
    training: Samples,
    others: Mapping[str, Samples],
    split: Split,
    labels: Rows | None,
    *,
    is_other: bool,
) -> tuple[dict[str, Rows], list[str]]:
    """Divide the samples; other ones than those of the run are taken whole where that is impossible."""
    try:
        return divide(training, others, split, labels)
    except DataError:
        if not is_other:
            raise
        # They are too few, or without the columns that the run's own were divided by.
        given = {"train": training, **others}
        return {name: np.arange(len(given[name]) if name in given else 0) for name in SUBSETS}, []


def _compare(
    all_data: Mapping[str, Samples],
    rows: Mapping[str, Rows],
    split: Split,
    labels: Rows | None,
    class_names: tuple[str, ...],
) -> list[str]:
    """Notes on what the subsets lack, and on what they share."""
    notes = []
    if labels is not None and class_names:
        notes += note_small_classes(labels, class_names, rows, all_data, split)
    notes += find_copies(all_data, rows)
    if drawn := [name for name in ("test", "val") if name not in all_data and len(rows[name])]:
        notes += note_ignored_columns(all_data["train"], drawn[0], rows, folds=bool(split.folds))
    return notes


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
    if trained is not None and task.by_class and task_of(trained.spec.task).by_class:
        return task_of(trained.spec.task)
    return task


def _replace_task(current: Task, asked: str) -> Task:
    task = task_of(asked)
    if not (task.learns_from_inputs or task is current):
        raise DataError(
            f"data.task={asked}: only a task that learns from the inputs alone can replace {current.name}",
            hint=f"data.source.task={asked}, where the source has that key, or data.task=null",
        )
    return task


def _encode(subsets: Mapping[str, Samples], train: Rows | None) -> dict[str, Samples]:
    encoded: dict[str, Samples] = {}
    for subset, data in subsets.items():  # the training subset comes first
        encoder = data.encoder
        if encoder is None:
            encoded[subset] = data
            continue
        if subset == "train" and train is not None:
            encoder.fit(data.raw, train)
        inputs = encoder.transform(data.raw)
        vocab_size = encoder.vocab_size
        # 0 is padding
        lengths = None
        if vocab_size:
            lengths = (inputs != 0).sum(1)
        encoded[subset] = replace(
            data,
            inputs=inputs,
            vocab_size=vocab_size,
            categories=tuple(getattr(encoder, "categories", ())),
            lengths=lengths,
            encoder=None,
        )
    return encoded


def _check_subsets(parts: Mapping[str, Samples]) -> None:
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
            raise DataError(
                f"data: {name} has no samples", hint="add some, or do not name it in data.source"
            )
        num_inputs = len(data.inputs)
        if num_inputs != num_targets:
            raise DataError(
                f"data: {name} has {num_inputs} inputs and {num_targets} targets",
                hint="check which files or arrays data.source names",
            )


def check_inputs(subset: str, data: Samples) -> None:
    """Refuse inputs in memory without a feature dimension, and values in memory that are not finite."""
    values = {"targets": data.targets}
    if data.in_memory:
        values["inputs"] = data.inputs
    if data.in_memory and (data.inputs.ndim < 2 or 0 in data.inputs.shape[1:]):
        raise DataError(
            f"data: expected inputs [N, features] or [N, channels, …], got {list(data.inputs.shape)} in the "
            f"{subset} subset",
            hint="give a single feature a dimension of its own: inputs.reshape(-1, 1)",
        )
    for kind, tensor in values.items():
        start = 0
        rows = torch.arange(len(tensor) if tensor.is_floating_point() else 0)
        for block in blocks(tensor, rows):
            numbers = range(start, start + len(block))
            refuse_non_finite(block, numbers, f"{kind} of {describe_subset(subset)}")
            start += len(block)
