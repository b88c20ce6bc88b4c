"""A table as samples: features, targets, what is filled in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.preprocessing import OneHotEncoder  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.data.made_tables import RNG, check_refused, frame, save, setup, with_values

from assay.data.samples import Samples
from assay.data.shown_samples import sample_names
from assay.data.table import Table
from assay.data.tabular.table_file import table_chunks
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.data_module import DataModule


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
    assert (source.task, source.class_names) == ("binary", ("no", "yes"))
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
    check_refused(table, tmp_path, message, hint, **options)


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
    assert (source.task, source.class_names) == ("binary", ("0", "1"))
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
    with pytest.raises(DataError, match=r"row 1 \(rows count from 0\): 'age' is 'old', not a number"):
        data_module(Table(path, "kind", test_path=test_path)).setup()


@pytest.mark.parametrize(
    "wrong", [{"task": "ranking"}, {"task": "reconstruction"}, {"missing": "drop"}, {"encoding": "utf-9"}]
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Table("somewhere.csv", "y", **wrong)


def test_one_target_of_numbers_has_a_digest() -> None:
    # a single column of pandas has these strides, with which torch cannot look at bytes without a copy
    targets = torch.tensor([[1.0], [2.0], [3.0]])
    strided = torch.zeros(1, 3).T.copy_(targets)
    assert (
        Samples(torch.zeros(3, 1), strided).digest() == Samples(torch.zeros(3, 1), targets.clone()).digest()
    )


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


ROOMS = pd.DataFrame(
    {
        "size": [None if row % 7 == 3 else row / 3 for row in range(30)],
        "city": [["Ulm", "Bonn", "a, b"][row % 3] for row in range(30)],
        "since": [f"{1 + row % 28}.0{1 + row % 9}.2024" for row in range(30)],
        "rooms": [row * row for row in range(30)],
        "kind": [None if row in {0, 11} else ["no", "yes"][row // 2 % 2] for row in range(30)],
    }
)


def read_by_name(path: Path) -> tuple[pd.DataFrame, list[int], Any, Any]:
    data = Table(str(path), "kind", day_first=True).read()["all"]
    data.encoder.fit(data.raw, np.arange(20))
    encoder: Any = data.encoder
    inputs = pd.DataFrame(encoder.transform(data.raw).numpy(), columns=encoder.feature_names)
    return inputs[sorted(inputs.columns)], data.targets.tolist(), data.names, encoder


@settings(max_examples=20, deadline=None)
@given(st.permutations(list(ROOMS.columns)), st.lists(st.integers(1, 30), max_size=5), st.integers(1, 31))
def test_neither_the_order_of_columns_nor_blank_lines_change_a_row(
    tmp_path_factory: pytest.TempPathFactory, order: list[str], blanks: list[int], size: int
) -> None:
    """As samples, by the names of inputs and the numbers of rows, and as chunks to predict from."""
    folder = tmp_path_factory.mktemp("rows")
    ROOMS.to_csv(folder / "plain.csv", index=False)
    lines = ROOMS[order].to_csv(index=False).splitlines()
    for at in blanks:
        lines.insert(at, " " * (at % 2))
    (folder / "other.csv").write_text("\n".join(lines), encoding="utf-8")
    plain, other = read_by_name(folder / "plain.csv"), read_by_name(folder / "other.csv")
    pd.testing.assert_frame_equal(plain[0], other[0])
    assert plain[1:3] == other[1:3]
    whole = pd.concat([chunk.frame for chunk in table_chunks(folder / "plain.csv", plain[3], 30)])
    chunks = list(table_chunks(folder / "other.csv", plain[3], size))
    assert [row for chunk in chunks for row in chunk.rows] == list(range(30))
    parts = torch.cat([plain[3].transform(chunk.frame) for chunk in chunks])
    assert torch.equal(parts, plain[3].transform(whole))
