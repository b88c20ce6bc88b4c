from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data.subset import Split, hold_out, long_tail
from assay.errors import DataError


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(10, 60), min_size=2, max_size=6),
    share=st.floats(0.1, 0.6),
    seed=st.integers(0, 2**32 - 1),
)
def test_classes_are_divided_in_proportion(counts: list[int], share: float, seed: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    rest, taken = hold_out(np.arange(len(labels)), share, labels, seed, "val")
    assert sorted([*rest, *taken]) == list(range(len(labels)))
    assert len(taken) == np.ceil(len(labels) * share)
    expected = np.array(counts) * len(taken) / len(labels)
    assert np.abs(np.bincount(labels[taken], minlength=len(counts)) - expected).max() < 1.0001


def test_same_seed_same_parts_other_seed_others() -> None:
    labels = np.repeat(np.arange(3), 30)
    first, again, other = (hold_out(np.arange(90), 0.3, labels, seed, "val")[1] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_plain_part_and_none() -> None:
    rest, taken = hold_out(np.arange(10), 0.25, None, 0, "test")
    assert (len(rest), len(taken)) == (7, 3)
    assert list(taken) == sorted(taken)
    assert hold_out(np.arange(10), 0, None, 0, "test")[1].size == 0


def test_a_class_of_one_sample_cannot_be_divided() -> None:
    with pytest.raises(
        DataError, match=r"data\.split\.val.*4 sample.*2 classes \(the smallest has 1\)"
    ) as caught:
        hold_out(np.arange(4), 0.5, np.array([0, 0, 0, 1]), 0, "val")
    assert "data.split.val=0" in caught.value.hint


def test_long_tail_as_published_for_cifar10() -> None:
    """Cui et al. (2019), CIFAR-10 with an imbalance factor of 100."""
    labels = np.repeat(np.arange(10), 5000)
    kept = long_tail(np.arange(50_000), labels, 10, 0.01, seed=0)
    counts = np.bincount(labels[kept]).tolist()
    assert counts == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert len(set(kept)) == len(kept)


def test_long_tail_takes_from_the_given_samples_only_and_keeps_one_of_each() -> None:
    labels = np.array([0, 1, 2] * 20)
    given_rows = np.arange(30)
    kept = long_tail(given_rows, labels, 3, 0.001, seed=1)
    assert set(kept) <= set(given_rows)
    assert np.bincount(labels[kept]).tolist() == [10, 1, 1]
    assert long_tail(given_rows, labels, 3, 1.0, seed=1).tolist() == given_rows.tolist()


def test_val_is_a_share_of_all_samples_unless_there_is_an_official_test_part() -> None:
    split = Split(val=0.1, test=0.2)
    assert 0.8 * split.share_of_rest("val", given=()) == pytest.approx(0.1)
    assert split.share_of_rest("val", given=("test",)) == 0.1
    assert split.share_of_rest("test", given=()) == 0.2
