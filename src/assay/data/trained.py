"""What a run knows of its data: by it, other samples become what its model takes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import torch

from assay.data.samples import Samples, Unfitted
from assay.data.spec import Spec  # noqa: TC001 - dataclasses look their annotations up
from assay.data.transform.normalize import stored_type
from assay.errors import DataError
from assay.task.heads import heads_of
from assay.task.target_check import subset_in_words
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from assay.data.samples import Source, Stream
    from assay.task.heads import Head

    _Data = Samples | Stream | Unfitted


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """What was learned from a run's training subset, for samples that its model is evaluated on.

    Attributes:
        spec: Of the run.
        encoder: Of the run's raw records; None where they come as numbers.
        notes: Sentences on how the classes of the samples differ; there after `adapted`.
    """

    spec: Spec
    encoder: Any = None
    notes: list[str] = field(default_factory=list)

    def adapted(
        self, source: Source, given: Mapping[str, _Data], asked: str | None = None
    ) -> dict[str, _Data]:
        """The subsets of a source with the run's classes and encoder in place of their own.

        Args:
            source: Has been read.
            given: What it gave.
            asked: The task in place of the source's own, if any.

        Raises:
            DataError: The samples are of another task, or have classes, labels or a form that the model does
                not know.
        """
        task = task_of(asked or source.task)
        known = task_of(self.spec.task)
        if task.by_class and known.by_class:
            task = known  # how many classes new samples have is not how many the model knows
        if task is not known:
            raise DataError(
                f"data: its task is {task.name}; the model was trained for {self.spec.task}",
                hint=f"data.source.task={self.spec.task}, or data of the same kind",
            )
        self.notes.clear()
        names, targets = tuple(source.class_names), {subset: data.targets for subset, data in given.items()}
        if task.learns_from_inputs:
            if any(values.ndim != 1 for values in targets.values()) or names != self.spec.class_names:
                targets = {subset: values.new_zeros(len(values), 0) for subset, values in targets.items()}
        elif task.has_real_targets:
            self._check_width(targets)
        elif task.has_masks:
            targets = self._masks(names, targets)
        elif names != self.spec.class_names:
            known_names = self.spec.class_names
            if task.has_heads:
                targets = self._heads(heads_of(names), heads_of(known_names), targets)
            else:
                targets = (
                    self._classes(names, known_names, targets)
                    if task.by_class
                    else self._labels(names, targets)
                )
        return {name: self._encoded(replace(data, targets=targets[name])) for name, data in given.items()}

    def _check_width(self, targets: Mapping[str, Tensor]) -> None:
        for subset, values in targets.items():
            if (width := values.shape[-1]) != self.spec.num_targets:
                raise DataError(
                    f"data: {subset_in_words(subset)} has {width} targets; the model predicts "
                    f"{self.spec.num_targets}",
                    hint="name the same targets as in training",
                )

    def _heads(
        self, heads: Sequence[Head], known: Sequence[Head], targets: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Targets as columns in the order of the model's heads, classes numbered as it numbers them."""
        by_name = {head.name: head for head in heads}
        if lacking := [head.name for head in known if head.name not in by_name]:
            raise DataError(
                f"data: it lacks the target {lacking[0]!r}, which the model was trained on",
                hint=f"targets: {', '.join(head.name for head in known)}",
            )
        columns: dict[str, list[Tensor]] = {subset: [] for subset in targets}
        for head in known:
            of = by_name[head.name]
            own = {subset: values[:, of.column] for subset, values in targets.items()}
            if bool(of.class_names) != bool(head.class_names):
                raise DataError(
                    f"data: the target {head.name!r} is not of the kind that the model was trained on",
                    hint="name the same targets as in training",
                )
            if head.class_names:
                indices = {subset: values.long() for subset, values in own.items()}
                own = self._classes(of.class_names, head.class_names, indices)
            for subset, values in own.items():
                columns[subset].append(values.float())
        return {subset: torch.stack(several, 1) for subset, several in columns.items()}

    def _classes(
        self, names: Sequence[str], wanted: Sequence[str], targets: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        known = {name: index for index, name in enumerate(wanted)}
        present = {int(label) for values in targets.values() for label in torch.unique(values)}
        strange = [name for label, name in enumerate(names) if name not in known and label in present]
        if strange:
            raise _unknown("class", strange, wanted)
        self._say(names, wanted, [name for name in known if name not in names])
        new = torch.tensor([known.get(name, -1) for name in names])
        return {subset: new[values] for subset, values in targets.items()}

    def _masks(self, names: tuple[str, ...], targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        known = self.spec.class_names
        if names != known[: len(names)]:
            raise DataError(
                f"data: the masks have the classes {', '.join(names[:10])}; the model was trained on "
                f"{', '.join(known[:10])}",
                hint=f"number and name them alike: data.source.class_names=[{','.join(known)}]",
            )
        self._say(names, known, list(known[len(names) :]))
        missing = len(known) - len(names)
        return {  # of a stream they are the pixels of each class
            subset: torch.nn.functional.pad(values, (0, missing)) if values.ndim == 2 else values
            for subset, values in targets.items()
        }

    def _labels(self, names: tuple[str, ...], targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if strange := [name for name in names if name not in self.spec.class_names]:
            raise _unknown("label", strange, self.spec.class_names)
        if lacking := [name for name in self.spec.class_names if name not in names]:
            raise DataError(
                f"data: it lacks the label {lacking[0]!r}, which the model was trained on",
                hint=f"labels: {', '.join(self.spec.class_names)}",
            )
        self._say(names, self.spec.class_names, [])
        order = torch.tensor([names.index(name) for name in self.spec.class_names])
        return {subset: values.index_select(1, order) for subset, values in targets.items()}

    def _say(self, names: Sequence[str], wanted: Sequence[str], lacking: Sequence[str]) -> None:
        if lacking:
            self.notes.append(
                f"the data has no class {', '.join(lacking)}: scores averaged over the classes mean little"
            )
        ours = [name for name in wanted if name in names]
        if ours != [name for name in names if name in ours]:
            self.notes.append("the classes come in another order than in training; they were matched by name")

    def _encoded(self, data: _Data) -> _Data:
        if not isinstance(data, Unfitted):
            return data
        if self.encoder is None:
            raise DataError(
                "data: it is a table of raw columns; the model was trained on an array of numbers",
                hint="give data of the kind that the run was trained on",
            )
        unknown = getattr(self.encoder, "unknown", None)
        self.notes.extend(unknown(data.raw) if unknown is not None else ())
        return replace(data, encoder=self.encoder)

    def check(self, first: Tensor) -> None:
        """Refuse samples that the model does not take.

        Args:
            first: Some transformed inputs `[B, ...]`.

        Raises:
            DataError: They have another shape, or another type that is scaled in another way.
        """
        shape, wanted = tuple(first.shape[1:]), tuple(self.spec.input_shape)
        stored = stored_type(first.dtype)
        trained = self.spec.input_dtype
        alike = stored == trained or (first.is_floating_point() and "float" in trained)
        if shape != wanted or not alike:
            raise DataError(
                f"data: a sample has shape {list(shape)} and type {stored}; the model was trained on "
                f"{list(wanted)} and {trained}",
                hint="give data of the form that the run was trained on",
            )


def _unknown(what: str, names: Sequence[str], known: Sequence[str]) -> DataError:
    more = f", and {len(names) - 5} more" if len(names) > 5 else ""
    return DataError(
        f"data: the model does not know the {what} {', '.join(map(repr, names[:5]))}{more}",
        hint=f"leave such samples out; it was trained on {', '.join(known)}",
    )
