"""How `data.split` divides a source, and what it says about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.data.divide import divide
from assay.data.samples import Samples
from assay.data.subset import Split
from assay.errors import DataError

RNG = np.random.default_rng(0)
N = 120
LABELS = RNG.integers(0, 3, N)
PATIENTS = [f"p{number}" for number in RNG.integers(0, 15, N)]
DAYS = RNG.permutation(np.repeat(np.arange(60), 2))
WORDS = RNG.choice(["train", "val", "test"], N, p=[0.7, 0.1, 0.2])
WHOLE = Samples(
    torch.zeros(N, 2),
    torch.as_tensor(LABELS),
    split_values={"patient": PATIENTS, "day": DAYS, "split": WORDS, "halves": ["train", "test"] * (N // 2)},
)
OWN = {
    "test": Samples(
        torch.zeros(5, 2),
        torch.zeros(5, dtype=torch.int64),
        split_values={"patient": ["q"] * 5, "day": [1] * 5},
    )
}


def cut(given: dict[str, Samples] | None = None, **keys: Any) -> tuple[dict[str, np.ndarray], str]:
    split = Split(**{"val": 0.1, "test": 0.2, **keys})
    rows, notes = divide(WHOLE, given or {}, split, LABELS, ["a", "b", "c"])
    if not given:
        assert sorted(np.concatenate(list(rows.values()))) == list(range(N))
    assert all((np.diff(own) > 0).all() for own in rows.values())
    return rows, "\n".join(notes)


def test_groups_never_straddle() -> None:
    folds: dict[str, Any] = {"folds": 4, "fold": 1}
    for keys in ({}, folds):
        rows, notes = cut(group="patient", **keys)
        seen = [{PATIENTS[row] for row in own} for own in rows.values()]
        assert all(seen)
        assert sum(map(len, seen)) == 15
        assert "data.split.group=patient: each group is whole in one subset" in notes


def test_time_is_never_shuffled_across() -> None:
    rows, notes = cut(time="day")
    assert [len(rows[subset]) for subset in ("train", "val", "test")] == [84, 12, 24]
    assert DAYS[rows["train"]].max() < DAYS[rows["val"]].min()
    assert DAYS[rows["val"]].max() < DAYS[rows["test"]].min()
    assert "train from 0 to 41 (84), val from 42 to 47 (12), test from 48 to 59 (24); not stratified" in notes


def test_a_column_names_the_subsets() -> None:
    rows, notes = cut(column="split")
    assert all((WORDS[own] == subset).all() for subset, own in rows.items())
    rows, notes = cut(column="halves")
    assert rows["test"].tolist() == list(range(1, N, 2))
    assert len(rows["val"]) == 6
    assert "it names no val samples, which are drawn from train" in notes


def test_a_validation_part_beside_a_fold() -> None:
    tested = []
    for fold in range(4):
        rows, notes = cut(folds=4, fold=fold, val=0.15)
        assert len(rows["val"]) == 18
        assert f"fold {fold} of 4 is tested: 30 of 120" in notes
        tested += rows["test"].tolist()
    assert sorted(tested) == list(range(N))


def test_parts_of_the_sources_own() -> None:
    rows, notes = cut(OWN, folds=4, fold=0)
    assert len(rows["test"]) == 30
    assert "own test subset (5 samples) is left out" in notes
    rows, notes = cut(OWN, group="patient")
    assert len(rows["test"]) == 5
    assert "in train (89.2 % of" in notes
    rows, notes = cut(OWN, time="day")
    assert "own test subset begins at 1, before the training subset ends (59)" in notes
    with pytest.raises(
        DataError, match=r"data\.split\.column=split: .* test samples, and the source has such of its own"
    ):
        cut(OWN, column="split")
    shared = {"test": Samples(torch.zeros(1, 2), torch.zeros(1), split_values={"patient": ["p3"]})}
    with pytest.raises(
        DataError, match=r"data.split.group=patient: 1 groups are in the source's test .*'p3'"
    ):
        cut(shared, group="patient")


def test_a_class_in_fewer_groups_than_folds_is_said() -> None:
    labels = (np.arange(60) >= 50).astype(np.int64)
    whole = Samples(torch.zeros(60, 1), torch.as_tensor(labels), split_values={"g": np.arange(60) // 5})
    split = Split(0.1, 0.2, group="g", folds=4, fold=0)
    assert "fewer groups than folds have: rare" in "\n".join(
        divide(whole, {}, split, labels, ["much", "rare"])[1]
    )


def test_inner_folds_never_see_the_outer_one() -> None:
    """Over inner folds each sample outside fold k is validated once, those of fold k never."""
    for fold in range(3):
        outer, _ = cut(folds=3, fold=fold)
        validated: list[int] = []
        for inner in range(4):
            split = Split(0.1, 0.2, folds=3, fold=fold, inner_folds=4, inner_fold=inner, group="patient")
            rows, notes = divide(WHOLE, OWN, split, LABELS, ["a", "b", "c"])
            own = divide(WHOLE, OWN, Split(0.1, 0.2, folds=3, fold=fold, group="patient"), LABELS, "abc")[0]
            left = set(own["train"]) | set(own["val"])
            assert set(rows["train"]) | set(rows["val"]) == left
            assert not len(rows["test"])
            assert not {PATIENTS[row] for row in rows["train"]} & {PATIENTS[row] for row in rows["val"]}
            assert f"inner fold {inner} of 4 is validated" in "\n".join(notes)
            validated += rows["val"].tolist()
        assert sorted(validated) == sorted(left)
        assert len(outer["test"]) == 40
