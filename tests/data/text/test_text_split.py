from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay.data.text_files import Text, by_files, by_tail

SHARES = {"val": 0.1, "test": 0.2}
TEXTS = [Text(f"{at:02}.txt", f"line {at}\n" * (at + 1)) for at in range(40)]


def test_files_are_whole_and_in_one_subset() -> None:
    subsets = by_files(TEXTS, SHARES, 0)
    assert sorted(one.name for some in subsets.values() for one in some) == [one.name for one in TEXTS]
    total = sum(len(one.text) for one in TEXTS)
    for subset, share in SHARES.items():
        size = sum(len(one.text) for one in subsets[subset]) / total
        assert share <= size < share + 0.06
    assert by_files(TEXTS, SHARES, 0) == subsets != by_files(TEXTS, SHARES, 1)


def test_another_file_moves_few_others() -> None:
    before, after = by_files(TEXTS, SHARES, 0), by_files([*TEXTS, Text("new", "x")], SHARES, 0)
    assert len({one.name for one in before["test"]} ^ {one.name for one in after["test"]}) <= 2


def test_the_share_of_validation_leaves_the_test_part_as_it_is() -> None:
    assert by_files(TEXTS, {"val": 0.3, "test": 0.2}, 0)["test"] == by_files(TEXTS, SHARES, 0)["test"]


@given(st.lists(st.text("ab\n", min_size=1, max_size=30), min_size=1, max_size=6))
def test_a_tail_is_the_end_of_all_text(texts: list[str]) -> None:
    named = [Text(str(at), text) for at, text in enumerate(texts)]
    subsets = by_tail(named, SHARES)
    joined = "".join(one.text for subset in ("train", "val", "test") for one in subsets.get(subset, ()))
    assert joined == "".join(texts)
    assert all(one.text for some in subsets.values() for one in some)


def test_a_tail_begins_with_a_line() -> None:
    subsets = by_tail([Text("book", "a line of text\n" * 100)], SHARES)
    assert {subset: len(some[0].text) // 15 for subset, some in subsets.items()} == {
        "train": 70,
        "val": 10,
        "test": 20,
    }
    assert all(some[0].text.startswith("a line") for some in subsets.values())


def test_a_share_of_nothing_is_no_subset() -> None:
    for subsets in (by_files(TEXTS, {"val": 0.0, "test": 0.2}, 0), by_tail(TEXTS, {"val": 0.0, "test": 0.2})):
        assert list(subsets) == ["train", "test"]
