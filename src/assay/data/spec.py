"""What the data tells the rest of the config."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from assay.task.task_of import task_of

if TYPE_CHECKING:
    from assay.task.task_name import TaskName


@dataclass(frozen=True)
class Spec:
    """A description of a data set, merged into the config as node `spec`.

    Attributes:
        task: What is predicted.
        input_shape: Shape of one sample, channels first.
        input_dtype: Type of its values before they are normalised, such as `uint8` (0 to 255) or `float32`;
            `int64` of token ids.
        vocab_size: Token ids go from 0, which is padding, to below this; 0 where inputs are not token ids.
        token_bytes: How many bytes of text each token id stands for, as
            `assay.task.language_modelling` writes it; empty where nobody asks.
        train_shape: Shape of one sample in training, where the transforms there make it another; else empty.
        num_classes: Number of classes; 2 for a binary task, the number of labels for a multilabel one, 0 for
            regression.
        num_targets: Number of real-valued targets of a regression; 0 otherwise.
        class_names: One name per class (or label); empty for regression.
        target_names: One name per real-valued target of a regression, where they have names.
        class_counts: Training samples of each class, positive training samples of each label, or training
            pixels of each class of a mask.
        ignore_index: Class of pixels that loss and metrics leave out; -100, which no class has, for none.
        num_train: Training samples.
        num_val: Validation samples.
        num_test: Test samples.
        mean: What the inputs are normalised with, a value a channel or feature (or a single one); empty: not
            at all.
        std: As `mean`.
        target_mean: What the targets of a regression are standardised with, a value per target, or a
            reconstruction, a value per channel or feature; empty: not at all.
        target_std: As `target_mean`.
        image_size: Height and width that the source scales pictures to; None where it does not.
        value_range: Lowest and highest value of the inputs of a reconstruction, bytes as 0 to 1; empty where
            nobody has looked.
    """

    task: TaskName
    input_shape: tuple[int, ...]
    input_dtype: str = "float32"
    vocab_size: int = 0
    token_bytes: str = field(default="", repr=False)
    train_shape: tuple[int, ...] = ()
    num_classes: int = 0
    num_targets: int = 0
    class_names: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()
    ignore_index: int = -100
    num_train: int = 0
    num_val: int = 0
    num_test: int = 0
    mean: tuple[float, ...] = field(default=(), repr=False)
    std: tuple[float, ...] = field(default=(), repr=False)
    target_mean: tuple[float, ...] = field(default=(), repr=False)
    target_std: tuple[float, ...] = field(default=(), repr=False)
    value_range: tuple[float, ...] = field(default=(), repr=False)
    image_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        task_of(self.task)

    @property
    def num_features(self) -> int:
        """Number of values of one sample.

        >>> Spec(task="multiclass", input_shape=(3, 4, 4), num_classes=2).num_features
        48
        """
        return math.prod(self.input_shape)

    def as_config(self) -> dict[str, Any]:
        """Plain containers for the config node `spec`."""
        plain = {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }
        return {**plain, "num_features": self.num_features}
