"""Tasks that learn from inputs alone: reconstruction by autoencoders, and self-supervised features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.task.figures.value_figures import Embeddings, Reconstructions
from assay.task.predictions import EmbeddingPredictions
from assay.task.task import Task, check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from assay.task.evaluator import Evaluator
    from assay.task.predictions import Kind, Predictions, StoredPredictions


class FromInputs(Task):
    """Targets are labels for inspection, int64 `[N]`, if the data has classes; else `[N, 0]`."""

    form = "none, or one class per sample"
    learns_from_inputs = True

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        """Keep classes as labels; drop other targets, which are not used: `[N, 0]`."""
        if values.shape[1:] == (1,):
            values = values[:, 0]
        if values.ndim > 1 or values.is_floating_point():
            return values.new_zeros(len(values), 0).long()
        return values.long()

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if targets.ndim == 1:
            check_range(
                subset, targets, len(class_names) - 1, f"indices of {len(class_names)} classes"
            )

    @override
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        return {"num_classes": len(class_names) if targets.ndim == 1 else 0}

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        import torch

        if size:
            return torch.arange(num_samples) % size
        return torch.zeros(num_samples, 0, dtype=torch.int64)

    @override
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> Predictions:
        return EmbeddingPredictions(outputs)


@final
class Reconstruction(FromInputs):
    """The model returns its input, through a bottleneck."""

    name = "reconstruction"
    suits = "model=autoencoder loss=mse metrics=reconstruction augment=none"
    loss_kinds = frozenset()
    size_key = "num_features"
    unit = ("value to reconstruct", "values to reconstruct")
    kind = "reconstructions"
    reconstructs = True

    @override
    def loss_targets(
        self, inputs: Tensor, targets: Tensor, restore: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        if restore is None:
            return inputs
        return restore(inputs)

    @override
    def described(self, model: nn.Module, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return the error of each sample, and the latent vector if the model has `encode`: `[B, 1 + L]`."""
        import torch

        error = (outputs.float() - inputs.float()).square().flatten(1).mean(1, keepdim=True)
        encode = getattr(model, "encode", None)
        if encode is None:
            return error
        return torch.cat([error, encode(inputs).float().flatten(1)], 1)

    @override
    def output_shape(self, spec: Mapping[str, Any], num_outputs: int) -> tuple[int, ...]:
        return tuple(spec["input_shape"])

    @override
    def model_problem(self, model: Any) -> tuple[str, str] | None:
        library = type(model).__module__.partition(".")[0] in ("assay", "torchvision")
        if not library or hasattr(model, "encode"):
            return None
        return (
            f"{type(model).__name__} has no latent vector: it can return its inputs unchanged",
            "model=autoencoder, or model=conv_autoencoder for images",
        )

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        return Reconstructions(predictions)


@final
class SelfSupervised(FromInputs):
    """Learns features in which views of one sample are close and those of different samples far apart."""

    name = "self_supervised"
    suits = "model=simclr loss=nt_xent augment=two_views metrics=retrieval"
    loss_kinds = frozenset({"views"})
    unit = ("class, as labels to judge by", "classes, as labels to judge by")
    kind = "embeddings"
    compares_views = True

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        """Only for outputs of smoke tests; a model chooses the width of its features."""
        return 16

    @override
    def in_words(self, spec: Mapping[str, Any]) -> str:
        if spec.get("num_classes"):
            return super().in_words(spec)
        return "no labels"

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        return Embeddings(predictions)
