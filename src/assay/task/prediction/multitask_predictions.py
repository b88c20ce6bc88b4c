"""What a multitask model says of new samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.task.heads import heads_of
from assay.task.prediction.prediction_batch import (
    ClassPrediction,
    ClassPredictions,
    PredictionBatch,
    ValuePredictions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from assay.task.prediction.prediction_batch import ValuePrediction


@final
@dataclass(frozen=True, eq=False)
class MultitaskPrediction:
    """All targets of one sample.

    Attributes:
        targets: By the name of the target, a `ClassPrediction` or a `ValuePrediction`.
    """

    targets: Mapping[str, ClassPrediction | ValuePrediction]

    def __getitem__(self, target: str) -> ClassPrediction | ValuePrediction:
        return self.targets[target]

    def __str__(self) -> str:
        said = (
            f"{name}: {one}" if isinstance(one, ClassPrediction) else str(one)
            for name, one in self.targets.items()
        )
        return "; ".join(said)


@final
@dataclass(frozen=True, eq=False)
class MultitaskPredictions(PredictionBatch[MultitaskPrediction]):
    """All targets of N samples.

    Attributes:
        values: Float32 `[N, all outputs]`: probabilities of classes, numbers in their own unit.
        names: One per output, `target=class` or `target`.
    """

    values: NDArray[np.float32]
    names: tuple[str, ...]

    def of(self, target: str) -> ClassPredictions | ValuePredictions:
        """Predictions of one target.

        Args:
            target: Its name.

        Raises:
            KeyError: There is no such target.
        """
        return self._by_target()[target]

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        return {
            name if column == "prediction" else f"{name} {column}": values
            for name, several in self._by_target().items()
            for column, values in several.columns(top_k).items()
        }

    def _by_target(self) -> dict[str, ClassPredictions | ValuePredictions]:
        return {
            head.name: ClassPredictions(head.of(self.values), head.class_names)
            if head.class_names
            else ValuePredictions(head.of(self.values), (head.name,))
            for head in heads_of(self.names)
        }

    @override
    def _one(self, outputs: NDArray[np.float32]) -> MultitaskPrediction:
        several = MultitaskPredictions(outputs[None], self.names)
        return MultitaskPrediction({name: one[0] for name, one in several._by_target().items()})
