from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from PIL.Image import Image
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.samples import LazyDataset, Samples
from assay.data.core.source import Source
from assay.data.core.transforms import describe_draws
from assay.errors import DataError, user_frame
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from assay.data.core.samples import IndexedDataset


@final
class Custom(Source):
    """A `torch.utils.data.Dataset` with `__len__` and `__getitem__`, read one by one in worker processes.

    A sample is a tuple `(input, target)` or a mapping such as `{"data": …, "label": …}`. Inputs may be
    tensors, numpy arrays or PIL images (which become uint8 `[C, H, W]`). All targets must be known before
    training: they are taken from the data set's attribute `targets` or `labels`, as torchvision's have it, if
    that agrees with the first sample, else every sample is read once.

    Args:
        dataset: The training samples, or all samples.
        val_dataset: Validation samples; None: a share of `dataset`, see `data.split`.
        test_dataset: Test samples; as `val_dataset`.
        task: What is predicted.
        input_key: Key of the input in a mapping; None for its first value.
        target_key: Key of the target in a mapping; None for its second value.
        class_names: One name per class or label; None: the data set's attribute `classes`, or their numbers.

    Attributes:
        split_columns: As in `assay.data.table.table.Table`: attributes of the data set, one value per sample.

    Raises:
        ValueError: The task is none, or the data set has no length.
    """

    def __init__(
        self,
        dataset: IndexedDataset,
        *,
        val_dataset: IndexedDataset | None = None,
        test_dataset: IndexedDataset | None = None,
        task: str = "multiclass",
        input_key: str | None = None,
        target_key: str | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if dataset is None:
            raise ValueError("dataset=None: expected a torch.utils.data.Dataset")
        self.task = task
        self._task = task_of(task)
        self.class_names: tuple[str, ...] = tuple(class_names or ())
        given = {"train": dataset, "val": val_dataset, "test": test_dataset}
        self._datasets = {name: one for name, one in given.items() if one is not None}
        for one in self._datasets.values():
            if not (hasattr(one, "__len__") and hasattr(one, "__getitem__")):
                raise ValueError(f"{type(one).__name__} lacks __len__ or __getitem__")
        self._keys = input_key, target_key

    def read(self) -> Mapping[str, Samples]:
        """The subsets given, streamed."""
        subsets = {}
        for subset, dataset in self._datasets.items():
            key = "data.source.dataset"
            if subset != "train":
                key = f"data.source.{subset}_dataset"
            pairs = LazyDataset(len(dataset), partial(_read_pair, dataset, *self._keys, key))
            targets = self._task.as_targets(_read_targets(dataset, pairs, key))
            values = {name: getattr(dataset, name, None) for name in self.split_columns.values()}
            known = {name: value for name, value in values.items() if value is not None}
            identity = f"{type(dataset).__qualname__} {len(pairs)}"
            subsets[subset] = Samples(pairs, targets, identity, split_values=known)
            if subset == "train" and (apart := describe_draws(partial(pairs.__getitem__, 0))):
                self.notes = (f"{key}: a sample {apart}",)
        if not self.class_names and not self._task.has_real_targets:
            classes = getattr(self._datasets["train"], "classes", None)
            if classes is None:
                classes = self._task.number_classes(
                    [subset.targets for subset in subsets.values()]
                )
            self.class_names = tuple(str(name) for name in classes)
        return subsets


def _read_pair(
    dataset: IndexedDataset, input_key: str | None, target_key: str | None, key: str, index: int
) -> tuple[Any, Any]:
    """A sample as an `(input, target)` tuple."""
    try:
        sample = dataset[index]
    except (RuntimeError, ValueError) as error:
        where = ""
        if frame := user_frame(error):
            where = f" ({frame})"
        raise DataError(
            f"{key}: sample {index} cannot be read: {' '.join(str(error).split())}{where}",
            hint="the same command with --debug shows the traceback",
        ) from error
    if isinstance(sample, Mapping):
        names = list(sample)
        try:
            inputs = sample[input_key or names[0]]
            target = sample[target_key or names[min(1, len(names) - 1)]]
        except KeyError as error:
            raise DataError(
                f"{key}: sample {index} has no key {error}",
                hint=f"data.source.input_key and target_key: choose from {', '.join(map(str, sample))}",
            ) from error
    elif isinstance(sample, tuple | list) and len(sample) > 1:
        inputs, target = sample[:2]
    else:
        raise DataError(
            f"{key}: sample {index} is of type {type(sample).__name__}; "
            "expected an (input, target) tuple or a mapping",
            hint="return both from __getitem__",
        )
    if isinstance(inputs, Image):
        return F.pil_to_tensor(inputs), target
    return (torch.from_numpy(inputs) if isinstance(inputs, np.ndarray) else inputs), target


def _read_targets(dataset: IndexedDataset, pairs: IndexedDataset, key: str) -> Tensor:
    if not len(pairs):
        raise DataError(
            f"{key}: {type(dataset).__name__} is empty", hint="check where it reads its files"
        )
    for name in ("targets", "labels"):
        attribute = getattr(dataset, name, None)
        if attribute is not None and len(attribute) == len(pairs):
            targets = _tensor(attribute)
            # A target_transform makes what the samples hold differ from what the attribute says.
            if torch.equal(targets[0].double(), _tensor(pairs[0][1]).double()):
                return targets
    return torch.stack([_tensor(pairs[index][1]) for index in range(len(pairs))])


def _tensor(values: Any) -> Tensor:
    try:
        return torch.as_tensor(
            np.asarray(values) if not isinstance(values, torch.Tensor) else values
        )
    except TypeError as error:
        raise DataError(
            f"data.source.dataset: expected numbers as targets, got {type(values).__name__}",
            hint="number the classes from 0 in the data set",
        ) from error
