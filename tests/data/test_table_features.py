"""Which columns of a table are features, and what they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    HashingVectorizer,
)
from tests.data.made_tables import RNG, frame, save, setup

from assay.data.table import Table
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.data_module import DataModule


def messy(count: int = 60) -> pd.DataFrame:
    """A table as people export it: what looks like features, and is none."""
    table = frame(count)
    table.insert(0, "Unnamed: 0", range(count))
    table["customer_id"] = RNG.permutation(10**6)[:count]
    table["userId"] = [f"u-{index % 20}" for index in range(count)]
    table["email"] = [f"person{index}@example.org" for index in range(count)]
    table["signed"] = pd.date_range("2020-01-31", periods=count).strftime("%d.%m.%Y")
    table["yyyymmdd"] = pd.date_range("2020-01-01", periods=count).strftime("%Y%m%d").astype(int)
    table["created_at"] = 1_600_000_000 + RNG.permutation(10**6)[:count]
    table["comment"] = [f"a very long remark on row {index}" for index in range(count)]
    table["notes"] = np.resize([f"one of several remarks, the {index}th" for index in range(12)], count)
    table["empty"] = np.nan
    return table


FIT = ["age", "height", "rooms", "city", "smokes", "signed", "yyyymmdd", "created_at"]


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_ids_and_free_text_are_left_out_and_dates_become_features(tmp_path: Path, name: str) -> None:
    source = Table(save(messy(), tmp_path, name), "kind")
    assert list(source.read()["all"].raw.columns) == FIT
    note, dates, few = source.notes
    for column in set(messy().columns) - {*FIT, "kind"}:
        assert f"{column} (" in note
    assert "'person0@example.org'" in note
    assert """to use one: 'data.source.keep=["Unnamed: 0"]'""" in note
    assert note.endswith("for the words of texts: data.source.text=hash")
    assert "signed such as '31.01.2020' (%d.%m.%Y), yyyymmdd such as '20200101' (%Y%m%d)" in dates
    assert few.endswith("rooms (5 values); as categories: 'data.source.categories=[rooms]'")


def test_real_dates_of_a_parquet_file(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    table = frame(40)
    table["day"] = pd.date_range("2020-01-01", periods=40)
    source = Table(save(table, tmp_path, "table.parquet"), "kind")
    datamodule, data = setup(data_module, source)
    rows = datamodule.splits.rows["train"]
    elapsed = (table["day"] - table["day"].iloc[rows].min()).dt.days
    dates = np.column_stack(
        [table["day"].dt.month, table["day"].dt.day_of_week, elapsed]
    )  # one year, one hour
    assert data.inputs[:, 4:7].tolist() == dates.tolist()  # after the other numbers, before the cities


def test_what_is_kept_is_used(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    path = save(messy(), tmp_path)
    kept = ["customer_id", "userId", "yyyymmdd", "comment"]
    source = Table(path, "kind", keep=kept, exclude=["email", "city"])
    assert list(source.read()["all"].raw.columns) == [
        *("age", "height", "rooms", "smokes", "customer_id", "userId", "signed"),
        *("yyyymmdd", "created_at", "comment"),
    ]
    assert "email" not in source.notes[0]  # left out by the user: there is nothing to say
    _, data = setup(data_module, Table(path, "kind", features=["customer_id"]))
    assert data.inputs[:, 0].tolist() == pd.read_csv(path)["customer_id"].tolist()


def test_dates_in_the_test_table_are_written_alike(tmp_path: Path) -> None:
    path, other = save(messy(), tmp_path), messy(10).assign(signed="31st of May")
    with pytest.raises(
        DataError, match=r"'31st of May' in the column 'signed', row 0 .*, is not a date like"
    ):
        Table(path, "kind", test_path=save(other, tmp_path, "test.csv")).read()


def test_texts_are_hashed_as_scikit_learn_hashes_them(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    table = messy().drop(columns=["signed", "yyyymmdd", "created_at"])
    table.loc[3, "comment"] = None
    source = Table(save(table, tmp_path), "kind", text="hash", text_features=32)
    _, data = setup(data_module, source)
    assert any("the words of texts are hashed: email, comment, notes" in note for note in source.notes)
    hashed = HashingVectorizer(n_features=32).transform(table["comment"].fillna("")).toarray()
    np.testing.assert_allclose(data.inputs[:, -64:-32].numpy(), hashed, rtol=1e-6)
    assert data.inputs.shape[1] == 4 + 3 + 3 * 32


def test_numbers_as_categories_and_a_single_value(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    table = frame().assign(rooms=np.resize(["01", "02", "10"], 40), same=7)
    source = Table(save(table, tmp_path), "kind", categories=["rooms"], exclude=["city"])
    datamodule, data = setup(data_module, source)
    assert datamodule.encoder.columns[2].codes == {"01": 0, "02": 1, "10": 2}  # type: ignore[union-attr]
    assert data.inputs[:, 3:].sum(0).tolist() == [14, 13, 13]
    assert source.notes[0].startswith("left out of the features: same (one value in all rows)")


def test_a_table_of_nothing_but_ids(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column is left to predict from \(left out.*customer_id"):
        Table(save(messy()[["customer_id", "kind"]], tmp_path), "kind").read()


LEAKS: list[tuple[str, Any, str]] = [
    ("kind", lambda table: table["kind"], "the two columns are equal"),
    ("kind", lambda table: table["kind"].map({"no": 3, "yes": 8}), "each of its 2 values stands for one"),
    ("rooms", lambda table: table["rooms"].map(dict(zip(range(1, 6), "vwxyz", strict=True))), "its 5 values"),
    ("height", lambda table: table["height"], "the two columns are equal"),
    ("height", lambda table: table["height"] / 2.54 + 1, "the target is 2.54 times it, plus a constant"),
]


@pytest.mark.parametrize(("target", "make", "how"), LEAKS)
def test_a_column_that_gives_the_target_away(tmp_path: Path, target: str, make: Any, how: str) -> None:
    table = frame()
    table["secret"] = make(table)
    with pytest.raises(DataError, match=f"'secret' gives the target '{target}' away: .*{how}") as caught:
        Table(save(table, tmp_path), target).read()
    assert caught.value.hint.startswith("'data.source.exclude=[secret]'")
    assert "secret" not in Table(save(table, tmp_path), target, exclude=["secret"]).read()["all"].raw
    assert "secret" in Table(save(table, tmp_path), target, keep=["secret"]).read()["all"].raw
    alone = Table(save(table, tmp_path), target, features=["secret"])
    alone.read()
    assert "gives the target" in alone.notes[-1]


def test_a_strong_feature_is_no_leak(tmp_path: Path) -> None:
    table = frame()
    table["noisy"] = table["height"] + RNG.normal(0, 0.01, len(table))
    table["mostly"] = table["kind"].map({"no": 0, "yes": 1})
    table["mostly"] = table["mostly"].where(table.index != 7, 1 - table["mostly"])
    Table(save(table, tmp_path), "height").read()
    Table(save(table, tmp_path), "kind").read()
