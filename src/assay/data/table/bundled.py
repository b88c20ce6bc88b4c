from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import torch
from sklearn import datasets  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.task.multitask import Multitask
from assay.task.predictions import name_outputs
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_TASKS: dict[str, str] = {
    "breast_cancer": "binary",
    "diabetes": "regression",
    "iris": "multiclass",
    "wine": "multiclass",
}


@final
class Bundled(Source):
    """A small table that comes with scikit-learn.

    Args:
        name: `breast_cancer` (569 samples of 30 features, 2 classes), `iris` (150 of 4, 3 classes), `wine`
            (178 of 13, 3 classes) or `diabetes` (442 of 10, a number to predict).
        also: Features to predict as well, as numbers, in place of using them: the task is `multitask` then.

    Raises:
        ValueError: There is no such feature.
    """

    def __init__(
        self, name: Literal["breast_cancer", "diabetes", "iris", "wine"], also: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.also = list(also)
        self.task: str
        if self.also:
            self.task = Multitask.name
        else:
            self.task = _TASKS[name]

    def read(self) -> Mapping[str, Samples]:
        """All samples: inputs float32 `[N, F]`; targets int64 `[N]`, of diabetes float32 `[N, 1]`."""
        table = getattr(datasets, f"load_{self.name}")()
        names = tuple(str(name) for name in table.get("target_names", ()))
        columns = [str(name) for name in table.feature_names]
        if unknown := [name for name in self.also if columns.count(name) != 1]:
            raise ValueError(f"also={unknown[0]!r}: expected one of {', '.join(columns)}")
        targets = [columns.index(name) for name in self.also]
        used = [index for index in range(len(columns)) if index not in targets]
        data = torch.from_numpy(table.data).float()
        target = torch.from_numpy(table.target)
        if self.also:
            self.class_names = (
                *name_outputs(self.name, names),
                *(str(name) for name in self.also),
            )
            target = torch.cat([target.float()[:, None], data[:, targets]], 1)
        else:
            self.class_names, target = names, task_of(self.task).as_targets(target)
        return {
            "all": Samples(data[:, used], target, columns=tuple(columns[index] for index in used))
        }
