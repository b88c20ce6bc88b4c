"""How `data.split` divides a source, what it says about it, and what is read again for a trained model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    train_test_split,
)
from torch import Tensor
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.data_module import DataModule
from assay.data.core.samples import Samples
from assay.data.core.spec import FittedPreprocessing, Spec
from assay.data.core.split import (
    Split,
    cut_fold,
    divide,
    hold_out_groups,
    hold_out_latest,
    long_tail,
    parse_subsets,
    parse_times,
    values_of,
)
from assay.data.core.splits import Splits, read_for_model, read_splits
from assay.data.table.table_encoder import TableEncoder
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
    rows, notes = divide(WHOLE, given or {}, split, LABELS)
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
    assert "in train (90.0 % of" in notes
    with pytest.raises(
        DataError, match=r"data\.split\.column=split: .* test samples, but the source has its own as well"
    ):
        cut(OWN, column="split")
    shared = {"test": Samples(torch.zeros(1, 2), torch.zeros(1), split_values={"patient": ["p3"]})}
    with pytest.raises(
        DataError, match=r"data.split.group=patient: 1 groups are in the source's test .*'p3'"
    ):
        cut(shared, group="patient")


DRAW = np.random.default_rng(0)
CLASSES = DRAW.choice(4, 200, p=[0.4, 0.3, 0.2, 0.1])
GROUPS = DRAW.integers(0, 25, 200)
INDICES = np.arange(3, 200)
"""Three samples are no subset of it, as a column or a subset of the source's own may leave some out."""


def folds(
    labels: np.ndarray | None, groups: np.ndarray | None, num: int = 5, seed: int = 0
) -> list[np.ndarray]:
    found = []
    for fold in range(num):
        split = Split(0.1, 0.2, seed=seed, folds=num, fold=fold)
        rest, tested = cut_fold(INDICES, split, labels, groups)
        assert sorted([*rest, *tested]) == INDICES.tolist()
        found.append(tested)
    return found


@pytest.mark.parametrize("seed", [0, 7])
def test_folds_are_scikit_learns(seed: int) -> None:
    """Each sample is tested once."""
    own, group = CLASSES[INDICES], GROUPS[INDICES]
    seeded = {"n_splits": 5, "shuffle": True, "random_state": seed}
    for labels, groups, reference in (
        (None, None, KFold(**seeded).split(own)),
        (CLASSES, None, StratifiedKFold(**seeded).split(own, own)),
        (CLASSES, GROUPS, StratifiedGroupKFold(**seeded).split(own, own, group)),
        (None, GROUPS, StratifiedGroupKFold(**seeded).split(own, own * 0, group)),
    ):
        found = folds(labels, groups, seed=seed)
        assert [one.tolist() for one in found] == [INDICES[test].tolist() for _, test in reference]
        assert sorted(np.concatenate(found)) == INDICES.tolist()


@pytest.mark.parametrize(
    ("labels", "groups", "num", "message"),
    [
        (None, None, 198, "the number of samples that can be divided, 197$"),
        (np.append(np.arange(150), [0] * 50), None, 51, "the number of samples that can be divided, 50$"),
        (CLASSES, GROUPS, 26, "the number of groups that can be divided, 25$"),
        (GROUPS, GROUPS, 5, "fold 0 is empty"),
    ],
)
def test_too_few_are_refused(labels: Any, groups: Any, num: int, message: str) -> None:
    with pytest.raises(DataError, match=rf"(?m)data.split.folds={num}: .*{message}"):
        folds(labels, groups, num)


COUNTS = st.lists(st.integers(1, 12) | st.integers(13, 90), min_size=2, max_size=40)


@given(COUNTS, st.sampled_from([0.02, 0.1, 0.2, 0.5, 0.7]), st.integers(0, 3))
def test_any_classes_are_divided_in_proportion_and_kept_in_training(
    counts: list[int], share: float, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    data = Samples(torch.zeros(len(labels), 1), torch.as_tensor(labels))
    if max(counts) == 1:
        with pytest.raises(DataError, match=r"data\.split\.test: .* each the only one of its class"):
            divide(data, {}, Split(val=0, test=share, seed=seed), labels)
        return
    rows, _ = divide(data, {}, Split(val=0, test=share, seed=seed), labels)
    assert sorted([*rows["train"], *rows["test"]]) == list(range(len(labels)))
    tested = np.bincount(labels[rows["test"]], minlength=len(counts))
    assert tested.sum() > 0
    assert (tested < counts).all()
    # The smallest number of samples that is taken is one, and training keeps one of each class.
    wanted = max(share, 1 / len(labels)) * np.array(counts)
    assert (np.abs(tested - wanted) < 2).all()
    try:
        _, expected = train_test_split(
            np.arange(len(labels)), test_size=share, random_state=seed, stratify=labels
        )
    except ValueError:
        return
    if (np.bincount(labels[expected], minlength=len(counts)) < counts).all():
        assert rows["test"].tolist() == sorted(expected)


@given(COUNTS, st.integers(2, 6), st.sampled_from([None, 8, 30]), st.integers(0, 3))
def test_any_classes_have_folds(counts: list[int], num: int, num_groups: int | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    groups = None if num_groups is None else rng.integers(0, num_groups, len(labels))
    tested = []
    error = ""
    try:
        for fold in range(num):
            split = Split(0, 0, seed=seed, folds=num, fold=fold)
            rest, own = cut_fold(np.arange(len(labels)), split, labels, groups)
            assert sorted([*rest, *own]) == list(range(len(labels)))
            assert set(labels[rest]) == set(labels)
            assert groups is None or not set(groups[rest]) & set(groups[own])
            tested += own.tolist()
    except DataError as refused:
        error = str(refused)
    if error:
        small = np.bincount(labels)[labels] < 2
        assert groups is not None or len(labels) - small.sum() < num
        assert re.search("fold . is empty|that can be divided", error)
        return
    assert len(set(tested)) == len(tested)
    if groups is None:  # a class of one sample is always trained
        assert sorted(tested) == np.flatnonzero(np.bincount(labels)[labels] > 1).tolist()


@given(COUNTS, st.sampled_from([0.1, 0.3, 0.6]), st.integers(5, 60), st.integers(0, 3))
def test_groups_of_any_classes(counts: list[int], share: float, num_groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    groups = rng.integers(0, num_groups, len(labels))
    owners = [set(groups[labels == label]) for label in set(labels)]
    spared = set(groups) - {min(own) for own in owners if len(own) == 1}
    if len(set(groups)) < 2 or not spared:
        with pytest.raises(DataError, match=r"in one group|has the only training samples of a class"):
            hold_out_groups(np.arange(len(labels)), share, labels, groups, seed=seed, subset="val")
        return
    rest, own = hold_out_groups(np.arange(len(labels)), share, labels, groups, seed=seed, subset="val")
    assert sorted([*rest, *own]) == list(range(len(labels)))
    assert len(own)
    assert set(labels[rest]) == set(labels)
    assert not set(groups[rest]) & set(groups[own])


def test_small_classes_and_labels_are_named(given_source: Any) -> None:
    targets = torch.cat([torch.arange(40) % 2, torch.tensor([2, 3, 3])])
    names = ("cat", "dog", "newt", "olm")
    splits = read_splits(given_source({"all": samples(targets)}, "multiclass", names), PLAIN, None)
    splits.check(1)
    notes = [note for note in splits.notes if note.startswith("data.split: ")]
    assert "".join(notes).count("'newt' (1)") == 1
    assert all(note.startswith("data.split: classes with too few samples to be in ") for note in notes)
    assert {2, 3} <= set(splits.targets("train").tolist())
    labels = torch.zeros(40, 2, dtype=torch.int64)
    labels[::2, 0] = 1
    for row in range(40):  # wherever the only sample of a label lies, training gets it
        own = labels.clone()
        own[row, 1] = 1
        source = given_source({"all": samples(own)}, "multilabel", ("many", "one"))
        splits = read_splits(source, PLAIN, None)
        assert splits.targets("train")[:, 1].sum() == 1
        expected = "data.split: labels with too few samples to be in val and test: 1 of 2, 'one' (1)"
        assert [note for note in splits.notes if "too few" in note] == [expected]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_groups_are_whole_and_classes_in_proportion(seed: int, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 60, 900)
    labels = (rng.random(900) < 0.1 + 0.4 * (groups % 2)).astype(np.int64)  # groups differ in their classes
    drawn = [
        hold_out_groups(np.arange(900), fraction, labels, groups, seed=one, subset="test")
        for one in (seed, seed, seed + 1)
    ]
    rest, subset = drawn[0]
    assert sorted([*rest, *subset]) == list(range(900))
    assert not set(groups[rest]) & set(groups[subset])
    assert len(subset) / 900 == pytest.approx(fraction, abs=0.03)
    assert labels[subset].mean() == pytest.approx(labels.mean(), abs=0.03)
    assert subset.tolist() == drawn[1][1].tolist() != drawn[2][1].tolist()


def test_few_large_groups() -> None:
    groups = np.repeat([0, 1, 2], [80, 15, 5])
    for fraction in (0.01, 0.6):
        assert all(map(len, hold_out_groups(np.arange(100), fraction, None, groups, seed=0, subset="val")))
    with pytest.raises(DataError, match=r"data\.split\.val: ") as caught:
        hold_out_groups(np.arange(80), 0.1, None, groups, seed=0, subset="val")
    assert "data.split.group=null" in (caught.value.hint or "")


def test_latest_with_ties() -> None:
    times = pd.Series([5, 1, 2, 2, 2, 3, 4, 4, 5, 5])
    rest, subset = hold_out_latest(np.arange(10), 0.2, times, "test")
    assert subset.tolist() == [0, 8, 9]  # ties stay together: 3 is as near to 2 as ties allow
    assert times[rest].max() < times[subset].min()
    rest, subset = hold_out_latest(rest, 0.25, times, "val")
    assert subset.tolist() == [6, 7]
    with pytest.raises(DataError, match="all of one time"):
        hold_out_latest(np.array([2, 3]), 0.5, times, "val")


def test_long_tail_as_published_for_cifar10() -> None:
    """Cui et al. (2019), CIFAR-10 with an imbalance factor of 100."""
    labels = np.repeat(np.arange(10), 5000)
    kept = long_tail(np.arange(50_000), labels, 10, 0.01, seed=0)
    counts = np.bincount(labels[kept]).tolist()
    assert counts == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert len(set(kept)) == len(kept)


PATHS = ("a/p1_x.png", "b/p2_x.png", "b/p1_y.png")
FILES = Samples(torch.zeros(3, 1), torch.zeros(3), names=PATHS)
GROUP, INPUTS = "data.split.group", torch.zeros(2, 1)


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (Samples(torch.zeros(3, 1), torch.zeros(3)), "patient", "neither columns"),
        (Samples(INPUTS, torch.zeros(2), split_values={"p": ["a", None]}), "p", "no value in row 1"),
        (Samples(INPUTS, torch.zeros(2), split_values={"p": ["a"]}), "p", "each of 2 samples, got 1"),
        (FILES, "(", "not a regular expression"),
        (FILES, "patient", "not a regular expression: .* capture group"),
        (FILES, "(p)(a)", "one group in parentheses"),
        (FILES, "(p1)", r"matches nothing in 'b/p2_x.png' \(1 of 3 files\)"),
    ],
)
def test_no_value(data: Samples, name: str, message: str) -> None:
    assert values_of(FILES, GROUP, r"(p\d)_").tolist() == ["p1", "p2", "p1"]
    with pytest.raises(DataError, match=rf"data\.split\.group=.*{message}"):
        values_of(data, GROUP, name)


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["2024-02-01", "2023-12-31T10:00", "2024-01-01 00:00+02:00"], [1, 2, 0]),
        ([3, 1.5, 2], [1, 2, 0]),
        (["20240201", "20231231", "20240101"], [1, 2, 0]),
        (pd.to_datetime(["2024-02-01", "2023-12-31", "2024-01-01"]).tz_localize("Asia/Tokyo"), [1, 2, 0]),
    ],
)
def test_times(values: Any, order: list[int]) -> None:
    key = "data.split.time"
    assert parse_times(pd.Series(values), key, "date").sort_values().index.tolist() == order
    with pytest.raises(DataError, match=r"data.split.time=date: '31.12.2024' in row 1 .*\(1 of 2 rows\)"):
        parse_times(pd.Series(["2024-02-01", "31.12.2024"]), key, "date")


def test_parts() -> None:
    key = "data.split.column"
    values = pd.Series(["train", "Validation", " test", "val"])
    assert parse_subsets(values, key, "split").tolist() == ["train", "val", "test", "val"]
    with pytest.raises(DataError, match=r"data.split.column=split: expected .*, got 'dev', '1'"):
        parse_subsets(pd.Series(["train", "dev", 1]), key, "split")


PLAIN = Split(val=0.1, test=0.2)
HALVES = torch.arange(100) % 2
AB = ("a", "b")


def samples(targets: Tensor = HALVES) -> Samples:
    return Samples(torch.arange(2.0 * len(targets)).view(len(targets), 2), targets)


@pytest.fixture
def divided(given_source: Any) -> Callable[..., Splits]:
    def read(
        subsets: Any, task: str = "multiclass", names: tuple[str, ...] = AB, thin_classes: float | None = None
    ) -> Splits:
        divided = read_splits(given_source(subsets, task, names), PLAIN, thin_classes)
        divided.check(1)
        return divided

    return read


def test_official_parts_are_kept_and_parts_share_one_tensor(divided: Callable[..., Splits]) -> None:
    whole, test = samples(), samples(HALVES[:30])
    for parts, sizes in (
        ({"all": whole}, (70, 10, 20)),
        ({"train": whole, "test": test}, (90, 10, 30)),
        ({"train": whole, "test": test, "val": samples(HALVES[:5])}, (100, 5, 30)),
    ):
        subsets = divided(parts)
        assert tuple(len(subsets.rows[name]) for name in ("train", "val", "test")) == sizes
        assert subsets.data["train"] is whole
        assert (subsets.data["val"] is whole) == ("val" not in parts)


def test_spec_counts_the_training_subset(divided: Callable[..., Splits]) -> None:
    targets = torch.cat([torch.zeros(60, dtype=torch.int64), torch.ones(40, dtype=torch.int64)])
    first, labels = torch.zeros(1, 2), torch.tensor([[1, 0, 1]] * 49 + [[0, 1, 0]])
    spec = divided({"all": samples(targets)}, thin_classes=0.5).describe(first, (), ())
    assert spec.class_counts == (42, 21)
    assert (spec.num_train, spec.num_val, spec.num_test) == (63, 10, 20)
    spec = divided({"all": samples(labels)}, "multilabel", ("x", "y", "z")).describe(first, (), ())
    assert (spec.num_classes, spec.class_counts, spec.num_targets) == (3, (34, 1, 34), 0)


def test_the_digest_tells_contents_and_division(given_source: Any) -> None:
    def digest(data: Samples, split: Split = PLAIN) -> str:
        return read_splits(given_source({"all": data}, "multiclass", AB), split, None).digest

    changed = samples()
    changed.inputs[17, 1] += 1
    assert digest(samples()) == digest(samples())
    assert len({digest(samples()), digest(changed), digest(samples(), Split(0.1, 0.2, seed=1))}) == 3


BAD = [
    ({"all": Samples(torch.rand(9, 2), HALVES[:10])}, "multiclass", "9 inputs and 10 targets"),
    ({"all": samples(HALVES.float())}, "multiclass", "type torch.float32"),
    ({"all": samples(HALVES[:, None])}, "binary", "shape (100, 1)"),
    ({"all": samples(HALVES)}, "multilabel", "shape (100,)"),
    ({"all": samples(HALVES)}, "regression", "shape (100,)"),
    ({"all": samples(HALVES + 1)}, "multiclass", "from 1 to 2; indices of the 2 classes go from 0 to 1"),
    ({"all": samples(torch.full((100, 2), 3))}, "multilabel", "from 3 to 3; multi-hot targets"),
    ({"train": samples(), "test": samples(torch.tensor([0, 2]))}, "multiclass", "targets from 0 to 2"),
    ({"train": samples(HALVES * 0), "test": samples()}, "multiclass", "classes that training lacks: b"),
    ({"train": samples(HALVES * 0), "test": samples(HALVES * 0)}, "multiclass", "no training sample of"),
    ({"all": samples(torch.tensor([[1, 0]] * 100))}, "multilabel", "no training sample of label: b"),
    (
        {"train": samples(torch.tensor([[1, 0]] * 100)), "test": samples(torch.tensor([[1, 1]] * 9))},
        "multilabel",
        "the test or validation subset has labels that training lacks: b",
    ),
    ({"all": samples(HALVES[:1])}, "multiclass", "data.split.test: "),
    ({"train": samples(HALVES[:1]), "val": samples(), "test": samples()}, "multiclass", "1 training sample"),
    ({"all": Samples(torch.rand(100), HALVES)}, "multiclass", "or [N, channels, …], got [100] in the train"),
    ({"train": samples(), "validation": samples()}, "multiclass", "got train, validation"),
    ({}, "multiclass", "expected the subsets"),
]


@pytest.mark.parametrize(("given", "task", "message"), BAD)
def test_what_cannot_be_trained_on(
    divided: Callable[..., Splits], given: Any, task: str, message: str
) -> None:
    divided({"train": samples(), "test": samples(), "val": samples(HALVES * 0)})
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        divided(given, task)
    assert caught.value.hint


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
@pytest.mark.parametrize("where", ["inputs", "targets"])
def test_values_that_are_not_finite(divided: Callable[..., Splits], value: float, where: str) -> None:
    data = Samples(torch.full((100, 3, 2), 3e38), torch.arange(100.0)[:, None])
    divided({"all": data}, "regression", ())  # their sum is not finite, and they are
    getattr(data, where)[41] = value
    with pytest.raises(DataError, match=f"the {where} of the train subset hold NaN .*first in sample 41"):
        divided({"all": data}, "regression", ())


def test_fewer_samples_than_a_batch_and_a_long_tail_without_classes(divided: Callable[..., Splits]) -> None:
    subsets = divided({"all": samples()})
    with pytest.raises(DataError, match=r"data\.batch_size=71: there are only 70 training samples") as caught:
        subsets.check(71)
    assert caught.value.hint == "data.batch_size=70, or data.drop_last=false"
    with pytest.raises(DataError, match=r"data\.thin_classes=0\.1.*regression"):
        divided({"all": samples(torch.rand(50, 1))}, "regression", (), thin_classes=0.1)


Build = Callable[..., DataModule]


def shaped(*shape: int, dtype: torch.dtype = torch.float32) -> Samples:
    return Samples(torch.arange(20 * math.prod(shape)).view(20, *shape).to(dtype), torch.arange(20) % 2)


@pytest.mark.parametrize(
    ("test", "chains", "message"),
    [
        (shaped(1, 8, 9), {}, r"a sample of the test subset is \[1, 8, 9\]"),
        (shaped(1, 8, 8, dtype=torch.uint8), {}, "of torch.uint8, one of training"),
        (shaped(1, 8, 8), {"train": [v2.Grayscale(3)]}, r"data\.transform: a sample is \["),
        (shaped(1, 8, 8), {"eval": [v2.Grayscale(3)]}, r"data\.transform: a sample is \["),
        (shaped(1, 8, 8), {"train": [v2.ToDtype(torch.uint8)]}, r"data\.transform: a sample is \["),
    ],
)
def test_samples_of_another_form_are_refused_before_training(
    data_module: Build, given_source: Any, test: Samples, chains: dict[str, Any], message: str
) -> None:
    source = given_source({"train": shaped(1, 8, 8), "test": test}, "multiclass", ("a", "b"))
    with pytest.raises(DataError, match=message):
        data_module(source, transform=chains).setup()


SPEC = Spec(task="regression", input_shape=(2,), num_targets=1)
FOLDS = Split(0.1, 0.0, folds=4, fold=1)


def source_of(given_source: Any, seed: int, number: int = 40) -> Any:
    draw = torch.Generator().manual_seed(seed)
    samples = Samples(torch.rand(number, 2, generator=draw), torch.rand(number, 1, generator=draw))
    return given_source({"all": samples}, "regression", ())


def read_again(source: Any, split: Split, digest: str, *, whole: bool = True) -> Any:
    read = partial(read_splits, source, thin_classes=None, trained=FittedPreprocessing(SPEC))
    return read_for_model(source, split, read, digest=digest, whole=whole)


def test_folds_of_other_samples_are_no_folds(given_source: Any) -> None:
    own = read_splits(source_of(given_source, seed=1), FOLDS, None)
    other = read_again(source_of(given_source, seed=2), FOLDS, own.digest)
    assert (len(other.rows["test"]), len(other.rows["all"])) == (0, 40)
    with pytest.raises(DataError, match="the model was trained for regression"):
        read_again(
            given_source(source_of(given_source, 1).subsets, "multilabel", ()), Split(0.1, 0.1), "another"
        )


def test_a_source_that_cuts_its_samples_leaves_others_whole(given_source: Any) -> None:
    class Cutting(given_source):  # type: ignore[misc]  # a fixture gives it
        """As a source of texts, which cuts what comes undivided."""

        divides = True

        def read(self) -> Any:
            whole = self.subsets["all"]
            if not self.divides:
                return {"all": whole}
            halves = [Samples(whole.inputs[rows], whole.targets[rows]) for rows in (slice(20), slice(20, 40))]
            return dict(zip(("train", "test"), halves, strict=True))

    samples = source_of(given_source, seed=1).subsets
    split = Split(0.0, 0.0)
    own = read_splits(Cutting(samples, "regression", ()), split, None)
    for digest, whole, parts in ((own.digest, True, 2), ("another", True, 1), ("another", False, 2)):
        source = Cutting(samples, "regression", ())
        assert source.divides
        splits = read_again(source, split, digest, whole=whole)
        assert ("all" in splits.rows) == (parts == 1)
        assert source.divides == (parts == 2)


def test_other_samples_need_no_column_to_be_divided_by(given_source: Any) -> None:
    source = source_of(given_source, seed=1)
    source.split_columns = {}
    splits = read_again(source, Split(0.1, 0.1, group="patient"), "another")
    assert len(splits.rows["all"]) == 40


INPUTS_TRAINED = torch.zeros(4, 2)


def spec(task: Any = "multiclass", **values: Any) -> Spec:
    names = () if task == "regression" else ("bird", "cat", "dog")
    return Spec(task, (2,), **{"num_classes": len(names), "class_names": names, **values})


# Classes and tables are matched by name in `tests/run/test_evaluate.py`.
def adapted(
    trained: FittedPreprocessing, names: tuple[str, ...], targets: list[Any], task: str = "multiclass"
) -> Any:
    source: Any = SimpleNamespace(task=task, class_names=names)
    return trained.adapt(source, {"all": Samples(INPUTS_TRAINED, torch.tensor(targets))})[
        "all"
    ].targets.tolist()


def test_labels_are_matched_by_name_and_must_all_be_there() -> None:
    trained = FittedPreprocessing(spec("multilabel"))
    assert adapted(trained, ("dog", "bird", "cat"), [[1, 0, 0]] * 4, "multilabel") == [[0, 0, 1]] * 4
    for names, message in (
        (("bird", "cat"), "the label 'dog' is missing"),
        (("bird", "cat", "fish"), "does not know the label 'fish'"),
    ):
        with pytest.raises(DataError, match=message):
            adapted(trained, names, [[0] * len(names)] * 4, "multilabel")


def test_another_number_of_targets_is_refused() -> None:
    trained = FittedPreprocessing(spec("regression", num_targets=2))
    assert adapted(trained, (), [[1.0, 2.0]] * 4, "regression") == [[1.0, 2.0]] * 4
    with pytest.raises(DataError, match="has 1 targets; the model predicts 2"):
        adapted(trained, (), [[1.0]] * 4, "regression")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(1, 3), r"shape \[3\] and type float32; the model was trained on \[2\] and float32"),
        (torch.zeros(1, 2, dtype=torch.uint8), r"\[2\] and type uint8"),
        (torch.zeros(1, 2, dtype=torch.int64), r"\[2\] and type int64"),
    ],
)
def test_another_form_is_refused(inputs: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FittedPreprocessing(spec()).check(inputs)


def test_a_table_is_refused_where_arrays_were_trained_on() -> None:
    source: Any = SimpleNamespace(task="multiclass", class_names=("bird", "cat", "dog"))
    table = Samples(pd.DataFrame({"size": [5.0]}), torch.tensor([0]), encoder=TableEncoder())
    with pytest.raises(DataError, match="trained on an array of numbers"):
        FittedPreprocessing(spec()).adapt(source, {"all": table})
