"""What a model says of one new sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from assay.quoting import number_text
from assay.terminal import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Kind


def indices_of(scores: NDArray[np.float32], kind: Kind, threshold: float) -> NDArray[np.int64]:
    """Classes of N samples, int64 `[N]`.

    Args:
        scores: `[N, C]`.
        kind: What they are.
        threshold: As of `ClassPrediction`.
    """
    if scores.shape[1] == 2 and kind == "probabilities" and threshold != 0.5:
        return (scores[:, 1] >= threshold).astype(np.int64)
    indices: NDArray[np.int64] = scores.argmax(1)
    return indices


@final
@dataclass(frozen=True, eq=False)
class ClassPrediction:
    """The class of one sample.

    Attributes:
        scores: Float32 `[C]`: probabilities, or where the run's loss says none, what the model returned.
        class_names: C of them.
        kind: `probabilities`, or `scores`.
        threshold: Of two classes, the probability from which on it is the second one.
    """

    scores: NDArray[np.float32]
    class_names: tuple[str, ...]
    kind: Kind = "probabilities"
    threshold: float = 0.5

    @property
    def index(self) -> int:
        """Index of the class with the highest score, or by the threshold."""
        return int(indices_of(self.scores[None], self.kind, self.threshold)[0])

    @property
    def label(self) -> str:
        """Name of that class."""
        return self.class_names[self.index]

    @property
    def probability(self) -> float:
        """Of that class."""
        return float(self.probabilities[self.index])

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """Float32 `[C]`."""
        return probabilities_of(self.scores, self.kind)

    def top_k(self, k: int = 3) -> list[tuple[str, float]]:
        """The k most likely classes, each with its score.

        Args:
            k: How many; all, where there are fewer.
        """
        best = np.argsort(-self.scores, kind="stable")[:k]
        return [(self.class_names[index], float(self.scores[index])) for index in best]

    def __str__(self) -> str:
        return printable(", ".join(f"{name} {score:.4f}" for name, score in self.top_k()))


@final
@dataclass(frozen=True, eq=False)
class LabelPrediction:
    """Which labels one sample has.

    Attributes:
        scores: Float32 `[L]`: the probability of each label, or where the run's loss says none, what the
            model returned.
        class_names: L of them, of labels.
        kind: `probabilities`, or `scores`.
    """

    scores: NDArray[np.float32]
    class_names: tuple[str, ...]
    kind: Kind = "probabilities"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels with a probability above 0.5."""
        return tuple(name for name, on in zip(self.class_names, is_on(self.probabilities), strict=True) if on)

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """Float32 `[L]`."""
        return probabilities_of(self.scores, self.kind)

    def __str__(self) -> str:
        pairs = zip(self.class_names, self.scores, strict=True)
        return printable(", ".join(f"{name} {score:.4f}" for name, score in pairs))


@final
@dataclass(frozen=True, eq=False)
class ValuePrediction:
    """The targets of one sample, in their own unit.

    Attributes:
        values: Float32 `[T]`.
        names: T of them, of targets.
    """

    values: NDArray[np.float32]
    names: tuple[str, ...]

    @property
    def value(self) -> float:
        """Of the only target.

        Raises:
            ValueError: There are several.
        """
        return float(self.values.item())

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        pairs = zip(self.names, self.values, strict=True)
        return printable(", ".join(f"{name} {number_text(value, 6)}" for name, value in pairs))


@final
@dataclass(frozen=True, eq=False)
class EmbeddingPrediction:
    """Where a model puts one sample.

    Attributes:
        vector: Float32 `[D]`.
    """

    vector: NDArray[np.float32]

    def __str__(self) -> str:
        return str(self.vector)


@final
@dataclass(frozen=True, eq=False)
class ReconstructionPrediction:
    """What a model makes of one sample, of which it keeps only the latent vector.

    Attributes:
        error: Mean squared difference to the sample, both normalised as the model sees them: how unlike the
            training data the sample is.
        latent: Float32 `[L]`; empty of a model without an `encode`.
        reconstruction: Float32 of the sample's shape, in its own unit, bytes as 0 to 1.
    """

    error: float
    latent: NDArray[np.float32]
    reconstruction: NDArray[np.float32]

    def __str__(self) -> str:
        return f"error {number_text(self.error, 6)}"


def is_on(probabilities: NDArray[Any]) -> NDArray[Any]:
    """Which labels are on: those with a probability above 0.5, as torchmetrics counts them."""
    return probabilities > 0.5


def probabilities_of(scores: NDArray[np.float32], kind: Kind) -> NDArray[np.float32]:
    """The scores, where they are probabilities.

    Args:
        scores: Of any shape.
        kind: What they are.

    Raises:
        AttributeError: They are not.
    """
    if kind != "probabilities":
        raise AttributeError("the run's loss says no probabilities of its outputs; `scores` has them")
    return scores
