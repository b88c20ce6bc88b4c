"""numpy's own files: one .npz archive, or a folder of .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final
from zipfile import BadZipFile

import numpy as np
import torch

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.data.core.source_files import NoArrayError, check_path, read_array
from assay.errors import DataError
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.types import Pair


@final
class Arrays(Source):
    """Inputs and targets saved with `numpy.save` or `numpy.savez`.

    Nothing is copied or converted that need not be: inputs keep their type, and .npy files are mapped into
    memory, so that only what is used is read. An object array, which could hold code, is refused.

    Args:
        root: A .npz archive, or a folder of .npy files.
        inputs: Name of the array (in a folder: of the file without `.npy`) of inputs, `[N, features]` or
            `[N, channels, …]`; for training, or of all samples.
        targets: Name of its targets: class indices from 0 `[N]`, multi-hot `[N, L]`, or numbers `[N]` or `[N,
            T]`; None for a task that learns from the inputs alone, see `data.task`.
        val_inputs: Inputs for validation; None: a share of `inputs`, see `data.split`.
        val_targets: Their targets.
        test_inputs: Inputs for the test; as `val_inputs`.
        test_targets: Their targets.
        task: `auto` goes by the targets: integers `[N]` are classes, integers `[N, L]` labels, anything else
            a regression.
        class_names: One name per class or label; None: their numbers.
        layout: `NHW` for images without a dimension for channels, `NHWC` for images with channels last; None:
            as it is.
        dtype: `float32` makes numbers of inputs that are integers; None: bytes become floating-point numbers
            from 0 to 1, other integers stay as they are, for an embedding.

    Attributes:
        layout: As given.
        input_names: Names of the arrays of inputs.
        split_columns: As in `assay.data.table.table.Table`: arrays of a value per sample each.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    def __init__(
        self,
        root: str,
        *,
        inputs: str = "inputs",
        targets: str | None = "targets",
        val_inputs: str | None = None,
        val_targets: str | None = None,
        test_inputs: str | None = None,
        test_targets: str | None = None,
        task: str = "auto",
        class_names: Sequence[str] | None = None,
        layout: Literal["NHW", "NHWC"] | None = None,
        dtype: Literal["float32"] | None = None,
    ) -> None:
        if task != "auto":
            task_of(task)
        if targets is None and task != "auto" and not task_of(task).learns_from_inputs:
            raise ValueError(f"targets=None: expected the name of an array for task={task!r}")
        self._names: dict[str, tuple[str, str | None]] = {"train": (inputs, targets)}
        given = {"val": (val_inputs, val_targets), "test": (test_inputs, test_targets)}
        for subset, (subset_inputs, subset_targets) in given.items():
            if targets is None and subset_targets is not None:
                raise ValueError(
                    f"{subset}_targets={subset_targets}: expected none with targets=None"
                )
            if targets is not None and (subset_inputs is None) != (subset_targets is None):
                raise ValueError(f"{subset}_inputs and {subset}_targets must be set together")
            if subset_inputs is not None:
                self._names[subset] = subset_inputs, subset_targets
        self.input_names = tuple(pair[0] for pair in self._names.values())
        self._root = Path(root)
        self.layout = layout
        self._dtype = dtype
        self._asked: str = task
        self.task: str = "multiclass"
        self.class_names: tuple[str, ...] = tuple(class_names or ())

    def read(self) -> Mapping[str, Samples]:
        """The subsets given."""
        check_path(self._root, self.info.paths[0], "data.source.root")
        raw: dict[str, Pair] = {}
        for subset, (inputs_name, targets_name) in self._names.items():
            prefix = ""
            if subset != "train":
                prefix = f"{subset}_"
            inputs = self._load(f"{prefix}inputs", inputs_name)
            targets = torch.zeros(len(inputs), 0, dtype=torch.int64)
            if targets_name is not None:
                targets = self._load(f"{prefix}targets", targets_name)
            raw[subset] = inputs, targets
        self.task = self._asked
        if self._asked == "auto" and self.info.find_task is not None:
            self.task = self.info.find_task(
                {"root": str(self._root), "targets": self._names["train"][1]}
            )
        task = task_of(self.task)
        subsets = {}
        for subset, (inputs, targets) in raw.items():
            values = {}
            if subset == "train":
                values = self._split_values()
            subsets[subset] = Samples(
                self.in_layout(inputs), task.as_targets(targets), split_values=values
            )
        if not self.class_names:
            self.class_names = task.number_classes(
                [samples.targets for samples in subsets.values()]
            )
        return subsets

    def _split_values(self) -> dict[str, NDArray[Any]]:
        values = {}
        for key, name in self.split_columns.items():
            values[name] = self._read(key, name)
            if values[name].ndim != 1:
                raise DataError(
                    f"{key}={name}: expected one value per sample, got shape {values[name].shape}",
                    hint=f"{key}=null, or another array",
                )
        return values

    def _load(self, option: str, name: str) -> Tensor:
        key = f"data.source.{option}"
        return as_tensor(self._read(key, name), f"{key}={name}")

    def _read(self, key: str, name: str) -> NDArray[Any]:
        path = self._root
        if path.is_dir():
            path /= f"{name}.npy"
        try:
            return read_array(self._root, name)
        except NoArrayError as error:
            available = ", ".join(error.known) or "nothing"
            raise DataError(
                f"{key}={name}: {self._root} has no such array", hint=f"available: {available}"
            ) from error
        except (ValueError, OSError, EOFError, BadZipFile) as error:
            raise DataError(
                f"{key}={name}: {path} cannot be read: {error}",
                hint="save plain numbers with numpy.save, or with numpy.savez as a .npz archive",
            ) from error

    def in_layout(self, inputs: Tensor) -> Tensor:
        """Inputs as the model gets them: channels first, in the type asked for."""
        if self._dtype is not None:
            inputs = inputs.float()
        if self.layout is None:
            return inputs
        if inputs.ndim != len(self.layout):
            raise DataError(
                f"data.source.layout={self.layout}: the inputs have shape {tuple(inputs.shape)}",
                hint="data.source.layout=null leaves them as they are",
            )
        if self.layout == "NHW":
            return inputs[:, None]
        return inputs.permute(0, 3, 1, 2)


def as_tensor(array: NDArray[Any], said_of: str) -> Tensor:
    """A tensor over an array's memory, where torch has its type."""
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise DataError(
            f"{said_of}: expected an array of numbers, got {array.dtype} of shape {array.shape}",
            hint="for classes: names, targets = numpy.unique(targets, return_inverse=True)",
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        # torch cannot gather these
        array = array.astype(np.int32 if array.dtype.itemsize == 2 else np.int64)
    return torch.from_numpy(array)
