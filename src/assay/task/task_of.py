"""The built-in tasks by name, and two variants of others."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from typing_extensions import override

from assay.errors import ConfigError
from assay.task.classification import Multiclass, Multilabel, SingleLabel
from assay.task.figures.value_figures import Embeddings
from assay.task.language_modelling import LanguageModelling
from assay.task.multitask import Multitask, Regression
from assay.task.predictions import KINDS
from assay.task.reconstruction import FromInputs, Reconstruction
from assay.task.segmentation import Segmentation
from assay.task.task import LOGIT_KINDS, Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from assay.task.evaluator import Evaluator
    from assay.task.predictions import Kind, StoredPredictions


def check_interface(task: Task, key: str) -> None:
    """Refuse a task that lacks a required attribute."""
    kind = type(task)
    if lacking := [name for name in Task.__annotations__ if not hasattr(kind, name)]:
        raise ConfigError(
            f"{task.name!r} lacks attributes that assay.task.task.Task requires: {', '.join(lacking)}",
            key=key,
            hint=f"set {'it' if len(lacking) == 1 else 'them'} as attributes of {kind.__name__}",
        )


def custom_output_kind(module: Any) -> Kind | None:
    """Return the kind of outputs that a custom `LightningModule` declares; None if it declares none."""
    kind: Kind | None = getattr(module, "prediction_kind", None)
    if kind is not None and kind not in KINDS:
        raise ConfigError(
            f"prediction_kind of {type(module).__name__} is {kind!r}; expected one of {', '.join(KINDS)}",
            key="module._target_",
        )
    return kind


@final
class Binary(SingleLabel):
    """One of two classes per sample; the model returns one logit or two values, depending on the loss."""

    name = "binary"
    suits = "loss=bce_with_logits metrics=binary"
    loss_kinds = LOGIT_KINDS | {"embedding"}
    form = "0 or 1 per sample, [N]"
    num_classes = 2

    @override
    def hard_targets(self, targets: Tensor) -> Tensor:
        if targets.is_floating_point() and (targets.ndim == 1 or targets.shape[1] == 1):  # chances of yes
            return (targets.flatten() >= 0.5).long()
        return super().hard_targets(targets)

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        return 1 if loss_kind == "binary" else super().num_outputs(spec, loss_kind)


@final
class SelfSupervised(FromInputs):
    """Learns features in which views of one sample are close and those of different samples far apart."""

    name = "self_supervised"
    suits = "model=simclr loss=nt_xent augment=two_views metrics=retrieval"
    loss_kinds: ClassVar[frozenset[str]] = frozenset({"views"})
    unit = ("class, as labels to judge by", "classes, as labels to judge by")
    kind: ClassVar[Kind | None] = "embeddings"
    compares_views = True

    @override
    def num_outputs(self, spec: Mapping[str, Any], loss_kind: str | None = None) -> int:
        """Only for outputs of smoke tests; a model chooses the width of its features."""
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
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        return Embeddings()


_BUILT_IN: Final[Sequence[Task]] = (
    *(Multiclass(), Binary(), Multilabel(), Regression(), Segmentation()),
    *(Multitask(), LanguageModelling(), Reconstruction(), SelfSupervised()),
)
TASKS: Final[Mapping[str, Task]] = MappingProxyType({task.name: task for task in _BUILT_IN})
"""Built-in tasks, by their name in a config."""
_OWN: Final[dict[str, Task]] = {}
"""Custom tasks that were imported, by their dotted path."""


def register_task(task: Task) -> None:
    """Register a custom task for `task_of`."""
    _OWN[task.name] = task


def find_task(name: str) -> Task | None:
    """Return the task of a name; None if its package was not trusted and imported."""
    return TASKS.get(name) or _OWN.get(name)


def task_of(name: str | Task) -> Task:
    """Return the task of a name, and register a custom one."""
    if isinstance(name, Task):
        if _OWN.get(name.name) is not name and TASKS.get(name.name) is not name:
            check_interface(name, "data.source.task")
            register_task(name)
        return name
    task = find_task(name)
    if task is None and "." in name:
        raise ValueError(
            f"task={name!r} is in a package that is not trusted here; if the package is yours, add "
            f"trusted_packages: [{name.partition('.')[0]}] to conf/project.yaml; a data source sets "
            f"the task itself: task = {name.rpartition('.')[2]}()"
        )
    if task is None:
        message = f"task={name!r}: expected one of {', '.join(TASKS)}, or the dotted path of a custom task"
        raise ValueError(message)
    return task


def infer_task(*, is_real: bool, num_columns: int, num_classes: int = 0) -> str:
    """Infer the task of targets without one: regression for real numbers, else classes or labels."""
    if is_real:
        return Regression.name
    if num_columns != 1:
        return Multilabel.name
    return Binary.name if num_classes == Binary.num_classes else Multiclass.name
