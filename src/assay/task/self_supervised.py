"""Features learnt without labels, from views of the same sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

from typing_extensions import override

from assay.task.from_inputs import FromInputs
from assay.task.multiclass import Multiclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.figure.figure import Figure
    from assay.task.prediction.prediction_batch import PredictionBatch
    from assay.task.prediction.predictions import Kind, Predictions
    from assay.task.score import Score


@final
class SelfSupervised(FromInputs):
    """Views of one sample are to lie together, those of different samples apart.

    The augmentation gives the views and says which sample each is of; the loss compares them. In evaluation a
    model returns features, which labels, where there are any, only judge.
    """

    name = "self_supervised"
    suits = "model=simclr loss=nt_xent augment=two_views metrics=linear_probe"
    loss_kinds: ClassVar[frozenset[str]] = frozenset({"views"})
    unit = ("class, as labels to judge by", "classes, as labels to judge by")
    kind: ClassVar[Kind | None] = "embeddings"
    compares_views = True

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        """Of the made-up outputs that the job is tried with; a model chooses the width of its features."""
        return 16

    @override
    def in_words(self, spec: Mapping[str, Any]) -> str:
        return super().in_words(spec) if spec.get("num_classes") else "no labels"

    @override
    def loss_problem(self, spec: Mapping[str, Any], loss: Any) -> tuple[str, str] | None:
        if getattr(loss, "__module__", "").startswith("torch.nn.modules.loss"):
            return f"{loss.__name__} does not compare views of samples", self.suits
        return None

    @override
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> PredictionBatch[Any]:
        from assay.task.prediction.prediction_batch import EmbeddingPredictions

        return EmbeddingPredictions(outputs)

    @override
    def scores(self, predictions: Predictions) -> list[Score]:
        return _LABELLED.scores(predictions) if predictions.targets is not None else []

    @override
    def figures(self, predictions: Predictions) -> list[Figure]:
        return _LABELLED.figures(predictions)

    @override
    def badness(self, predictions: Predictions) -> NDArray[Any]:
        return _LABELLED.badness(predictions)

    @override
    def is_right(self, predictions: Predictions) -> NDArray[Any] | None:
        return _LABELLED.is_right(predictions)

    @override
    def worst_is(self, predictions: Predictions) -> str:
        return _LABELLED.worst_is(predictions)

    @override
    def said(self, predictions: Predictions, index: int) -> str:
        return _LABELLED.said(predictions, index) if predictions.targets is not None else ""


_LABELLED = Multiclass()
