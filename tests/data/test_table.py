from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]  # scikit-learn ships no types
    HashingVectorizer,
)
from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.preprocessing import OneHotEncoder  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.samples import Samples
from assay.data.shown.tested_samples import sample_names
from assay.data.table import Table
from assay.errors import AssayError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.data_module import DataModule

RNG = np.random.default_rng(0)


def frame(count: int = 40) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": RNG.integers(20, 60, count),
            "height": RNG.normal(170, 10, count),
            "rooms": np.resize([1, 2, 3, 4, 5], count),
            "city": RNG.choice(["Bonn", "Köln", "Ulm"], count),
            "smokes": RNG.random(count) > 0.5,
            "kind": np.resize(["no", "yes"], count),
        }
    )


def save(table: pd.DataFrame, folder: Path, name: str = "table.csv") -> str:
    path = folder / name
    if name.endswith(".parquet"):
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return str(path)


def setup(build: Callable[..., DataModule], source: Table, **options: Any) -> tuple[DataModule, Samples]:
    datamodule = build(source, **options)
    datamodule.setup()
    data = datamodule.splits.data["train"]
    assert isinstance(data, Samples)
    return datamodule, data


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.parquet"])
def test_numbers_stay_and_categories_become_columns(
    tmp_path: Path, name: str, data_module: Callable[..., DataModule]
) -> None:
    table = frame()
    source = Table(save(table, tmp_path, name), "kind")
    datamodule, data = setup(data_module, source)
    numbers = table[["age", "height", "rooms", "smokes"]].to_numpy(dtype=np.float32)
    categories = OneHotEncoder(sparse_output=False).fit_transform(table[["city"]])
    assert data.inputs.dtype == torch.float32
    np.testing.assert_allclose(data.inputs.numpy(), np.concatenate([numbers, categories], 1), rtol=1e-6)
    assert data.targets.tolist() == [0, 1] * 20
    assert (source.task, source.class_names) == ("multiclass", ("no", "yes"))
    assert datamodule.spec.input_shape == (7,)


def test_chosen_features(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    table = frame()
    _, data = setup(data_module, Table(save(table, tmp_path), "kind", features=["height"]))
    np.testing.assert_allclose(data.inputs[:, 0].numpy(), table["height"], rtol=1e-6)


TASKS: list[tuple[Any, dict[str, Any], str, tuple[int, ...]]] = [
    ("height", {}, "regression", (40, 1)),
    ("age", {}, "regression", (40, 1)),
    ("rooms", {}, "multiclass", (40,)),
    ("age", {"task": "regression"}, "regression", (40, 1)),
    ("kind", {"task": "binary"}, "binary", (40,)),
    (["smokes", "smokes2"], {}, "multilabel", (40, 2)),
    (["height", "age"], {"task": "regression"}, "regression", (40, 2)),
]


@pytest.mark.parametrize(("target", "options", "task", "shape"), TASKS)
def test_the_task_goes_by_the_target(
    tmp_path: Path, target: Any, options: dict[str, Any], task: str, shape: tuple[int, ...]
) -> None:
    table = frame()
    table["smokes2"] = ~table["smokes"]
    source = Table(save(table, tmp_path), target, **options)
    data = source.read()["all"]
    assert (source.task, data.targets.shape) == (task, shape)
    assert data.targets.dtype == (torch.float32 if task == "regression" else torch.int64)
    if task not in {"multiclass", "binary"}:
        np.testing.assert_allclose(
            data.targets.numpy(), table[[target] if isinstance(target, str) else target], rtol=1e-6
        )


def test_classes_are_sorted_as_numbers(tmp_path: Path) -> None:
    source = Table(save(pd.DataFrame({"x": np.arange(40) / 7, "y": [10, 9] * 20}), tmp_path), "y")
    assert source.read()["all"].targets.tolist() == [1, 0] * 20
    assert source.class_names == ("9", "10")


def test_nothing_leaks_from_the_other_subsets(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    """The median and the categories are those of the training rows."""
    table = frame(60)
    plain, _ = setup(data_module, Table(save(table, tmp_path, "plain.csv"), "kind"))
    rows = plain.splits.rows
    train, test = rows["train"], rows["test"]
    table["age"] = table["age"].astype(float)
    table.loc[test, "age"] = 1e6
    table.loc[[train[0], test[0]], "age"] = np.nan
    table.loc[[train[1], test[1]], "city"] = None
    table.loc[test[2], "city"] = "Rom"
    _, data = setup(data_module, Table(save(table, tmp_path, "gaps.csv"), "kind", missing="impute"))
    median = np.nanmedian(table.loc[train, "age"])
    np.testing.assert_allclose(data.inputs[[train[0], test[0]], 0], median)
    assert data.inputs.shape[1] == 7  # no column for Rome
    most_frequent = sorted(["Bonn", "Köln", "Ulm"]).index(table.loc[train, "city"].mode()[0])
    for row in (train[1], test[1]):
        assert data.inputs[row, 4:].argmax() == most_frequent
    assert data.inputs[test[2], 4:].sum() == 0


def test_many_categories_share_the_last_column(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    names = ["a"] * 20 + ["b"] * 12 + [f"rare {index}" for index in range(8)]
    table = pd.DataFrame({"x": names, "y": np.resize([0, 1], 40)})
    _, data = setup(
        data_module, Table(save(table, tmp_path), "y", max_categories=3), split={"val": 0, "test": 0}
    )
    assert data.inputs.sum(0).tolist() == [20, 12, 8]


def test_a_test_table_of_its_own(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    path, test_path = save(frame(), tmp_path), save(frame(10), tmp_path, "test.parquet")
    datamodule, _ = setup(data_module, Table(path, "kind", test_path=test_path))
    spec = datamodule.spec
    assert (spec.num_train, spec.num_val, spec.num_test) == (36, 4, 10)
    assert datamodule.splits.data["test"].inputs.shape == (10, 7)  # type: ignore[union-attr]  # in memory


def with_values(**values: Any) -> pd.DataFrame:
    table = frame()
    for name, (row, value) in values.items():
        table[name] = (
            table[name].astype(object if isinstance(value, str) else float) if name in table else 0.0
        )
        table.loc[row, name] = value
    return table


@pytest.mark.parametrize(
    ("table", "options", "message", "hint"),
    [
        (
            with_values(age=(7, np.nan)),
            {"missing": "error"},
            "feature column 'age' has no finite value in row 7",
            "data.source.missing=impute",
        ),
        (
            with_values(height=(3, np.inf)),
            {"missing": "error"},
            "feature column 'height' has no finite value in row 3",
            "missing=impute",
        ),
        (
            frame(),
            {"target": "kindd"},
            "has no column 'kindd'; did you mean 'kind'?",
            "columns: age, height, rooms, city",
        ),
        (frame(), {"features": ["agee"]}, "data.source.features: ", "columns: age"),
        (frame(), {"features": []}, "no column is left to predict from", "add a column"),
        (frame(), {"task": "regression"}, "kind cannot be numbers (regression)", "multiclass"),
        (
            frame(),
            {"target": ["kind", "city"], "task": "binary"},
            "2 columns for a binary task",
            "multilabel",
        ),
        (frame(), {"target": ["age", "smokes"], "task": "multilabel"}, "more than 0 and 1", "regression"),
        (
            with_values(height=(5, np.nan)),
            {"target": "height", "missing": "error"},
            "target column 'height' has no finite value in row 5",
            "rows",
        ),
        (
            with_values(height=(5, np.inf)),
            {"target": "height"},
            "'height' has no finite value in row 5",
            "rows",
        ),
        (frame().assign(kind=None), {}, "data.source.target=kind: no row of", "another column"),
    ],
)
def test_tables_that_cannot_be_used(
    tmp_path: Path, table: pd.DataFrame, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        Table(save(table, tmp_path), **{"target": "kind", **options}).read()
    assert hint in caught.value.hint


def test_a_missing_category(tmp_path: Path) -> None:
    table = frame()
    table.loc[9, "city"] = None
    with pytest.raises(DataError, match="feature column 'city' has no finite value in row 9"):
        Table(save(table, tmp_path), "kind", missing="error").read()


def test_missing_values_are_filled_in_and_said(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    table = frame().astype({"age": float})
    table.loc[[3, 9, 11], "age"], table.loc[5, "city"], table.loc[7, "height"] = None, None, np.inf
    source = Table(save(table, tmp_path), "kind")
    datamodule, data = setup(data_module, source)
    assert source.notes[1:] == (
        "5 of 40 rows have missing values, which are filled in: age (3, median), height (1, median), "
        "city (1, most frequent); data.source.missing=error refuses them",
    )
    rows = datamodule.splits.rows["train"]
    numbers = table[["age", "height"]].replace(np.inf, np.nan)
    imputed = SimpleImputer(strategy="median").fit(numbers.iloc[rows]).transform(numbers)
    np.testing.assert_allclose(data.inputs[:, :2].numpy(), imputed, rtol=1e-6)
    frequent = (
        SimpleImputer(strategy="most_frequent").fit(table[["city"]].iloc[rows]).transform(table[["city"]])
    )
    names = sorted(table["city"].dropna().unique())
    assert [names[row] for row in data.inputs[:, 4:].argmax(1).tolist()] == frequent[:, 0].tolist()


def test_rows_without_a_target_are_left_out_and_keep_their_numbers(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    table = frame().assign(kind=np.resize([0.0, 1.0], 40))
    table.loc[[0, 8], "kind"] = None
    source = Table(save(table, tmp_path), "kind")
    datamodule, data = setup(data_module, source)
    assert "2 rows of 40 without a target are left out" in source.notes[0]
    assert (source.task, source.class_names) == ("multiclass", ("0", "1"))
    assert data.names == list(map(str, table.index[table["kind"].notna()]))
    assert set(sample_names(datamodule)) <= set(data.names)
    ages = dict(zip(data.names, data.inputs[:, 0].tolist(), strict=True))
    assert all(ages[str(row)] == table["age"][row] for row in table.index if row not in (0, 8))


def test_the_form_of_a_csv_file_is_found_and_said(tmp_path: Path) -> None:
    table = frame()
    table.to_csv(tmp_path / "rows.csv", sep=";", decimal=",", index=False)
    source = Table(str(tmp_path / "rows.csv"), "kind")
    np.testing.assert_allclose(source.read()["all"].raw["height"], table["height"])
    assert source.notes[:1] == (f"{tmp_path / 'rows.csv'}: separator ';' and decimal ',' found",)
    table.to_csv(tmp_path / "rows.csv", index=False)
    plain = Table(str(tmp_path / "rows.csv"), "kind")
    assert len(plain.read()["all"])
    assert not any("separator" in note for note in plain.notes)


def test_a_column_that_is_text_in_the_test_table_only(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    path, test_path = save(frame(), tmp_path), save(with_values(age=(1, "old")), tmp_path, "test.csv")
    with pytest.raises(
        DataError, match="column 'age' holds numbers in the training table, and something else"
    ):
        data_module(Table(path, "kind", test_path=test_path)).setup()


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.parquet"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.source\.path: there is no such file: .*{name}"):
        Table(str(tmp_path / name), "y").read()


@pytest.mark.parametrize("name", ["broken.csv", "broken.parquet", "table.xlsx", "table.json"])
def test_a_file_that_is_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(AssayError, match=r"data\.source\.path.*(cannot be read|file was expected)"):
        Table(str(tmp_path / name), "y").read()


@pytest.mark.parametrize(
    "wrong", [{"task": "ranking"}, {"task": "reconstruction"}, {"missing": "drop"}, {"encoding": "utf-9"}]
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="was expected"):
        Table("somewhere.csv", "y", **wrong)


def test_one_target_of_numbers_has_a_digest() -> None:
    # a single column of pandas has these strides, with which torch cannot look at bytes without a copy
    targets = torch.tensor([[1.0], [2.0], [3.0]])
    strided = torch.zeros(1, 3).T.copy_(targets)
    assert (
        Samples(torch.zeros(3, 1), strided).digest() == Samples(torch.zeros(3, 1), targets.clone()).digest()
    )


@pytest.mark.parametrize("between", [1, 2, 20])
def test_rows_that_an_open_quote_takes_in_are_not_lost(tmp_path: Path, between: int) -> None:
    path = tmp_path / "pipes.csv"
    names = [f'"{i} inch' if i in (5, 5 + between) else f"{i} inch" for i in range(40)]
    path.write_text(
        "a,pipe,y\n" + "".join(f"{i}.5,{name},{i % 2}\n" for i, name in enumerate(names)), "utf-8"
    )
    with pytest.raises(DataError, match=rf"{between} rows lie within a cell of the column 'pipe' in row 5 "):
        Table(str(path), "y").read()
    text = 'a,pipe,y\n1,"two lines,\nof, text",0\n2,"1, 2\n3, 4\n5, 6",1\n'
    path.write_text(text, encoding="utf-8")
    assert len(Table(str(path), "y", features=["a", "pipe"]).read()["all"].raw) == 2


def test_no_rows_and_another_separator(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b,c\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no rows"):
        Table(str(tmp_path / "empty.csv"), "c").read()
    (tmp_path / "semicolons.csv").write_text("a;b;c\n1;2;x\n3;4;y\n", encoding="utf-8")
    with pytest.raises(DataError, match="looks separated by ';'"):
        Table(str(tmp_path / "semicolons.csv"), "c", separator=",").read()
    assert Table(str(tmp_path / "semicolons.csv"), "c", separator=";").read()
    (tmp_path / "decimals.csv").write_text('a;"b, cm";c\n1,5;2,5;x\n3;4,1;y\n', encoding="utf-8")
    with pytest.raises(DataError, match="looks separated by ';'") as caught:
        Table(str(tmp_path / "decimals.csv"), "c", separator=",").read()
    assert caught.value.hint == "'data.source.separator=\";\"'"
    assert Table(str(tmp_path / "decimals.csv"), "c", separator=";", decimal=",").read()


# -- what is not a feature, or more than one ----------------------------------------------------------------


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
    path, other = save(messy(), tmp_path), messy(10).assign(signed="2020-01-31")
    with pytest.raises(DataError, match=r"'2020-01-31' in the column 'signed', row 0 .*, is not a date like"):
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


# -- files as they come --------------------------------------------------------------------------------------


def test_files_of_other_programs(tmp_path: Path) -> None:
    table = frame()
    folder = tmp_path / "my tables, [2024]"
    folder.mkdir()
    named = table.rename(columns={"height": "Größe (cm)", "kind": "Art €"})
    marked = table.astype({"height": object})
    marked.loc[3, "height"] = "?"
    cases: list[tuple[str, dict[str, Any], pd.DataFrame, str]] = [
        ("bom.csv", {}, table, "kind"),
        ("semicolons.csv", {"separator": ";", "decimal": ","}, table, "kind"),
        ("names.csv", {}, named, "Art €"),
        ("marks.csv", {"na_values": ["?"], "missing": "impute"}, marked, "kind"),
        ("spaces.csv", {"separator": r"\s+"}, table, "kind"),
    ]
    for name, options, given, target in cases:
        sep = " " if name == "spaces.csv" else options.get("separator", ",")
        text = given.to_csv(index=False, sep=sep, decimal=options.get("decimal", "."))
        (folder / name).write_text(text, "utf-8-sig" if name == "bom.csv" else "utf-8", newline="")
        source = Table(str(folder / name), target, **options)
        raw = source.read()["all"].raw
        assert len(raw.columns) == 5, name
        np.testing.assert_allclose(raw.iloc[4:, 1].astype(float), table["height"][4:], err_msg=name)


def test_separators_at_the_end_of_the_rows_shift_nothing(tmp_path: Path) -> None:
    text = "".join(f"{row / 7},{'ab'[row % 2]},\n" for row in range(40))
    (tmp_path / "table.csv").write_text(f"x,y\n{text}", encoding="utf-8")
    data = Table(str(tmp_path / "table.csv"), "y").read()["all"]
    assert list(data.raw.columns) == ["x"]
    assert data.targets.tolist() == [0, 1] * 20


def test_a_named_index_of_a_parquet_file_is_a_column(tmp_path: Path) -> None:
    save(frame().set_index("height"), tmp_path, "table.parquet")
    assert "height" in Table(str(tmp_path / "table.parquet"), "kind").read()["all"].raw


UNREADABLE: list[tuple[str, bytes, str, str]] = [
    ("nothing", b"", "cannot be read: No columns", "repair"),
    ("zeros", b"\0" * 1000, "has no rows", ""),
    ("latin-1", "größe,y\n1,a\n".encode("latin-1"), "is not text in UTF-8", "encoding=latin-1"),
    ("UTF-16", frame().to_csv().encode("utf-16"), "is not text in UTF-8", "encoding=utf-16"),
    ("R's row names", b'"x","y"\n"1",3,a\n"2",4,b\n', "more values than the header has names", "separator"),
    ("a longer row", b"x,y\n1,a\n2,b,3,4\n", "Expected 2 fields in line 3, saw 4", "repair"),
    ("a row that ends early", b"x,z,y\n1,2,a\n3,4\n", "1 row with fewer fields than the header", "complete"),
]


@pytest.mark.parametrize(("content", "message", "hint"), [case[1:] for case in UNREADABLE])
def test_files_that_are_no_tables(tmp_path: Path, content: bytes, message: str, hint: str) -> None:
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        Table(str(tmp_path / "table.csv"), "y").read()
    assert hint in caught.value.hint


def test_what_would_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ConfigError, match=r"pipe\.csv is not a regular file"):
        Table(str(tmp_path / "pipe.csv"), "y").read()
    with pytest.raises(ValueError, match=re.escape("separator='(a+)+$': one character")):
        Table("table.csv", "y", separator="(a+)+$")


PRICES = [f"${price:,}" for price in range(100_000, 140_000, 1_000)]


def without_marks(column: str, values: Any) -> pd.DataFrame:
    return frame().assign(**{column: values})


@pytest.mark.parametrize(
    ("table", "options", "message", "hint"),
    [
        (without_marks("price", PRICES), {"target": "price"}, "text such as '$100,000', but looks", "signs"),
        (without_marks("tax", PRICES), {}, "column 'tax' is text such as '$100,000'", "exclude=[tax]"),
        (
            without_marks("tax", ["?", *map(str, range(39))]),
            {},
            "column 'tax' is text such as '?', but looks like numbers",
            'data.source.na_values=["?"]',
        ),
        (
            without_marks("day", pd.date_range("2020-01-01", periods=40)),
            {"target": "day"},
            "holds dates",
            "numbers or classes",
        ),
        (
            without_marks("name", [f"row {i}" for i in range(40)]),
            {"target": "name"},
            "40 different texts in 40 rows, such as 'row 0', are not classes",
            "another column",
        ),
        (
            without_marks("far", 1e12 + np.arange(40.0)),
            {"target": "far"},
            "differ too little for 32-bit numbers",
            "subtract a constant",
        ),
        (
            frame(),
            {"features": ["age", "kind"]},
            "data.source.features: 'kind' is the target",
            "leave it out",
        ),
        (frame(), {"exclude": ["agee"]}, "data.source.exclude: ", "columns: age"),
        (with_values(height=(3, 1e300)), {}, "'height' has 1e+300 in row 3", "exclude=[height]"),
    ],
)
def test_columns_that_cannot_be_used(
    tmp_path: Path, table: pd.DataFrame, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        Table(save(table, tmp_path), **{"target": "kind", **options}).read()
    assert hint in caught.value.hint


def test_classes_that_differ_in_blanks_or_capitals_are_named(tmp_path: Path) -> None:
    table = frame(40).assign(kind=["yes", "Yes ", "no", "no"] * 10)
    source = Table(save(table, tmp_path), "kind")
    assert len(set(source.read()["all"].targets.tolist())) == 3
    assert source.notes[-1] == "classes that differ only in blanks or capital letters: 'yes', 'Yes '"


def test_integers_of_many_values_are_numbers_and_that_is_said(tmp_path: Path) -> None:
    table = frame(200).assign(price=RNG.integers(10**5, 10**6, 200))
    source = Table(save(table, tmp_path), "price")
    assert source.read()["all"].targets.dtype == torch.float32
    assert "predicted as a number; for classes: data.source.task=multiclass" in source.notes[0]


@pytest.mark.parametrize(
    ("table", "target", "message"),
    [
        (frame().assign(kind="a"), "kind", "a single class, a: there is nothing to tell apart"),
        (frame().assign(y=3.5), "y", "the target is 3.5 in all training samples"),
        (frame(1), "kind", "of 1 sample(s)"),
        (frame(2), "height", "no share of"),
    ],
)
def test_too_little_to_learn_from(
    tmp_path: Path, data_module: Callable[..., DataModule], table: pd.DataFrame, target: str, message: str
) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        data_module(Table(save(table, tmp_path), target), batch_size=16).setup()


def test_columns_that_divide_are_features_where_that_is_asked_for(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    path = save(frame().assign(patient=np.resize(list("abcdefgh"), 40)), tmp_path)
    split = {"val": 0.1, "test": 0.2, "group": "patient"}
    for keep, asked in (([], False), (["patient"], True)):
        datamodule, _ = setup(data_module, Table(path, "kind", keep=keep), split=split)
        assert any(one.name == "patient" for one in datamodule.encoder.columns) is asked  # type: ignore[union-attr]  # a table's
        assert any("data.split.group=patient: it divides" in note for note in datamodule.notes) is not asked
        assert any("each group is whole in one subset" in note for note in datamodule.notes)
    for name, message in (
        ("patent", "data.split.group: .* no column 'patent'; did"),
        ("kind", "is the target"),
    ):
        with pytest.raises(DataError, match=message):
            setup(data_module, Table(path, "kind"), split={**split, "group": name})
