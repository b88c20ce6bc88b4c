"""Copies across subsets are counted, of tables, tensors and files alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_wine,
)

from assay.data.core.copies import find_copies, leave_out_copies
from assay.data.core.samples import Samples
from assay.data.table.column_kind import split_hints
from assay.data.table.table import Table
from assay.data.table.table_encoder import TableEncoder
from assay.data.text.text_table import TextTable
from assay.errors import DataError
from assay.quoting import format_override

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.core.data_module import DataModule

ROWS = {"train": np.array([0, 1, 2]), "val": np.array([3]), "test": np.array([4, 5])}
TARGETS = torch.tensor([0, 1, 0, 1, 0, 0])
VALUES = torch.tensor([[1.0, 2], [3, 4], [5, 6], [3, 4], [1, 2], [3, 4]])
"""Row 3 is row 1; row 4 is row 0; row 5 is row 1 with another target."""

TOLD = (
    "1 of 1 in val (1 with the same target; such as {3}, like {1}) and "
    "2 of 2 in test (1 with the same target; such as {4}, like {0})"
)

ROW_NAMES = [f"row {row}" for row in range(6)]
FILES = [f"f{row}.png" for row in range(6)]


def table(values: torch.Tensor, targets: torch.Tensor) -> Samples:
    frame = pd.DataFrame(values.numpy(), columns=["a", "b"])
    frame["c"] = frame.a.map({1.0: "x", 3.0: None, 5.0: "z"})
    return Samples(frame, targets, encoder=TableEncoder())


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (table(VALUES, TARGETS), ROW_NAMES),
        (Samples(VALUES, TARGETS), ROW_NAMES),
        (Samples(VALUES.bfloat16().reshape(6, 1, 2).transpose(1, 2), TARGETS), ROW_NAMES),
        (Samples(torch.zeros(6, 1), TARGETS, names=FILES, hashes=list("abcbab")), FILES),
        (Samples(cast("Any", None), TARGETS, names=FILES, hashes=list("abcbab")), FILES),
    ],
)
def test_copies_are_counted(data: Any, names: list[str]) -> None:
    assert TOLD.format(*names) in find_copies({"train": data}, ROWS)[0]
    apart = {"train": np.arange(2), "val": np.array([2]), "test": ROWS["test"][:0]}
    assert find_copies({"train": data}, apart) == []


def test_files_of_their_own_are_compared_whatever_their_types() -> None:
    whole, test = table(VALUES[:3], TARGETS[:3]), table(VALUES[4:], TARGETS[4:])
    test.raw["a"] = test.raw["a"].astype(int)
    rows = {"train": np.arange(3), "val": np.arange(0), "test": np.arange(2)}
    [told] = find_copies({"train": whole, "test": test}, rows)
    assert "2 of 2 in test (1 with the same target; such as row 0, like row 0)" in told


def test_near_copies_of_texts_are_counted(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    texts = [f"Order {number} has not come yet, thanks!" for number in range(60)]
    texts += [text.upper().replace(",", " -") for text in texts[:20]]
    frame = pd.DataFrame({"text": texts, "kind": ["a", "b"] * 40})
    for count, is_told in ((80, True), (60, False)):
        frame[:count].to_csv(tmp_path / f"{count}.csv", index=False)
        data = data_module(TextTable(str(tmp_path / f"{count}.csv"), "kind", "text"))
        data.setup()
        rows = data.splits.rows
        near = sum((row + 60 if row < 60 else row - 60) in set(rows["train"]) for row in rows["test"])
        told = [note for note in data.notes if "also in training" in note]
        assert bool(told) is is_told
        assert not told or f"{near} of 16 in test" in told[0]


def test_texts_of_signs_alone_are_copies_of_their_like_only(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    texts = [sign * count for sign in "!?👍🔥-" for count in range(1, 13)]
    frame = pd.DataFrame({"text": texts, "kind": ["a", "b"] * 30})
    frame.to_csv(tmp_path / "signs.csv", index=False)
    split = {"val": 0.1, "test": 0.2, "dedup": True}
    data = data_module(TextTable(str(tmp_path / "signs.csv"), "kind", "text"), split=split)
    data.setup()
    assert sum(map(len, data.splits.rows.values())) == 60
    assert not [note for note in data.notes if "also in training" in note]


@pytest.mark.timeout(20)
def test_many_copies_of_a_text_are_left_out_at_once(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    texts = ["OK", "ok!"] * 15_000
    pd.DataFrame({"text": texts, "kind": ["a", "b"] * 15_000}).to_csv(tmp_path / "ok.csv", index=False)
    split = {"val": 0.1, "test": 0.2, "dedup": True}
    with pytest.raises(DataError, match="0 training sample"):
        data_module(TextTable(str(tmp_path / "ok.csv"), "kind", "text"), split=split).setup()


def visits(count: int = 900) -> pd.DataFrame:
    """Ordinary columns, and those that one row has to itself."""
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "visit_id": range(5000, 5000 + count),
            "age": draw.integers(18, 90, count),
            "income": draw.normal(0, 1, count),
            "price": draw.integers(1, 10**6, count),
            "store_id": draw.integers(1, 6, count),
            "city": draw.choice(["Bonn", "Köln", "Ulm"], count),
            "country": draw.choice([f"country {at}" for at in range(40)], count),
            "month": draw.integers(1, 13, count),
            "birth_date": draw.choice([f"19{at}-03-17" for at in range(30, 99)], count),
            "opened": ["2024-01-05"] * count,
            "kind": draw.choice(["no", "yes"], count),
        }
    )


CUSTOMERS = np.random.default_rng(1).integers(10_000, 10_300, 900)
DAYS = pd.date_range("2019-01-01", periods=300, freq="3D").repeat(3)


def notes(frame: pd.DataFrame, folder: Path, build: Callable[..., DataModule], **split: Any) -> list[str]:
    frame.to_csv(folder / "visits.csv", index=False)
    data = build(Table(str(folder / "visits.csv"), "kind"), split=split)
    data.setup()
    return [note for note in data.notes if "data.split" in note]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("customer_id", CUSTOMERS),
        ("Patient No", CUSTOMERS),
        ("owner", [f"name {one}" for one in CUSTOMERS]),
        ("contact", [f"{one}@example.org" for one in CUSTOMERS]),
        ("customer_id", np.where(np.arange(900) % 50, CUSTOMERS.astype(float), np.nan)),
    ],
)
def test_groups_in_several_subsets_are_said(
    tmp_path: Path, data_module: Callable[..., DataModule], column: str, values: Any
) -> None:
    frame = visits().assign(**{column: values})
    told = [note for note in notes(frame, tmp_path, data_module) if "data.split.group" in note]
    data = data_module(Table(str(tmp_path / "visits.csv"), "kind"))
    data.setup()
    train, test = (frame[column].iloc[data.splits.rows[subset]] for subset in ("train", "test"))
    share = sum(value in set(train.dropna()) for value in test) / len(test)
    assert told == [
        f"data: {100 * share:.0f} % of the rows in test have a {column!r} whose other rows are also in "
        "training; scores are too good if you want to predict new ones: "
        f"{format_override('data.split.group', column)}"
    ]
    if not frame[column].isna().any():
        grouped = notes(frame, tmp_path, data_module, group=column)
        assert not [note for note in grouped if "too good" in note], "what is to be typed is an end of it"


@pytest.mark.parametrize(
    ("column", "values", "span"),
    [
        ("since", DAYS.strftime("%d.%m.%Y"), "2019-01-01 to 2021-06-16"),
        ("at", DAYS.strftime("%Y%m%d").astype(int), "2019-01-01 to 2021-06-16"),
        ("month", DAYS.strftime("%Y-%m"), "2019-01-01 to 2021-06-01"),
    ],
)
def test_times_under_a_random_division_are_said(
    tmp_path: Path, data_module: Callable[..., DataModule], column: str, values: Any, span: str
) -> None:
    frame = visits().assign(**{column: np.random.default_rng(0).permutation(values)})
    assert notes(frame, tmp_path, data_module) == [
        f"data: the rows are split at random, but {column!r} dates them ({span}); scores are too good if "
        f"you want to predict later rows: data.split.time={column} (then no feature)"
    ]
    [told] = [note for note in notes(frame, tmp_path, data_module, time=column) if "from" in note]
    assert "too good" not in told
    folds = " ".join(notes(frame, tmp_path, data_module, folds=5, fold=0))
    assert f"data.split.time={column} data.split.folds=null fold=null" in folds


def test_a_period_is_a_time_where_a_group_has_several_and_ordinary_columns_are_passed_over(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    told = notes(visits().assign(customer_id=CUSTOMERS), tmp_path, data_module)
    assert [note.rpartition(": ")[2] for note in told] == [
        "data.split.group=customer_id",
        "data.split.time=month (then no feature)",
    ]
    assert not notes(visits(), tmp_path, data_module)
    for load in (load_iris, load_wine, load_breast_cancer, load_diabetes):
        assert split_hints(load(as_frame=True).frame, {}) == {}


def test_copies_are_left_out_of_training_alone() -> None:
    for data in (table(VALUES, TARGETS), Samples(VALUES, TARGETS)):
        rows = dict(ROWS)
        told = leave_out_copies({"train": data}, rows)
        assert rows["train"].tolist() == [2]
        assert {name: rows[name].tolist() for name in ("val", "test")} == {"val": [3], "test": [4, 5]}
        assert "2 of 3 training samples" in told
        assert find_copies({"train": data}, rows) == []
