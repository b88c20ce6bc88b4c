"""scikit-learn's bundled tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import torch
from sklearn import datasets  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.samples import Samples
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.task.task_name import TaskName

_TASKS: dict[str, TaskName] = {
    "breast_cancer": "binary",
    "diabetes": "regression",
    "iris": "multiclass",
    "wine": "multiclass",
}


@final
class Bundled:
    """A small table that comes with scikit-learn.

    Args:
        name: `breast_cancer` (569 samples of 30 features, 2 classes), `iris` (150 of 4, 3 classes), `wine`
            (178 of 13, 3 classes) or `diabetes` (442 of 10, a number to predict).

    Raises:
        ValueError: There is no such table.

    >>> samples = Bundled("iris").read()["all"]
    >>> samples.inputs.shape, samples.inputs.dtype
    (torch.Size([150, 4]), torch.float32)
    """

    def __init__(self, name: Literal["breast_cancer", "diabetes", "iris", "wine"]) -> None:
        if name not in _TASKS:
            raise ValueError(f"name={name!r}: one of {', '.join(_TASKS)} was expected")
        self.name = name
        self.task = _TASKS[name]
        self.class_names: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Nothing to download."""

    def read(self) -> Mapping[str, Samples]:
        """All samples: inputs float32 `[N, F]`; targets int64 `[N]`, of diabetes float32 `[N, 1]`."""
        table = getattr(datasets, f"load_{self.name}")()
        self.class_names = tuple(str(name) for name in table.get("target_names", ()))
        targets = task_of(self.task).as_targets(torch.from_numpy(table.target))
        columns = tuple(str(name) for name in table.feature_names)
        return {"all": Samples(torch.from_numpy(table.data).float(), targets, columns=columns)}
