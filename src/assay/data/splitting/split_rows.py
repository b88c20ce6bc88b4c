"""Seeded train/val/test subsets, and long-tailed versions of a training subset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray


@final
@dataclass(frozen=True)
class Split:
    """How the samples are divided that a source does not come divided.

    Attributes:
        val: Validation samples: a share of all samples, or, when the source has a test subset of its own, of
            the samples it gives for training.
        test: Test samples: a share of all samples; not used with folds.
        seed: Of the draw; apart from the run's seed, so that runs over several seeds are tested on the same
            samples.
        group: A column; samples that share its value stay together. Of data without columns, here and below:
            a regular expression over the paths of the files, whose one group is the value.
        time: A column of dates or numbers; the latest samples are the test subset, those before them the
            validation subset.
        column: A column that says `train`, `val` or `test`.
        folds: Into how many folds the samples are divided, one of which is tested.
        fold: Which one, from 0.
        inner_folds: Into how many folds the rest is divided, one of which is the validation subset; there is
            no test subset then.
        inner_fold: Which one, from 0.
    """

    val: float
    test: float
    seed: int = 0
    group: str | None = None
    time: str | None = None
    column: str | None = None
    folds: int | None = None
    fold: int | None = None
    inner_folds: int | None = None
    inner_fold: int | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The columns that samples are divided by, by the key that names each."""
        named = {"group": self.group, "time": self.time, "column": self.column}
        return {f"data.split.{key}": str(name) for key, name in named.items() if name is not None}

    def share_of_rest(self, subset: str, given: Collection[str]) -> float:
        """Share to take of what is left for `subset`; the test subset is taken before the validation subset.

        Args:
            subset: `val` or `test`.
            given: Subsets that the source has of its own.

        >>> Split(val=0.1, test=0.5).share_of_rest("val", given=())
        0.2
        """
        if subset == "test":
            return self.test
        tested = 1 / self.folds if self.folds else self.test
        return self.val if "test" in given and not self.folds else self.val / (1 - tested)


def hold_out(
    indices: NDArray[np.int64], fraction: float, labels: NDArray[np.int64] | None, seed: int, subset: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Take a subset away.

    Args:
        indices: What there is.
        fraction: Share (0 to 1) of `indices` to take.
        labels: Class of every sample of the data set, for a stratified subset; None for a plain one.
        seed: Of the draw.
        subset: `val` or `test`, for messages.

    Returns:
        The rest and the subset, each in ascending order.

    Raises:
        DataError: There are too few samples for a subset of this size.
    """
    if fraction == 0:
        return indices, indices[:0]
    stratify = None if labels is None else labels[indices]
    try:
        rest, taken = train_test_split(indices, test_size=fraction, random_state=seed, stratify=stratify)
    except ValueError as error:
        counts: list[int] = [] if stratify is None else np.unique(stratify, return_counts=True)[1].tolist()
        classes = f" of {len(counts)} classes (the smallest has {min(counts)})" if len(counts) else ""
        raise DataError(
            f"data.split.{subset}: of {len(indices)} sample(s){classes} no share of {fraction:.3g} "
            "can be cut",
            hint=f"add samples, or take no such subset: data.split.{subset}=0",
        ) from error
    return np.sort(rest), np.sort(taken)


def long_tail(
    indices: NDArray[np.int64], labels: NDArray[np.int64], num_classes: int, ratio: float, seed: int
) -> NDArray[np.int64]:
    """Thin classes out exponentially: class j keeps ⌊n_max · ratio^(j / (C - 1))⌋ samples.

    The protocol of Cui et al., "Class-Balanced Loss Based on Effective Number of Samples" (CVPR 2019), as
    LDAM uses it.

    Args:
        indices: Samples of the training subset.
        labels: Class of every sample of the data set.
        num_classes: C.
        ratio: Smallest class over largest class, in (0, 1].
        seed: Of the choice within a class.

    Returns:
        The samples kept, in ascending order; every class keeps at least one.
    """
    generator = np.random.default_rng(seed)
    counts = np.bincount(labels[indices], minlength=num_classes)
    kept = []
    for label in range(num_classes):
        wanted = max(1, int(counts.max() * ratio ** (label / max(1, num_classes - 1))))
        members = indices[labels[indices] == label]
        kept.append(generator.permutation(members)[:wanted])
    return np.sort(np.concatenate(kept))
