"""K folds have the properties of scikit-learn's, through `read_splits`, seeds and groups included."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from assay.data.divide import cut_fold
from assay.data.subset import Split
from assay.errors import DataError

RNG = np.random.default_rng(0)
LABELS = RNG.choice(4, 200, p=[0.4, 0.3, 0.2, 0.1])
GROUPS = RNG.integers(0, 25, 200)
INDICES = np.arange(3, 200)
"""Three samples are no subset of it, as a column or a subset of the source's own may leave some out."""
NAMES = ["a", "b", "c", "d"]


def folds(
    labels: np.ndarray | None, groups: np.ndarray | None, num: int = 5, seed: int = 0
) -> list[np.ndarray]:
    found = []
    for fold in range(num):
        split = Split(0.1, 0.2, seed=seed, folds=num, fold=fold)
        rest, tested = cut_fold(INDICES, split, labels, groups, NAMES)
        assert sorted([*rest, *tested]) == INDICES.tolist()
        found.append(tested)
    return found


@pytest.mark.parametrize("seed", [0, 7])
def test_folds_are_scikit_learns(seed: int) -> None:
    """Each sample is tested once; classes are in proportion, groups whole."""
    own, group = LABELS[INDICES], GROUPS[INDICES]
    seeded = {"n_splits": 5, "shuffle": True, "random_state": seed}
    cases = [
        (None, None, KFold(**seeded).split(own)),
        (LABELS, None, StratifiedKFold(**seeded).split(own, own)),
        (LABELS, GROUPS, StratifiedGroupKFold(**seeded).split(own, own, group)),
    ]
    for labels, groups, reference in cases:
        found = folds(labels, groups, seed=seed)
        assert [one.tolist() for one in found] == [INDICES[test].tolist() for _, test in reference]
        assert sorted(np.concatenate(found)) == INDICES.tolist()
        if groups is not None:
            of = [set(groups[one]) for one in found]
            assert sum(map(len, of)) == len(set.union(*of))
        elif labels is not None:
            counts = np.array([np.bincount(labels[one]) for one in found])
            assert (counts.max(0) - counts.min(0) <= 1).all()


def test_groups_without_classes_stay_whole() -> None:
    found = folds(None, GROUPS)
    assert sorted(np.concatenate(found)) == INDICES.tolist()
    assert sum(len(set(GROUPS[one])) for one in found) == len(set(GROUPS[INDICES]))
    assert max(map(len, found)) < 2 * min(map(len, found))


@pytest.mark.parametrize(
    ("labels", "groups", "num", "message", "hint"),
    [
        (None, None, 198, "only 197 samples", "data.split.folds=197"),
        (LABELS, None, 60, "only [0-9]+ samples of class 'd'", "data.split.folds="),
        (None, GROUPS, 26, "only 25 groups", "data.split.folds=25"),
        (
            np.repeat(np.arange(100), 2),
            GROUPS,
            5,
            "number of members in all classes|n_splits=5",
            "data.split.folds=4",
        ),
        (None, np.zeros(200, int), 2, "only 1 groups", "data.split.folds=null fold=null"),
    ],
)
def test_too_few_are_refused(
    labels: np.ndarray | None, groups: np.ndarray | None, num: int, message: str, hint: str
) -> None:
    with pytest.raises(DataError, match=f"data.split.folds={num}: .*{message}") as caught:
        folds(labels, groups, num)
    assert hint in (caught.value.hint or "")
