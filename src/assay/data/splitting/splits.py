"""A source divided into train, val and test, and what there is to say about it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from assay.data.samples import Samples, Unfitted
from assay.data.spec import Spec, Task
from assay.data.splitting.split import hold_out, long_tail
from assay.data.splitting.validate import (
    check_batch,
    check_classes,
    check_inputs,
    check_number,
    check_spread,
    check_targets,
)
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.samples import Encoder, Source, Stream
    from assay.data.splitting.split import Split


@final
@dataclass(frozen=True, eq=False)
class Parts:
    """The three parts of a data set.

    Attributes:
        task: Of the source.
        class_names: Of the source.
        data: What each part's rows index; parts may share it.
        rows: int64 indices of each part's samples.
        encoder: What made the inputs of raw records; None where they come as numbers.
    """

    task: Task
    class_names: tuple[str, ...]
    data: Mapping[str, Samples | Stream]
    rows: Mapping[str, NDArray[np.int64]]
    encoder: Encoder | None = None

    @property
    def num_classes(self) -> int:
        """As in `Spec`."""
        return len(self.class_names)

    def targets(self, part: str) -> Tensor:
        """Targets of one part, in its order.

        Args:
            part: `train`, `val` or `test`.
        """
        return self.data[part].targets[torch.as_tensor(self.rows[part])]

    def check(self, batch_size: int) -> None:
        """Refuse what cannot be trained on.

        Args:
            batch_size: Training samples needed for one batch.

        Raises:
            DataError: Too few samples, an empty class, a value that is not finite, a class that training
                never sees.
        """
        check_number(len(self.rows["train"]))
        seen: set[int] = set()
        for part, data in self.data.items():
            if isinstance(data, Samples) and id(data) not in seen:
                check_inputs(part, data)
            seen.add(id(data))
            found, wanted = data.targets.shape[1:], self.data["train"].targets.shape[1:]
            if found != wanted:
                raise DataError(
                    f"data: targets of the {part} part have shape {list(found)} a sample, of training "
                    f"{list(wanted)}",
                    hint="give all parts the same targets",
                )
        if self.task in ("multiclass", "binary"):
            check_classes(self.class_names, {part: self._class_counts(part) for part in self.rows})
        elif self.task == "regression":
            check_spread(self.targets("train"))
        check_batch(len(self.rows["train"]), batch_size)  # last: too few may follow from what is wrong above

    def _class_counts(self, part: str) -> NDArray[np.int64]:
        return np.bincount(self.targets(part).numpy(), minlength=self.num_classes)

    def describe(
        self,
        first: Tensor,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        target_mean: tuple[float, ...] = (),
        target_std: tuple[float, ...] = (),
        *,
        train_shape: tuple[int, ...] = (),
    ) -> Spec:
        """The spec of these parts.

        Args:
            first: Some transformed inputs `[B, ...]`.
            mean: Normalisation.
            std: Normalisation.
            target_mean: What targets are standardised with.
            target_std: As `target_mean`.
            train_shape: As in `Spec`.
        """
        targets = self.targets("train")
        counts: tuple[int, ...] = ()
        if self.task in ("multiclass", "binary"):
            counts = tuple(self._class_counts("train").tolist())
        elif self.task == "multilabel":
            counts = tuple((targets >= 0.5).sum(0).tolist())
        return Spec(
            task=self.task,
            input_shape=tuple(first.shape[1:]),
            input_dtype=str(first.dtype).removeprefix("torch."),
            train_shape=train_shape,
            num_classes=self.num_classes,
            num_targets=targets.shape[1] if self.task == "regression" else 0,
            class_names=self.class_names,
            class_counts=counts,
            num_train=len(self.rows["train"]),
            num_val=len(self.rows["val"]),
            num_test=len(self.rows["test"]),
            mean=mean,
            std=std,
            target_mean=target_mean,
            target_std=target_std,
        )

    def digest(self) -> str:
        """SHA-256 over contents and division."""
        digest = hashlib.sha256()
        contents: dict[int, str] = {}
        for part in ("train", "val", "test"):
            data = self.data[part]
            if id(data) not in contents:
                contents[id(data)] = data.digest()
            digest.update(contents[id(data)].encode())
            digest.update(self.rows[part].tobytes())
        return digest.hexdigest()


def read_parts(source: Source, split: Split, imbalance: float | None) -> Parts:
    """Read a source and divide what it does not come divided.

    Classes are divided in proportion (stratified).

    Args:
        source: The data set.
        split: Shares and seed.
        imbalance: Ratio of the long tail; None for all samples.

    Raises:
        DataError: The data is not what the source says it is; or see `hold_out` and `long_tail`.
    """
    given = dict(source.read())
    for part, data in given.items():
        check_targets(source.task, tuple(source.class_names), part, data)
    if "all" not in given and "train" not in given:
        raise DataError(
            f"data: there is no training part, only: {', '.join(given) or 'nothing'}",
            hint="name one all, or train",
        )
    whole = given.pop("all") if "all" in given else given.pop("train")
    by_class = source.task in ("multiclass", "binary")
    labels = whole.targets.numpy() if by_class else None
    rows = {part: np.arange(len(data)) for part, data in given.items()}
    rows["train"] = np.arange(len(whole))
    # The test part is taken first, so that changing the share for validation leaves it as it is.
    for part in ("test", "val"):
        if part not in given:
            share = split.share_of_rest(part, given)
            rows["train"], rows[part] = hold_out(rows["train"], share, labels, split.seed, part)
    if imbalance is not None:
        if labels is None:
            raise DataError(
                f"data.imbalance={imbalance}: only classes can be imbalanced, this is a {source.task} task",
                hint="data.imbalance=null",
            )
        rows["train"] = long_tail(rows["train"], labels, len(source.class_names), imbalance, split.seed)
    encoded = _encode({"train": whole, **given}, rows["train"])
    shared = {part: encoded.get(part, encoded["train"]) for part in ("train", "val", "test")}
    encoder = whole.encoder if isinstance(whole, Unfitted) else None
    return Parts(source.task, tuple(source.class_names), shared, rows, encoder)


def _encode(
    given: Mapping[str, Samples | Stream | Unfitted], train: NDArray[np.int64]
) -> dict[str, Samples | Stream]:
    encoded: dict[str, Samples | Stream] = {}
    for part, data in given.items():  # the training part comes first
        if isinstance(data, Unfitted):
            if part == "train":
                data.encoder.fit(data.raw, train)
            encoded[part] = Samples(data.encoder.transform(data.raw), data.targets)
        else:
            encoded[part] = data
    return encoded
