"""What a model says of new samples: single predictions, and several as a sequence of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, final, overload

import numpy as np
from typing_extensions import override

from assay.quoting import number_text
from assay.task.heads import heads_of
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from assay.task.prediction.predictions import Kind


def indices_of(scores: NDArray[np.float32], kind: Kind, threshold: float) -> NDArray[np.int64]:
    """Classes of N samples, int64 `[N]`."""
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
        """The k most likely classes, each with its score."""
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
        """Of the only target."""
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
    """The scores, where they are probabilities."""
    if kind != "probabilities":
        raise AttributeError("the run's loss says no probabilities of its outputs; `scores` has them")
    return scores


One = TypeVar("One")
MOST_COLUMNS = 100
"""Classes or labels of which a table has a column each."""
_SHOWN = 10


class PredictionBatch(ABC, Sequence[One], Generic[One]):
    """Predictions of several samples: a sequence of single ones over the array they share.

    Each is a frozen dataclass whose first field is that array, `[N, …]`; the others hold for all samples.

    Attributes:
        file_suffix: Of the files that predictions are written to beside a table; empty for none.
        single: The class of one prediction, with the same fields; None where `_one` says what it is.
    """

    file_suffix: ClassVar[str] = ""
    single: ClassVar[Any] = None

    @property
    def outputs(self) -> NDArray[np.float32]:
        """All of them, `[N, …]`."""
        outputs: NDArray[np.float32] = next(iter(vars(self).values()))
        return outputs

    @abstractmethod
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        """What a table of the predictions has: N values by the name of a column.

        Args:
            top_k: Of classes, how many to name.
        """

    def resized(self, sizes: Sequence[tuple[int, int]]) -> PredictionBatch[One]:
        """The same for pictures of other sizes; only masks know a difference.

        Args:
            sizes: Height and width of each picture as it was given.
        """
        del sizes
        return self

    def file_of(self, index: int) -> bytes:
        """Contents of the file of a prediction, where there is a `file_suffix`.

        Args:
            index: Which.
        """
        raise NotImplementedError(f"{type(self).__name__} has no files of number {index}")

    def _one(self, outputs: NDArray[np.float32]) -> One:
        _, *shared = vars(self).values()
        one: One = self.single(outputs, *shared)
        return one

    def _several(self, outputs: NDArray[np.float32]) -> Self:
        kind: Any = type(self)
        _, *shared = vars(self).values()
        several: Self = kind(outputs, *shared)
        return several

    def to_frame(self, top_k: int = 3) -> pd.DataFrame:
        """A table of one row per sample.

        Args:
            top_k: As for `columns`.
        """
        import pandas as pd

        return pd.DataFrame(dict(self.columns(top_k)))

    @override
    def __len__(self) -> int:
        return len(self.outputs)

    @overload
    def __getitem__(self, index: int) -> One: ...

    @overload
    def __getitem__(self, index: slice) -> PredictionBatch[One]: ...

    @override
    def __getitem__(self, index: int | slice) -> One | PredictionBatch[One]:
        return (
            self._several(self.outputs[index]) if isinstance(index, slice) else self._one(self.outputs[index])
        )

    def __str__(self) -> str:
        rows = [f"{row}  {one}" for row, one in enumerate(self[:_SHOWN])]
        more = [f"… {len(self):,} in all"] if len(self) > _SHOWN else []
        return "\n".join([*rows, *more]) or "no predictions"


@final
@dataclass(frozen=True, eq=False)
class ClassPredictions(PredictionBatch[ClassPrediction]):
    """Classes of N samples.

    Attributes:
        scores: Float32 `[N, C]`, see `ClassPrediction`.
        class_names: C of them.
        kind: `probabilities`, or `scores`.
        threshold: As of `ClassPrediction`.
    """

    single = ClassPrediction

    scores: NDArray[np.float32]
    class_names: tuple[str, ...]
    kind: Kind = "probabilities"
    threshold: float = 0.5

    @property
    def indices(self) -> NDArray[np.int64]:
        """Int64 `[N]`: of the class with the highest score, or by the threshold."""
        return indices_of(self.scores, self.kind, self.threshold)

    @property
    def labels(self) -> list[str]:
        """Name of that class, N of them."""
        return [self.class_names[index] for index in self.indices]

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """Float32 `[N, C]`."""
        return probabilities_of(self.scores, self.kind)

    def top_k(self, k: int = 3) -> list[list[tuple[str, float]]]:
        """The k most likely classes of each sample."""
        return [one.top_k(k) for one in self]

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        word = "probability" if self.kind == "probabilities" else "score"
        names = np.asarray(self.class_names, dtype=object)
        ranked = self.scores.copy()
        ranked[np.arange(len(ranked)), self.indices] = np.inf
        best = np.argsort(-ranked, axis=1, kind="stable")[:, : max(1, top_k)]
        found: dict[str, Any] = {}
        for place in range(best.shape[1]):
            label, score = ("prediction", word) if not place else (f"top_{place + 1}", f"{word}_{place + 1}")
            found[label] = names[best[:, place]]
            found[score] = np.take_along_axis(self.scores, best[:, place : place + 1], 1)[:, 0]
        return found | _each(word, self.class_names, self.scores)


@final
@dataclass(frozen=True, eq=False)
class LabelPredictions(PredictionBatch[LabelPrediction]):
    """Labels of N samples.

    Attributes:
        scores: Float32 `[N, L]`, see `LabelPrediction`.
        class_names: L of them, of labels.
        kind: `probabilities`, or `scores`.
    """

    single = LabelPrediction

    scores: NDArray[np.float32]
    class_names: tuple[str, ...]
    kind: Kind = "probabilities"

    @property
    def labels(self) -> list[tuple[str, ...]]:
        """Names of the labels of each sample with a probability above 0.5."""
        return [one.labels for one in self]

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """Float32 `[N, L]`."""
        return probabilities_of(self.scores, self.kind)

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        if self.kind != "probabilities":
            return _each("score", self.class_names, self.scores)
        return {"prediction": [";".join(found) for found in self.labels]} | _each(
            "probability", self.class_names, self.scores
        )


@final
@dataclass(frozen=True, eq=False)
class ValuePredictions(PredictionBatch[ValuePrediction]):
    """Targets of N samples, in their own unit.

    Attributes:
        values: Float32 `[N, T]`.
        names: T of them, of targets.
    """

    single = ValuePrediction

    values: NDArray[np.float32]
    names: tuple[str, ...]

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        if len(self.names) == 1:
            return {"prediction": self.values[:, 0]}
        return {f"prediction_{name}": self.values[:, at] for at, name in enumerate(self.names)}


@final
@dataclass(frozen=True, eq=False)
class EmbeddingPredictions(PredictionBatch[EmbeddingPrediction]):
    """Where a model puts N samples.

    Attributes:
        vectors: Float32 `[N, D]`.
    """

    single = EmbeddingPrediction

    vectors: NDArray[np.float32]

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        return {f"embedding_{at}": self.vectors[:, at] for at in range(self.vectors.shape[1])}


@final
@dataclass(frozen=True, eq=False)
class ReconstructionPredictions(PredictionBatch[ReconstructionPrediction]):
    """What a model makes of N samples.

    Attributes:
        rows: Float32 `[N, 1 + L + D]`: error, latent vector, flattened reconstruction.
        shape: Of one sample, D values in all.
    """

    rows: NDArray[np.float32]
    shape: tuple[int, ...]

    @property
    def errors(self) -> NDArray[np.float32]:
        """Float32 `[N]`, see `ReconstructionPrediction`."""
        return self.rows[:, 0]

    @property
    def latents(self) -> NDArray[np.float32]:
        """Float32 `[N, L]`."""
        return self.rows[:, 1 : self.rows.shape[1] - math.prod(self.shape)]

    @property
    def reconstructions(self) -> NDArray[np.float32]:
        """Float32 `[N, *shape]`."""
        return self.rows[:, self.rows.shape[1] - math.prod(self.shape) :].reshape(-1, *self.shape)

    @override
    def columns(self, top_k: int = 3) -> Mapping[str, Any]:
        latents = self.latents
        columns = {f"latent_{at}": latents[:, at] for at in range(latents.shape[1])}
        return {"reconstruction_error": self.errors} | columns

    @override
    def _one(self, outputs: NDArray[np.float32]) -> ReconstructionPrediction:
        one = self._several(outputs[None])
        return ReconstructionPrediction(float(one.errors[0]), one.latents[0], one.reconstructions[0])


def _each(word: str, names: Sequence[str], scores: NDArray[np.float32]) -> dict[str, Any]:
    if len(names) > MOST_COLUMNS:
        return {}
    return {f"{word} {name}": scores[:, at] for at, name in enumerate(names)}


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
        """Predictions of one target."""
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
