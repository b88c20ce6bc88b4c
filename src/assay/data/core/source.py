"""What a source of samples is, and what others may read of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from assay.data.core.source_info import BUILT_IN, SourceInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.data.core.batch_order import BatchOrder
    from assay.data.core.samples import Samples
    from assay.data.core.transforms import Transforms
    from assay.data.core.types import Pair, Rows, Size
    from assay.task.task import Task


class TrainStream(Protocol):
    """Training samples that are never all in memory, in an order that is a function of (seed, epoch)."""

    num_samples: int
    class_counts: tuple[int, ...]
    """Of each class; empty where there are none."""
    digest: str
    """SHA-256 of the contents."""
    row_bytes: int
    """Of a sample before it is decoded."""

    def steps_per_window(self, order: BatchOrder) -> int:
        """Batches of all ranks together whose samples are drawn from one window."""
        ...

    def rows(self, order: BatchOrder, epoch: int, first: int, count: int = 1) -> Rows:
        """Numbers of the samples that make up batches."""
        ...

    def batches(
        self, order: BatchOrder, epoch: int, first: int, count: int, transforms: Transforms
    ) -> list[Pair]:
        """Batches of this rank that lie in one window."""
        ...


class Source(ABC):
    """Where samples come from. One class a data set, in the module of the data set's name.

    A class need not inherit from this one: it gets the defaults of what it leaves out.

    Attributes:
        info: What check, predict, export and report need to know before anything is read.
        task: Its name, or a custom one itself; read after `read()`.
        class_names: One name per class or label, none for regression; read after `read()`.
        notes: What was decided and left out, a sentence each; read after `read()`.
        targets: Names of the real targets, where they have some.
        is_reversed: Whether two classes are in another order than samples are divided by.
        stream: The training samples, where those of `read()` only stand for them.
        text_encoder: Makes token ids of texts, by the tokenizer of a model's weights where that has one.
        image_size: Height and width that images are scaled to.
        max_value: What images of 16 bits are scaled by.
        auto_size: Whether the source chooses `image_size`; False is set where `data.transform` does that.
        resize: Set before `read()` to the scaling that both chains of `data.transform` begin with: a source
            that keeps decoded images may do it, as doing it again changes nothing.
        split_columns: Set before `read()` to what `data.split` names, by key: it asks for `split_values`.
        divides: Whether the source cuts its samples into subsets; False may be set before `read()`.
        fitted: Set before `read()` to the encoder of a trained model, where `info.has_encoder`.
        known_labels: Set before `read()` to the labels of a trained model.
        mask_values: Of each class in masks; set before `read()` to those of a trained model.
    """

    info: ClassVar[SourceInfo] = SourceInfo()
    task: str | Task
    class_names: tuple[str, ...] = ()
    notes: Sequence[str] = ()
    targets: Sequence[str] = ()
    is_reversed: bool = False
    stream: TrainStream | None = None
    text_encoder: Any = None
    image_size: Size | None = None
    max_value: int | None = None
    auto_size: bool = False
    resize: Any = None
    split_columns: Mapping[str, str] = MappingProxyType({})
    divides: bool = False
    fitted: Any = None
    known_labels: Sequence[str] = ()
    mask_values: tuple[int, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.info = BUILT_IN.get(f"{cls.__module__}.{cls.__qualname__}", cls.info)

    def prepare(self) -> None:  # noqa: B027 - most sources have nothing to do
        """Download what is missing; called before `read()`, on one process of a machine."""

    @abstractmethod
    def read(self) -> Mapping[str, Samples]:
        """The subsets the data set comes in: `all`, or `train` and any of `val`, `test`.

        Raises:
            DataError: The data is missing or not what it should be.
        """


def with_defaults(source: Any) -> Source:
    """A source, given what `Source` declares and its own class leaves out."""
    if not isinstance(source, Source):
        defaults = {**vars(Source), "prepare": _do_nothing, "split_columns": {}}
        for name, default in defaults.items():
            if not name.startswith("_") and name != "read" and not hasattr(source, name):
                setattr(source, name, default)
    return cast("Source", source)


def _do_nothing() -> None:
    """Prepare nothing; at the top of a module, so that a source can still be handed to a worker."""


def subset_of(subsets: Mapping[str, Any], name: str) -> Any:
    """A subset as a source reads it; the whole where the source does not divide its samples."""
    if name in subsets:
        return subsets[name]
    return subsets["all" if "all" in subsets else "train"]
