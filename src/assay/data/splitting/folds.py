"""K folds, one of which is tested: scikit-learn's own, seeded."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.data.splitting.split_rows import Split

    Rows = NDArray[np.int64]


def cut_fold(
    indices: Rows,
    split: Split,
    labels: Rows | None,
    groups: Rows | None,
    class_names: Sequence[str],
    *,
    key: str = "data.split.folds",
) -> tuple[Rows, Rows]:
    """The samples without fold `split.fold` of `split.folds`, and that fold.

    Over all folds each sample is in exactly one. Classes are divided in proportion; groups stay whole, and
    classes are in proportion as far as that allows.

    Args:
        indices: What there is.
        split: Says how many folds, which one, and the seed.
        labels: Class of every sample of the data set; None for other tasks.
        groups: Group of every sample of the data set; None where samples stand alone.
        class_names: For messages.
        key: That says how many folds, for messages.

    Returns:
        The rest and the fold, each in ascending order.

    Raises:
        DataError: There are fewer samples, groups, or samples of a class than folds.
    """
    folds = int(split.folds or 0)
    told = f"{key}={folds}"
    what, there = (
        ("group", len(np.unique(groups[indices]))) if groups is not None else ("sample", len(indices))
    )
    if there < folds:
        raise DataError(f"{told}: there are only {there} {what}s, fewer than folds", hint=_fewer(key, there))
    own = None if labels is None else labels[indices]
    if own is not None and groups is None:
        present, counts = np.unique(own, return_counts=True)
        if (least := int(counts.min())) < folds:
            name = class_names[int(present[counts.argmin()])]
            raise DataError(
                f"{told}: the class {name!r} has only {least} sample(s), fewer than folds",
                hint=f"{_fewer(key, least)}, or add samples of it, or leave the class out",
            )
    seeded = {"n_splits": folds, "shuffle": True, "random_state": split.seed}
    classes = np.zeros(len(indices), np.int64) if own is None else own
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a class in fewer groups than folds, which is said
        if groups is not None:
            cuts = StratifiedGroupKFold(**seeded).split(classes, classes, groups[indices])
        else:
            cuts = (KFold if own is None else StratifiedKFold)(**seeded).split(classes, classes)
        try:
            rest, fold = list(cuts)[int(split.fold or 0)]
        except ValueError as error:  # groups of classes each of which has fewer samples than folds
            raise DataError(
                f"{told}: each class has fewer samples than folds", hint=_fewer(key, folds - 1)
            ) from error
    if not len(fold) or not len(rest):
        raise DataError(
            f"{told}: fold {split.fold} is empty, as some groups are too large", hint=_fewer(key, folds - 1)
        )
    return indices[rest], indices[fold]


def _fewer(key: str, most: int) -> str:
    fold = key.rpartition(".")[2].removesuffix("s")
    return f"{key}={most}" if most > 1 else f"{key}=null {fold}=null"
