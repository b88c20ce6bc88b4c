"""The interface of a task: all that differs between tasks. Imports no torch, so that checks start early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from assay.errors import DataError
from assay.quoting import join_first
from assay.task.evaluator import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import Tensor, nn

    from assay.figure import Array, Figure
    from assay.task.evaluator import Evaluator, Score
    from assay.task.predictions import Kind, Predictions, StoredPredictions

LOGIT_KINDS = frozenset({"multiclass", "binary"})
"""Values of a loss's class attribute `kind`: one logit per class, or one per yes-or-no label."""
LOSS_KINDS = LOGIT_KINDS | {"embedding", "multitask", "views"}


class Task(ABC):
    """Defines how data, model, loss and metrics fit together; holds no state.

    A custom task is a final subclass in a trusted package, and a config names it by its dotted path:
    `data.source.task=my_project.ordinal.Ordinal`.

    Arguments have the same meaning in all methods: `spec` describes the data, `class_names` are its classes
    or labels, `size` is the number that `size_key` names. `inputs` are those of B samples, normalised;
    `outputs` are those of the model for them, as the loss or the metrics see them; `kind` says what these
    are. `predictions` are of this task, with targets, except in `predicted_label` and `hardest_caption`.
    `subset` is named in messages.

    Attributes:
        name: Its name in a config; by default the dotted path of the class.
        suits: Command-line words that select a suitable loss and metrics.
        loss_kinds: Kinds of losses that accept its targets.
        size_key: The key of `spec` with the number of classes, labels or targets.
        unit: What that number counts, singular and plural.
        form: Shape and type of targets, in words.
        by_class: Each sample has one class, so that classes can be counted, stratified and subsampled.
        has_real_targets: Targets are real numbers, which the loss may see standardised.
        has_masks: Targets are masks, which spatial transforms of a picture apply to as well.
        ignore_index: Class that loss and metrics ignore; by default torch's, which no class has.
        file_column: Name of the column of files that are written beside a table of predictions; empty: none.
        kept_kind: Kind of the outputs that `kept` returns; None: unchanged.
        has_heads: Each of several targets has a head for a class or a number, see `assay.task.predictions`.
        num_classes: The only possible number of classes, if there is one.
        takes_logits: Metrics and predictions use the model's outputs unchanged, even if the loss defines
            probabilities.
        generates: A prediction continues a text, see `assay.task.language_modelling`.
        kind: Kind of the predictions, whatever the loss; None: it depends on the loss.
        learns_from_inputs: Needs no targets; those of the data are at most labels for inspection, int64
            `[N]`, or empty, `[N, 0]`. Only such a task can replace that of the data (`data.task`).
        reconstructs: The model returns its input.
        compares_views: The loss compares views of each sample that the augmentation makes, also in
            evaluation.
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

    def as_targets(self, values: Tensor) -> Tensor:
        """Convert values to targets without loss; by default integers to int64. `check` refuses others."""
        if values.is_floating_point():
            return values
        return values.long()

    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert targets of a batch to what the module receives."""
        return self.as_targets(targets)

    def loss_targets(
        self, inputs: Tensor, targets: Tensor, restore: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """Return what the loss compares outputs with, before any augmentation.

        Args:
            inputs: Of B samples, normalised.
            targets: Of the batch.
            restore: Maps what the loss sees to the unit of the targets; None: the same.
        """
        return targets

    def described(self, model: nn.Module, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return what is stored of tested samples in place of outputs that are as large as the inputs.

        Args:
            model: In eval mode.
            inputs: `[B, ...]`, normalised.
            outputs: Of the model, as the loss compares them.

        Returns:
            Float `[B, K]`.
        """
        return outputs.flatten(1)

    def hard_targets(self, targets: Tensor) -> Tensor:
        """Return what metrics compare predictions with, if mixing or a teacher made the targets soft."""
        return targets

    def for_loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Reshape a batch for the loss: one row per predicted item.

        Args:
            outputs: Of the model, `[B, ...]`.
            targets: Of the same batch.
        """
        return outputs, targets

    @abstractmethod
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        """Refuse targets that do not fit this task.

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
            DataError: Names the class or target at fault.
        """
        del targets, class_names

    def sizes(self, targets: Tensor, class_names: Sequence[str]) -> dict[str, Any]:
        """Return those of `num_classes`, `num_targets` and `class_counts` that the spec of this task has."""
        if self.size_key != "num_classes":
            return {self.size_key: targets.shape[1]}
        return {
            "num_classes": len(class_names),
            "class_counts": self.count_classes(targets, class_names),
        }

    def count_classes(self, targets: Tensor, class_names: Sequence[str]) -> tuple[int, ...]:
        """Return how many samples, or pixels, each class or label has."""
        return tuple((targets >= 0.5).sum(0).tolist())

    def lacking(self, targets: Tensor, class_names: Sequence[str]) -> list[str]:
        """Return the classes or labels without a sample."""
        if self.size_key != "num_classes" or self.learns_from_inputs or not len(targets):
            return []
        counts = self.count_classes(targets, class_names)
        return [name for name, count in zip(class_names, counts, strict=False) if not count]

    def standardizes(self, column: int, class_names: Sequence[str]) -> bool:
        """Whether the loss may see a column of the targets standardised."""
        return self.has_real_targets

    def number_classes(self, subsets: Sequence[Tensor]) -> tuple[str, ...]:
        """Name classes or labels by their numbers, if the data does not name them.

        Raises:
            DataError: Most of the numbers have no sample.
        """
        return ()

    @abstractmethod
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        """Made-up targets; classes or labels are equally frequent.

        Args:
            num_samples: How many.
            size: What `size_key` counts.
            input_shape: Of a sample, where targets have a shape that follows from it.
        """

    def declared_targets(
        self,
        num_samples: int,
        size: int,
        input_shape: Sequence[int],
        class_names: Sequence[str] = (),
    ) -> Tensor:
        """Make targets for samples of which only the number is known.

        Args:
            num_samples: How many.
            size: What `size_key` counts.
            input_shape: Of one sample.
            class_names: As far as they are declared.
        """
        return self.fake_targets(num_samples, size, input_shape)

    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        """Return how many values a model returns per sample.

        Args:
            spec: Of the data.
            loss_kind: Of the loss; None if it has none.
        """
        return int(spec[self.size_key])

    def output_shape(self, spec: Mapping[str, Any], num_outputs: int) -> tuple[int, ...]:
        """Return the shape of a model's output for one sample.

        Args:
            spec: Of the data.
            num_outputs: As returned by `num_outputs`.
        """
        return (num_outputs,)

    def postprocess(self, outputs: Tensor, kind: Kind) -> Tensor:
        """Convert outputs to the form of predictions.

        Returns:
            `[B, …]`.
        """
        if kind == "probabilities":
            return outputs.reshape(outputs.shape[0], -1)
        return outputs

    @abstractmethod
    def typed(self, outputs: Array, kind: Kind, names: tuple[str, ...]) -> Predictions:
        """Wrap predictions for users, with the columns of their table.

        Args:
            outputs: Of N samples, from `postprocess`.
            kind: What they are.
            names: Of classes, labels or targets.
        """

    def picture(
        self,
        picture: bytes | None,
        targets: Array,
        labels: Array,
        class_names: Sequence[str],
    ) -> bytes | None:
        """Draw a sample with its target and prediction as a PNG file; None if it cannot be drawn.

        Args:
            picture: Of the sample, a PNG file; None if the sample is not a picture.
            targets: Of the sample.
            labels: Predicted for its pixels, uint8 `[H, W]`.
            class_names: Of the data.
        """
        return picture

    def legend(self, predictions: StoredPredictions) -> list[tuple[str, bytes]]:
        """Return the names of the colours in pictures of samples, each with a small PNG file."""
        return []

    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        """Return what a run stores of its test, one row per sample, for `scores`, `figures` and the others.

        Args:
            outputs: Of B samples, as the metrics see them.
            targets: Of the same, hard.
            kind: What the outputs are.

        Returns:
            Outputs `[B, K]`, stored as float32, and targets `[B]` or `[B, K]` in the type to store. Other
            shapes are not stored.
        """
        return outputs[:, None] if outputs.ndim == 1 else outputs, targets

    def model_problem(self, model: Any) -> tuple[str, str] | None:
        """Return why a model cannot be used and what to type instead; None if no problem is known.

        Args:
            model: As it will be used, perhaps without its weights.
        """
        return None

    def probabilities(self, loss: Any) -> Callable[[Tensor], Tensor] | None:
        """Return the function from outputs to predictions; None if outputs are predictions already."""
        if self.takes_logits:
            return None
        to_probabilities: Callable[[Tensor], Tensor] | None = getattr(loss, "probabilities", None)
        return to_probabilities

    def output_kind(self, loss: Any) -> Kind:
        """Return the kind of the outputs that the metrics of a run see."""
        if self.kind is not None:
            return self.kind
        if getattr(loss, "kind", None) == "embedding":
            return "embeddings"
        if self.has_real_targets:
            return "values"
        if hasattr(loss, "probabilities") and not self.takes_logits:
            return "probabilities"
        return "scores"

    def in_words(self, spec: Mapping[str, Any]) -> str:
        """Describe what a model predicts, such as `10 classes`."""
        size = int(spec[self.size_key])
        return f"{size} {self.unit[size != 1]}"

    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        """Return the evaluator of predictions, whose methods those below call."""
        return Unknown(predictions)

    def scores(self, predictions: StoredPredictions) -> list[Score]:
        """Return scores with intervals, the most important first; none if predictions cannot be evaluated."""
        return self.evaluator(predictions).scores()

    def figures(self, predictions: StoredPredictions) -> list[Figure]:
        """Return the figures of predictions; none if these cannot be evaluated."""
        return self.evaluator(predictions).figures()

    def error_scores(self, predictions: StoredPredictions) -> Array:
        """Return how wrong each prediction is, float `[N]`; NaN if undefined."""
        return self.evaluator(predictions).error_scores()

    def is_right(self, predictions: StoredPredictions) -> Array | None:
        """Return whether each prediction is right, bool `[N]`; None if that is not a yes-or-no question."""
        return self.evaluator(predictions).is_right()

    def baseline_warnings(self, predictions: StoredPredictions) -> list[str]:
        """Return one sentence for each score that a constant prediction would reach as well."""
        return self.evaluator(predictions).baseline_warnings()

    def predicted_label(self, predictions: StoredPredictions, index: int) -> str:
        """Return the prediction for a sample, and the target if it differs."""
        return self.evaluator(predictions).predicted_label(index)

    def hardest_caption(self, predictions: StoredPredictions) -> str:
        """Describe the order of `error_scores` in a sentence."""
        return self.evaluator(predictions).caption


def describe_subset(subset: str) -> str:
    """Name a subset in messages.

    >>> describe_subset("test"), describe_subset("all")
    ('the test subset', 'the whole data')
    """
    if subset == "all":
        return "the whole data"
    return f"the {subset} subset"


def wrong_form(task: Task, subset: str, targets: Tensor) -> DataError:
    """Make the error for targets of another shape or type."""
    hint = "set data.source.task, or change the targets"
    if task.by_class and targets.is_floating_point():
        hint = (
            "data.source.task=regression for numbers; for classes give integers: targets.long()"
        )
    return DataError(
        f"data: {describe_subset(subset)}'s targets have shape {tuple(targets.shape)}, type {targets.dtype}; "
        f"a {task.name} task has {task.form}",
        hint=hint,
    )


NUMBER_CLASSES = (
    "number the classes from 0 on, for example with numpy.unique(targets, return_inverse=True)[1]"
)


def check_range(subset: str, targets: Tensor, highest: int, unit: str) -> None:
    """Refuse numbers that are not classes or labels."""
    if not 0 <= targets.min() <= targets.max() <= highest:
        raise DataError(
            f"data: {describe_subset(subset)} has targets from {targets.min()} to {targets.max()}; "
            f"{unit} go from 0 to {highest}",
            hint=NUMBER_CLASSES,
        )


def check_trained_classes(
    counts: Mapping[str, Sequence[int]], class_names: Sequence[str], units: str = "classes"
) -> None:
    """Refuse classes or labels that another subset has and training lacks."""
    anywhere = [any(of_subset) for of_subset in zip(*counts.values(), strict=True)]
    rows = zip(class_names, anywhere, counts["train"], strict=True)
    if lacking := [name for name, is_present, count in rows if is_present and not count]:
        raise DataError(
            f"data: the test or validation subset has {units} that training lacks: {join_first(lacking)}",
            hint="data.split.seed=1 splits them differently; or add training samples (data.source)",
        )
