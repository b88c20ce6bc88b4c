"""What is learnt: all that differs between tasks. Imports no torch, so that a config can be judged early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from assay.errors import DataError
from assay.quoting import first_of
from assay.task.evaluator import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from assay.figure.figure import Figure
    from assay.task.evaluator import Evaluator, Score
    from assay.task.predictions import Kind, Predictions, StoredPredictions

LOGIT_KINDS: Final = frozenset({"multiclass", "binary"})
"""What a loss may have as its class attribute `kind`: one logit per class, or one per yes-or-no label."""
LOSS_KINDS: Final = LOGIT_KINDS | {"embedding", "multitask", "views"}


class Task(ABC):
    """How data, model, loss and metrics of one kind of learning go together; holds no state.

    A task of your own is a final subclass in a package that you trust, and a config names it by its dotted
    path: `data.source.task=my_project.ordinal.Ordinal`.

    What methods are given is the same everywhere: `spec` is that of the data, `class_names` are its classes
    or labels, `size` is what `size_key` counts. `inputs` are those of B samples, normalised, `outputs` what a
    model returns for them, as the loss or the metrics see it, and `kind` what these are. `predictions` are of
    this task; all but `predicted_label` and `hardest_caption` ask for some with targets. `subset` names one
    in messages.

    Attributes:
        name: In a config; its dotted path, where the class says none.
        suits: What to type for the loss and metrics that suit it.
        loss_kinds: Kinds of losses that can take its targets.
        size_key: The key of `spec` that counts what a model predicts.
        unit: What that counts, one and several.
        form: How targets look.
        by_class: Each sample has one class, so that classes can be counted, stratified and thinned out.
        has_real_targets: Targets are real numbers, which the loss may see standardised.
        has_masks: Targets are masks, which transforms of a picture's shape move along with it.
        ignore_index: Class of what neither loss nor metrics see; torch's own, which no class has, by default.
        file_column: What files of predictions hold, one beside a table for each; empty where there are none.
        kept_kind: Of the outputs that `kept` makes; None where they stay what they are.
        has_heads: Each of several targets is a class or a number of its own, see `assay.task.predictions`.
        num_classes: Where only one number of classes is possible.
        takes_logits: Metrics and predictions are made of the model's outputs as they are, whatever
            probabilities the loss says.
        generates: A prediction is how a text goes on, see `assay.task.language_modelling`.
        kind: What predictions are, whatever the loss; None where the loss says it.
        learns_from_inputs: Needs no targets; those that the data has are at most labels to look at, int64
            `[N]`, or nothing, `[N, 0]`. Only such a task may take the place of the data's own (`data.task`).
        reconstructs: A model returns what it was given.
        compares_views: The loss compares views that the augmentation makes of each sample, in evaluation,
            too.
    """

    name: ClassVar[str]
    suits: ClassVar[str]
    loss_kinds: ClassVar[frozenset[str]]
    size_key: ClassVar[str] = "num_classes"
    unit: ClassVar[tuple[str, str]]
    form: ClassVar[str]
    by_class: ClassVar[bool] = False
    has_real_targets: ClassVar[bool] = False
    has_heads: ClassVar[bool] = False
    has_masks: ClassVar[bool] = False
    ignore_index: ClassVar[int] = -100
    file_column: ClassVar[str] = ""
    kept_kind: ClassVar[Kind | None] = None
    num_classes: ClassVar[int | None] = None
    takes_logits: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    kind: ClassVar[Kind | None] = None
    learns_from_inputs: ClassVar[bool] = False
    reconstructs: ClassVar[bool] = False
    compares_views: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}.{cls.__qualname__}"

    @abstractmethod
    def as_targets(self, values: Tensor) -> Tensor:
        """Numbers in the shape and type of targets, as far as nothing is lost; the rest is for `check`."""

    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """Targets of a batch as the module gets them."""
        return self.as_targets(targets)

    def loss_targets(
        self, inputs: Tensor, targets: Tensor, restore: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """What outputs are compared with, before any augmentation.

        Args:
            inputs: Of B samples, normalised.
            targets: Of the batch.
            restore: From what the loss sees to the targets' own unit; None where these are the same.
        """
        return targets

    def described(self, model: nn.Module, inputs: Tensor, outputs: Tensor) -> Tensor:
        """What is kept of tested samples in place of outputs that are as large as the inputs.

        Args:
            model: In eval mode.
            inputs: `[B, ...]`, normalised.
            outputs: Of the model, as the loss compares them.

        Returns:
            Float `[B, K]`.
        """
        return outputs.flatten(1)

    def hard_targets(self, targets: Tensor) -> Tensor:
        """What metrics compare predictions with, where mixing or a teacher made the targets soft."""
        return targets

    def for_loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """What the loss is given of a batch: each thing that is predicted as a row of its own.

        Args:
            outputs: Of the model, `[B, ...]`.
            targets: Of the same batch.
        """
        return outputs, targets

    @abstractmethod
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        """Refuse targets that are not of this task.

        Args:
            subset: For messages.
            targets: Of at least one sample.
            class_names: Of the data set.

        Raises:
            DataError: Shape, type or values are wrong.
        """

    def check_subsets(self, targets: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
        """Refuse subsets from which nothing can be learnt.

        Args:
            targets: Of each subset, `train` among them.
            class_names: Of the data set.

        Raises:
            DataError: Naming the class or target at fault.
        """
        del targets, class_names

    @abstractmethod
    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        """`num_classes`, `num_targets` and `class_counts` of the spec, as far as there are any."""

    def standardizes(self, column: int, class_names: Sequence[str]) -> bool:
        """Whether the loss may see a column of the targets standardised."""
        return self.has_real_targets

    def number_classes(self, subsets: Sequence[Tensor]) -> tuple[str, ...]:
        """Names of classes or labels that have none: their numbers.

        Raises:
            DataError: Most of the numbers would be of no sample.
        """
        return ()

    @abstractmethod
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int] = ()) -> Tensor:
        """Made-up targets; classes or labels are equally frequent.

        Args:
            num_samples: How many.
            size: What `size_key` counts.
            input_shape: Of a sample, where targets have a shape that follows from it.
        """

    def declared_targets(
        self, num_samples: int, size: int, input_shape: Sequence[int], class_names: Sequence[str] = ()
    ) -> Tensor:
        """What stands for the targets of samples of which only the number is known.

        Args:
            num_samples: How many.
            size: What `size_key` counts.
            input_shape: Of one sample.
            class_names: As far as they are stated.
        """
        return self.fake_targets(num_samples, size, input_shape)

    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        """How many values a model returns per sample.

        Args:
            spec: Of the data.
            loss_kind: Of the loss; None where it says none.
        """
        return int(spec[self.size_key])

    def output_shape(self, spec: Mapping[str, Any], num_outputs: int) -> tuple[int, ...]:
        """Shape of what a model returns for a sample.

        Args:
            spec: Of the data.
            num_outputs: As `num_outputs` says for the loss.
        """
        return (num_outputs,)

    def postprocess(self, outputs: Tensor, kind: Kind) -> Tensor:
        """Outputs in the form that predictions are told in.

        Returns:
            `[B, …]`.
        """
        return outputs.reshape(outputs.shape[0], -1) if kind == "probabilities" else outputs

    @abstractmethod
    def typed(self, outputs: NDArray[Any], kind: Kind, names: tuple[str, ...]) -> Predictions:
        """Predictions as a user asks them, with the columns that they have in a table.

        Args:
            outputs: Of N samples, from `postprocess`.
            kind: What they are.
            names: Of classes, labels or targets.
        """

    def picture(
        self, picture: bytes | None, targets: NDArray[Any], labels: NDArray[Any], class_names: Sequence[str]
    ) -> bytes | None:
        """A sample with its target and what was predicted, as a PNG file; None where it cannot be drawn.

        Args:
            picture: Of the sample, a PNG file; None of a sample that is not a picture.
            targets: Of the sample.
            labels: Predicted for its pixels, uint8 `[H, W]`.
            class_names: Of the data.
        """
        return picture

    def legend(self, predictions: StoredPredictions) -> list[tuple[str, bytes]]:
        """Names and small PNG files of what pictures of samples show in colours."""
        return []

    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        """What a run keeps of its test, a row per sample, for `scores`, `figures` and the rest.

        Args:
            outputs: Of B samples, as the metrics see them.
            targets: Of the same, hard.
            kind: What the outputs are.

        Returns:
            Outputs `[B, K]`, kept as float32, and targets `[B]` or `[B, K]` in the type they are kept in.
            What has another form is not kept.
        """
        return outputs[:, None] if outputs.ndim == 1 else outputs, targets

    def loss_problem(self, spec: Mapping[str, Any], loss: Any) -> tuple[str, str] | None:
        """Why a loss cannot be used, and what to type; None where nothing is known against it.

        Args:
            spec: Of the data.
            loss: Its class, or what makes it.
        """
        return None

    def model_problem(self, model: Any) -> tuple[str, str] | None:
        """Why a model cannot be used, and what to type; None where nothing is known against it.

        Args:
            model: As it will be used, perhaps without its weights.
        """
        return None

    def probabilities(self, loss: Any) -> Callable[[Tensor], Tensor] | None:
        """What makes predictions of outputs, sample by sample; None where they are predictions already."""
        if self.takes_logits:
            return None
        to_probabilities: Callable[[Tensor], Tensor] | None = getattr(loss, "probabilities", None)
        return to_probabilities

    def output_kind(self, loss: Any) -> Kind:
        """What the metrics of a run see of its model's outputs."""
        if self.kind is not None:
            return self.kind
        if getattr(loss, "kind", None) == "embedding":
            return "embeddings"
        if self.has_real_targets:
            return "values"
        return "probabilities" if hasattr(loss, "probabilities") and not self.takes_logits else "scores"

    def in_words(self, spec: Mapping[str, Any]) -> str:
        """What there is to predict, such as `10 classes`."""
        size = int(spec[self.size_key])
        return f"{size} {self.unit[size != 1]}"

    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        """What judges predictions; the methods that follow ask it."""
        return Unknown()

    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """How good predictions are, the headline first, with intervals; none where they cannot be judged."""
        return self.evaluator(predictions).scores(predictions)

    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        """What is to be seen of predictions; none where they cannot be judged."""
        return self.evaluator(predictions).figures(predictions)

    def error_scores(self, predictions: StoredPredictions) -> NDArray[Any]:
        """How wrong each prediction is, float `[N]`; NaN where nobody can say."""
        return self.evaluator(predictions).error_scores(predictions)

    def is_right(self, predictions: StoredPredictions) -> NDArray[Any] | None:
        """Whether each prediction is right, bool `[N]`; None where that is not a matter of yes or no."""
        return self.evaluator(predictions).is_right(predictions)

    def baseline_warnings(self, predictions: StoredPredictions) -> list[str]:
        """Whether one answer to all would do as well, a sentence for each thing of which that is so."""
        return self.evaluator(predictions).baseline_warnings(predictions)

    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        """What the model said of a sample, and what was right where that is not the same."""
        return self.evaluator(predictions).predicted_label(predictions, index)

    def hardest_caption(self, predictions: StoredPredictions) -> str:
        """By what `error_scores` orders, as a sentence."""
        return self.evaluator(predictions).hardest_caption(predictions)


def describe_subset(subset: str) -> str:
    """What a message calls a subset.

    >>> subset_in_words("test"), subset_in_words("all")
    ('the test subset', 'the whole data')
    """
    return "the whole data" if subset == "all" else f"the {subset} subset"


def wrong_form(task: Task, subset: str, targets: Tensor) -> DataError:
    """That targets have another shape or type."""
    return DataError(
        f"data: {describe_subset(subset)}'s targets have shape {tuple(targets.shape)}, type {targets.dtype}; "
        f"a {task.name} task has {task.form}",
        hint="set data.source.task, or change the targets",
    )


def check_range(subset: str, targets: Tensor, highest: int, unit: str) -> None:
    """Refuse numbers that are no classes or labels."""
    if not 0 <= targets.min() <= targets.max() <= highest:
        raise DataError(
            f"data: {describe_subset(subset)} has targets from {targets.min()} to {targets.max()}; "
            f"{unit} go from 0 to {highest}",
            hint="number the classes from 0, for example with numpy.unique(targets, return_inverse=True)",
        )


def check_trained_classes(counts: Mapping[str, Sequence[int]], class_names: Sequence[str]) -> None:
    """Refuse classes that another subset has and training lacks."""
    anywhere = [any(of_subset) for of_subset in zip(*counts.values(), strict=True)]
    rows = zip(class_names, anywhere, counts["train"], strict=True)
    if lacking := [name for name, is_present, count in rows if is_present and not count]:
        raise DataError(
            f"data: the test or validation subset has classes that training lacks: {first_of(lacking)}",
            hint="data.split.seed=1 splits them differently; or add training samples (data.source)",
        )
