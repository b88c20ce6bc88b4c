"""Refuses data that cannot be trained on, before a model is built for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from assay.data.samples import Samples
from assay.data.splitting.subset import blocks
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.samples import Stream, Unfitted
    from assay.data.spec import Task

_SHAPES: dict[Task, str] = {
    "multiclass": "one class index a sample, [N]",
    "binary": "0 or 1 a sample, [N]",
    "multilabel": "a column of 0 and 1 a label, [N, L]",
    "regression": "floating-point numbers, [N, T]",
}


def check_targets(
    task: Task, class_names: tuple[str, ...], part: str, data: Samples | Stream | Unfitted
) -> None:
    """Refuse targets that do not belong to the task.

    Args:
        task: Of the source.
        class_names: Of the source.
        part: For messages.
        data: The part.

    Raises:
        DataError: Lengths, shape, type or labels are wrong.
    """
    targets = data.targets
    if not len(targets):
        raise DataError(
            f"data: the {part} part has no samples", hint="add some, or name no such part in data.source"
        )
    length = len(data.inputs) if isinstance(data, Samples) else len(getattr(data, "dataset", targets))
    if length != len(targets):
        raise DataError(
            f"data: the {part} part has {length} inputs and {len(targets)} targets; as many were expected",
            hint="check which files or arrays data.source names",
        )
    by_class, real = task in ("multiclass", "binary"), targets.is_floating_point()
    wrong_type = (by_class and real) or (task == "regression" and not real)
    if targets.ndim != (1 if by_class else 2) or wrong_type:
        raise DataError(
            f"data: the {part} part's targets have shape {tuple(targets.shape)} and type {targets.dtype}; "
            f"a {task} task has {_SHAPES[task]}",
            hint="set data.source.task, or change the targets",
        )
    if task != "regression":
        _check_labels(task, class_names, part, targets)


def _check_labels(task: Task, class_names: tuple[str, ...], part: str, targets: Tensor) -> None:
    if task == "binary" and len(class_names) != 2:
        raise DataError(
            f"data: a binary task has two classes, this data has {len(class_names)}",
            hint="data.source.task=multiclass, with loss=cross_entropy metrics=multiclass",
        )
    highest = 1 if task == "multilabel" else len(class_names) - 1
    if len(targets) and not 0 <= targets.min() <= targets.max() <= highest:
        what = "multi-hot targets" if task == "multilabel" else f"indices of the {len(class_names)} classes"
        raise DataError(
            f"data: the {part} part has targets from {targets.min()} to {targets.max()}; "
            f"{what} go from 0 to {highest}",
            hint="number the classes from 0, for example with numpy.unique(targets, return_inverse=True)",
        )


def check_labels_fit(highest: int, num_samples: int) -> None:
    """Refuse class numbers of which most would be of no sample, before there is a name for each.

    Args:
        highest: The largest of them.
        num_samples: Samples there are.

    Raises:
        DataError: There are more classes than samples.
    """
    if highest >= max(num_samples, 2):
        raise DataError(
            f"data: the targets go up to {highest:,}, but there are only {num_samples:,} samples; a class is "
            "numbered from 0",
            hint="number the classes, for example with numpy.unique(targets, return_inverse=True); for "
            "numbers to predict: data.source.task=regression",
        )


def check_inputs(part: str, data: Samples) -> None:
    """Refuse inputs without a feature dimension, and values that are not finite.

    Args:
        part: For messages.
        data: The part; only its floating-point tensors are looked through.

    Raises:
        DataError: Naming the first sample at fault.
    """
    if data.inputs.ndim < 2 or 0 in data.inputs.shape[1:]:
        raise DataError(
            f"data: the {part} part's inputs have shape {tuple(data.inputs.shape)}; "
            "[N, features] or [N, channels, …] was expected",
            hint="give a single feature a dimension of its own: inputs.reshape(-1, 1)",
        )
    for what, tensor in (("inputs", data.inputs), ("targets", data.targets)):
        if not tensor.is_floating_point():
            continue
        start = 0
        for block in blocks(tensor, torch.arange(len(tensor))):
            # A sum is finite only if all of it is; that it may overflow is settled by looking closer.
            if (
                not torch.isfinite(block.sum())
                and not (finite := torch.isfinite(block.flatten(1)).all(1)).all()
            ):
                row = start + int((~finite).nonzero()[0])
                raise DataError(
                    f"data: the {what} of the {part} part hold NaN or infinity, first in sample {row}",
                    hint="leave such samples out, or fill in what is missing",
                )
            start += len(block)


def check_number(num_train: int) -> None:
    """Refuse a training part of less than two samples.

    Args:
        num_train: Training samples.

    Raises:
        DataError: There are fewer.
    """
    if num_train < 2:
        raise DataError(
            f"data: {num_train} training sample(s) after the split; training needs at least two",
            hint="add samples, or lower data.split.val and data.split.test",
        )


def check_batch(num_train: int, batch_size: int) -> None:
    """Refuse a training part of less than a batch.

    Args:
        num_train: Training samples.
        batch_size: Samples needed for one batch.

    Raises:
        DataError: There are fewer.
    """
    if num_train < batch_size:
        raise DataError(
            f"data.batch_size={batch_size}: there are only {num_train} training samples, less than a batch",
            hint=f"data.batch_size={num_train}, or data.drop_last=false",
        )


def check_spread(targets: Tensor) -> None:
    """Refuse a target of a regression that never varies.

    Args:
        targets: Of the training part, `[N, T]`.

    Raises:
        DataError: Naming the first one.
    """
    constant = (targets == targets[:1]).all(0)
    if constant.any():
        column = int(constant.nonzero()[0])
        which = f" number {column}" if targets.shape[1] > 1 else ""
        raise DataError(
            f"data: the target{which} is {float(targets[0, column]):.6g} in all training samples: there is "
            "nothing to learn",
            hint="choose another target (data.source)",
        )


def check_classes(class_names: tuple[str, ...], counts: Mapping[str, NDArray[np.int64]]) -> None:
    """Refuse a class that training has no sample of.

    Args:
        class_names: C names.
        counts: Samples of each class in each part, `[C]`.

    Raises:
        DataError: Naming the classes.
    """
    if len(class_names) < 2:
        raise DataError(
            f"data: the targets have a single class{''.join(f', {name}' for name in class_names)}: there is "
            "nothing to tell apart",
            hint="choose another target, or add samples of other classes (data.source)",
        )
    missing = counts["train"] == 0
    elsewhere = np.any([counts[part] > 0 for part in counts if part != "train"], axis=0)
    for rows, message, hint in (
        (
            missing & elsewhere,
            "the test or validation part has classes that training lacks",
            "add training samples",
        ),
        (missing, "no training sample of class", "remove the empty class, or add samples"),
    ):
        names = [name for name, is_wrong in zip(class_names, rows, strict=True) if is_wrong]
        if names:
            more = ", …" if len(names) > 5 else ""
            raise DataError(f"data: {message}: {', '.join(names[:5])}{more}", hint=f"{hint} (data.source)")
