"""What a language model says: how a text goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from typing_extensions import override

from assay.task.prediction.prediction_batch import PredictionBatch
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


@final
@dataclass(frozen=True, eq=False)
class TextPrediction:
    """How a model lets a text go on.

    Attributes:
        prompt: The text.
        text: What follows it.
        surprisals: Float32 `[L]`, bits of each token that was drawn, by the model's own distribution.
    """

    prompt: str
    text: str
    surprisals: NDArray[np.float32]

    @property
    def num_tokens(self) -> int:
        """How many were drawn."""
        return len(self.surprisals)

    @property
    def bits_per_token(self) -> float:
        """Mean surprisal of what was drawn."""
        return float(self.surprisals.mean()) if self.num_tokens else float("nan")

    def __str__(self) -> str:
        return "\n".join(map(printable, f"{self.prompt}{self.text}".split("\n")))


@final
@dataclass(frozen=True, eq=False)
class TextPredictions(PredictionBatch[TextPrediction]):
    """How N texts go on.

    Attributes:
        predictions: Objects `[N]`, a `TextPrediction` each.
    """

    predictions: NDArray[Any]

    @classmethod
    def of(cls, predictions: Sequence[TextPrediction]) -> Self:
        """Several as one.

        Args:
            predictions: N of them.
        """
        array = np.empty(len(predictions), dtype=object)
        array[:] = predictions
        return cls(array)

    @property
    @override
    def outputs(self) -> NDArray[Any]:
        return self.predictions

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        return {
            "prompt": [one.prompt for one in self],
            "prediction": [one.text for one in self],
            "num_tokens": [one.num_tokens for one in self],
            "bits_per_token": [one.bits_per_token for one in self],
        }

    @override
    def _one(self, outputs: Any) -> TextPrediction:
        one: TextPrediction = outputs
        return one

    @override
    def _several(self, outputs: NDArray[Any]) -> TextPredictions:
        return TextPredictions(outputs)
