"""What the data tells the rest of the config: itself, as its YAML declares it, or as a run knows it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import msgspec
import torch

from assay.data.core.normalize import stored_shape, stored_type
from assay.data.core.samples import Samples
from assay.errors import DataError
from assay.quoting import join_first
from assay.task.language_modelling import encode_run_lengths
from assay.task.predictions import parse_heads
from assay.task.task import describe_subset
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from assay.data.core.source import Source
    from assay.data.core.types import Strings


@dataclass(frozen=True)
class Spec:
    """A description of a data set, merged into the config as node `spec`.

    Attributes:
        task: What is predicted.
        input_shape: Shape of one sample, channels first.
        input_dtype: Type of its values before they are normalised, such as `uint8` (0 to 255) or `float32`;
            `int64` of token ids.
        vocab_size: Token ids go from 0, which is padding, to below this; 0 where inputs are not token ids.
        token_bytes: How many bytes of text each token id stands for, as
            `assay.task.language_modelling` writes it; empty where it is not needed.
        categories: How many categories each column of a table has that holds categories; they come after the
            numbers. A model that does not take their codes gets a column for each category.
        cardinalities: As `categories`, where the model takes codes: each of the last inputs is one, and the
            number itself stands for a category that training lacks; else empty.
        train_shape: Shape of one sample in training, where the transforms there make it another; else empty.
        num_classes: Number of classes; 2 for a binary task, the number of labels for a multilabel one, 0 for
            regression.
        num_targets: Number of real-valued targets of a regression; 0 otherwise.
        class_names: One name per class (or label); empty for regression.
        target_names: One name per real-valued target of a regression, where they have names.
        class_counts: Training samples of each class, positive training samples of each label, or training
            pixels of each class of a mask.
        ignore_index: Class of pixels that loss and metrics leave out; -100, which no class has, for none.
        num_train: Training samples.
        num_val: Validation samples.
        num_test: Test samples.
        mean: What the inputs are normalised with, a value a channel or feature (or a single one); empty: not
            at all.
        std: As `mean`.
        target_mean: What the targets of a regression are standardised with, a value per target, or a
            reconstruction, a value per channel or feature; empty: not at all.
        target_std: As `target_mean`.
        image_size: Height and width that the source scales images to; None where it does not.
        max_value: What the source scales images of 16 bits by; None where it does not.
        mask_values: Of each class in the files of masks.
    """

    task: str
    input_shape: tuple[int, ...]
    input_dtype: str = "float32"
    vocab_size: int = 0
    token_bytes: str = field(default="", repr=False)
    categories: tuple[int, ...] = ()
    cardinalities: tuple[int, ...] = ()
    train_shape: tuple[int, ...] = ()
    num_classes: int = 0
    num_targets: int = 0
    class_names: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()
    ignore_index: int = -100
    num_train: int = 0
    num_val: int = 0
    num_test: int = 0
    mean: tuple[float, ...] = field(default=(), repr=False)
    std: tuple[float, ...] = field(default=(), repr=False)
    target_mean: tuple[float, ...] = field(default=(), repr=False)
    target_std: tuple[float, ...] = field(default=(), repr=False)
    image_size: tuple[int, int] | None = None
    max_value: int | None = None
    mask_values: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        task_of(self.task)
        for name in (*self.class_names, *self.target_names):
            # in a config, this would be looked up, in the environment too
            if "${" in name or name == "???":
                raise DataError(
                    f"data: a class or target is called {name!r}, which a config cannot hold",
                    hint="rename it",
                )

    @property
    def num_features(self) -> int:
        """Number of values of one sample.

        >>> Spec(task="multiclass", input_shape=(3, 4, 4), num_classes=2).num_features
        48
        """
        return math.prod(self.input_shape)

    def as_config(self) -> dict[str, Any]:
        """Plain containers for the config node `spec`."""
        plain = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }
        return {**plain, "num_features": self.num_features}


_AboveZero = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
"""At most what a check can hold a target of."""


@final
class StaticSpec(msgspec.Struct, forbid_unknown_fields=True, dict=True):
    """Stands in for a source while a job is checked; takes no memory for the inputs.

    Attributes:
        task: What is predicted.
        input_shape: Of one sample as the source gives it, channels first.
        dtype: Of the inputs; `int64` of token ids.
        vocab_size: Of token ids, which go from 0 to below this; 0: they are not.
        class_counts: Samples of each class in each subset the source comes in: `all`, or `train` and `test`.
        num_samples: Samples of each subset, where the classes are equally many, or where there are none.
        num_classes: With `num_samples`: classes, or labels of a multilabel task.
        num_targets: With `num_samples`: targets of a regression.
        class_names: One per class; numbers by default.
    """

    task: str
    input_shape: Annotated[tuple[_AboveZero, ...], msgspec.Meta(min_length=1)]
    dtype: Literal["uint8", "float32", "int64"] = "float32"
    vocab_size: Annotated[int, msgspec.Meta(ge=0)] = 0
    class_counts: dict[str, list[Annotated[int, msgspec.Meta(ge=0)]]] | None = None
    num_samples: dict[str, _AboveZero] | None = None
    num_classes: _AboveZero | None = None
    num_targets: _AboveZero | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind = task_of(self.task)
        counts = self.class_counts
        if (self.dtype == "int64") != (self.vocab_size > 0):
            raise ValueError("expected a vocab_size above 0 with dtype=int64, and only then")
        if counts is not None:
            if not kind.by_class:
                raise ValueError(
                    f"expected num_samples in place of class_counts with task={self.task}"
                )
            self.num_classes = max(map(len, counts.values()), default=0)
        elif self._size is None and not kind.learns_from_inputs:
            raise ValueError(f"expected {kind.size_key} beside num_samples")
        self._targets()  # which refuses names that do not fit
        self.class_names = self.class_names or tuple(map(str, range(self._size or 0)))
        if kind.has_real_targets:
            self.class_names = ()

    @property
    def _size(self) -> int | None:
        size: int | None = getattr(self, task_of(self.task).size_key, None)
        return size

    def _targets(self) -> dict[str, Tensor]:
        if self.class_counts is not None:
            return {
                subset: torch.arange(len(counts)).repeat_interleave(torch.as_tensor(counts))
                for subset, counts in self.class_counts.items()
            }
        make_targets = task_of(self.task).declared_targets
        size = self._size or 0
        return {
            subset: make_targets(number, size, self.input_shape, self.class_names)
            for subset, number in (self.num_samples or {}).items()
        }

    def read(self) -> Mapping[str, Samples]:
        """Every subset: inputs that are one zero sample seen N times, and targets."""
        # Token ids from 1 on, as 0 would be padding.
        dtype: torch.dtype = getattr(torch, self.dtype)
        sample = torch.full((1, *self.input_shape), int(self.vocab_size > 0), dtype=dtype)
        token_bytes = encode_run_lengths([1] * self.vocab_size)  # scores are not looked at
        return {
            subset: Samples(
                sample.expand(len(targets), *self.input_shape),
                targets,
                vocab_size=self.vocab_size,
                token_bytes=token_bytes,
            )
            for subset, targets in self._targets().items()
        }


@final
@dataclass(frozen=True, eq=False)
class FittedPreprocessing:
    """What a run learned from its training subset, to apply to samples that its model is evaluated on."""

    spec: Spec
    encoder: Any = None
    notes: list[str] = field(default_factory=list)

    def adapt(
        self, source: Source, given: Mapping[str, Samples], asked: str | None = None
    ) -> dict[str, Samples]:
        """The subsets of a source with the run's classes and encoder in place of their own."""
        task = task_of(asked or source.task)
        trained_task = task_of(self.spec.task)
        if task.by_class and trained_task.by_class:
            task = (
                trained_task  # how many classes new samples have is not how many the model knows
            )
        if task is not trained_task:
            raise DataError(
                f"data: the task is {task.name}, but the model was trained for {self.spec.task}",
                hint=f"data.source.task={self.spec.task}, or data of the same kind",
            )
        self.notes.clear()
        names = tuple(source.class_names)
        targets = {subset: data.targets for subset, data in given.items()}
        if task.learns_from_inputs:
            targets = self._labels_to_judge_by(names, targets)
        elif task.has_real_targets:
            for subset, values in targets.items():
                if (width := values.shape[-1]) != self.spec.num_targets:
                    raise DataError(
                        f"data: {describe_subset(subset)} has {width} targets; the model predicts "
                        f"{self.spec.num_targets}",
                        hint="name the same targets as in training",
                    )
        elif task.has_masks:
            targets = self._match_masks(names, targets)
        elif names != self.spec.class_names:
            if task.has_heads:
                targets = self._renumber_heads(names, targets)
            elif task.by_class:
                targets = self._renumber_classes(names, self.spec.class_names, targets)
            else:
                targets = self._labels(names, targets)
        return {
            name: self._with_encoder(replace(data, targets=targets[name]))
            for name, data in given.items()
        }

    def _labels_to_judge_by(
        self, names: Strings, targets: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Classes of the run, or none, which a task that learns from inputs alone does not need."""
        has_classes = all(values.ndim == 1 for values in targets.values())
        if has_classes and names and {*names} <= {*self.spec.class_names}:
            return self._renumber_classes(names, self.spec.class_names, targets)
        if has_classes and names == self.spec.class_names:
            return dict(targets)
        return {subset: values.new_zeros(len(values), 0) for subset, values in targets.items()}

    def _with_encoder(self, data: Samples) -> Samples:
        if data.encoder is None:
            return data
        if self.encoder is None:
            raise DataError(
                "data: got a table of raw columns, but the model was trained on an array of numbers",
                hint="give data of the kind that the run was trained on",
            )
        self.notes.extend(self.encoder.unknown(data.raw))
        return replace(data, encoder=self.encoder)

    def _renumber_heads(self, names: Strings, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Targets as columns, classes numbered as the model numbers them."""
        heads = parse_heads(names)
        known = parse_heads(self.spec.class_names)
        if [head.name for head in heads] != [head.name for head in known]:
            raise DataError(
                "data: the targets and their order differ from those that the model was trained on",
                hint=f"targets: {', '.join(head.name for head in known)}",
            )
        renumbered = {subset: values.clone() for subset, values in targets.items()}
        for new, head in zip(heads, known, strict=True):
            if bool(new.class_names) != bool(head.class_names):
                raise DataError(
                    f"data: the target {head.name!r} has another type than in training",
                    hint="name the same targets as in training",
                )
            if head.class_names:
                labels = {
                    subset: values[:, new.column].long() for subset, values in targets.items()
                }
                labels = self._renumber_classes(new.class_names, head.class_names, labels)
                for subset, classes in labels.items():
                    renumbered[subset][:, new.column] = classes
        return renumbered

    def _renumber_classes(
        self, names: Strings, trained_names: Strings, targets: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        known = list(trained_names)
        new = torch.tensor([known.index(name) if name in known else -1 for name in names])
        present = torch.unique(torch.cat([*targets.values()])).tolist()
        if unknown := [names[label] for label in present if new[label] < 0]:
            raise _unknown_error("class", unknown, trained_names)
        return {subset: new[values] for subset, values in targets.items()}

    def _match_masks(
        self, names: tuple[str, ...], targets: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        trained_names = self.spec.class_names
        if names != trained_names[: len(names)]:
            raise DataError(
                f"data: the masks have the classes {', '.join(names[:10])}; the model was trained on "
                f"{', '.join(trained_names[:10])}",
                hint=f"number and name them alike: data.source.class_names=[{','.join(trained_names)}]",
            )
        missing = 0, len(trained_names) - len(names)
        return {  # of a stream they are the pixels of each class
            subset: torch.nn.functional.pad(values, missing) if values.ndim == 2 else values
            for subset, values in targets.items()
        }

    def _labels(self, names: tuple[str, ...], targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if strange := [name for name in names if name not in self.spec.class_names]:
            raise _unknown_error("label", strange, self.spec.class_names)
        if lacking := [name for name in self.spec.class_names if name not in names]:
            raise DataError(
                f"data: the label {lacking[0]!r} is missing, which the model was trained on",
                hint=f"labels: {', '.join(self.spec.class_names)}",
            )
        order = torch.tensor([names.index(name) for name in self.spec.class_names])
        return {subset: values.index_select(1, order) for subset, values in targets.items()}

    def check(self, first: Tensor) -> None:
        """Refuse samples that do not fit the model."""
        shape = list(first.shape[1:])
        expected = list(stored_shape(asdict(self.spec)))
        dtype = stored_type(first.dtype)
        trained = self.spec.input_dtype
        same_kind = dtype == trained or (first.is_floating_point() and "float" in trained)
        if shape != expected or not same_kind:
            hint = "give data of the form that the run was trained on"
            if len(shape) == len("CHW") == len(expected) and shape[0] == expected[0]:
                size = ",".join(map(str, expected[1:]))
                hint += f"; data.source.image_size=[{size}] scales images"
            raise DataError(
                f"data: a sample has shape {shape} and type {dtype}; the model was trained on "
                f"{expected} and {trained}",
                hint=hint,
            )


def _unknown_error(kind: str, names: Strings, known: Strings) -> DataError:
    return DataError(
        f"data: the model does not know the {kind} {join_first([*map(repr, names)])}",
        hint=f"leave such samples out; it was trained on {', '.join(known)}",
    )
