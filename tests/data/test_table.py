from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.samples import Samples
from assay.data.table import Table
from assay.errors import DataError

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
    data = datamodule._parts.data["train"]  # type: ignore[union-attr]  # set up above
    assert isinstance(data, Samples)
    return datamodule, data


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.parquet"])
def test_numbers_stay_and_categories_become_columns(
    tmp_path: Path, name: str, data_module: Callable[..., DataModule]
) -> None:
    table = frame()
    source = Table(save(table, tmp_path, name), "kind")
    datamodule, data = setup(data_module, source)
    numbers = table[["age", "height", "smokes"]].to_numpy(dtype=np.float32)
    categories = OneHotEncoder(sparse_output=False).fit_transform(table[["city"]])
    assert data.inputs.dtype == torch.float32
    np.testing.assert_allclose(data.inputs.numpy(), np.concatenate([numbers, categories], 1), rtol=1e-6)
    assert data.targets.tolist() == [0, 1] * 20
    assert (source.task, source.class_names) == ("multiclass", ("no", "yes"))
    assert datamodule.spec.input_shape == (6,)


def test_chosen_features(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    table = frame()
    _, data = setup(data_module, Table(save(table, tmp_path), "kind", features=["height"]))
    np.testing.assert_allclose(data.inputs[:, 0].numpy(), table["height"], rtol=1e-6)


TASKS: list[tuple[Any, dict[str, Any], str, tuple[int, ...]]] = [
    ("height", {}, "regression", (40, 1)),
    ("age", {}, "multiclass", (40,)),
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
    source = Table(save(pd.DataFrame({"x": range(40), "y": [10, 9] * 20}), tmp_path), "y")
    assert source.read()["all"].targets.tolist() == [1, 0] * 20
    assert source.class_names == ("9", "10")


def test_nothing_leaks_from_the_other_parts(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    """The median and the categories are those of the training rows."""
    table = frame(60)
    plain, _ = setup(data_module, Table(save(table, tmp_path, "plain.csv"), "kind"))
    rows = plain._parts.rows  # type: ignore[union-attr]  # set up above
    train, test = rows["train"], rows["test"]
    table["age"] = table["age"].astype(float)
    table.loc[test, "age"] = 1e6
    table.loc[[train[0], test[0]], "age"] = np.nan
    table.loc[[train[1], test[1]], "city"] = None
    table.loc[test[2], "city"] = "Rom"
    _, data = setup(data_module, Table(save(table, tmp_path, "gaps.csv"), "kind", missing="impute"))
    median = np.nanmedian(table.loc[train, "age"])
    np.testing.assert_allclose(data.inputs[[train[0], test[0]], 0], median)
    assert data.inputs.shape[1] == 6  # no column for Rome
    most_frequent = sorted(["Bonn", "Köln", "Ulm"]).index(table.loc[train, "city"].mode()[0])
    for row in (train[1], test[1]):
        assert data.inputs[row, 3:].argmax() == most_frequent
    assert data.inputs[test[2], 3:].sum() == 0


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
    assert datamodule._parts.data["test"].inputs.shape == (10, 6)  # type: ignore[union-attr]  # in memory


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
            {},
            "feature column 'age' has no finite value in row 7",
            "data.source.missing=impute",
        ),
        (
            with_values(height=(3, np.inf)),
            {},
            "feature column 'height' has no finite value in row 3",
            "missing=impute",
        ),
        (
            frame(),
            {"target": "kindd"},
            "has no column 'kindd'; did you mean 'kind'?",
            "columns: age, height, city",
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
            {"target": "height"},
            "target column 'height' has no finite value in row 5",
            "rows",
        ),
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
        Table(save(table, tmp_path), "kind").read()


def test_dates_are_neither(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    table = frame()
    table["day"] = pd.Timestamp("2020-01-01")
    source = Table(save(table, tmp_path, "table.parquet"), "kind")
    with pytest.raises(DataError, match="column 'day' holds dates"):
        data_module(source).setup()


def test_a_column_that_is_text_in_the_test_table_only(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    path, test_path = save(frame(), tmp_path), save(with_values(age=(1, "old")), tmp_path, "test.csv")
    with pytest.raises(DataError, match="column 'age' holds numbers in the training table"):
        data_module(Table(path, "kind", test_path=test_path)).setup()


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere.parquet"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"data\.source\.path=.*{name}: there is no such file"):
        Table(str(tmp_path / name), "y").read()


@pytest.mark.parametrize("name", ["broken.csv", "broken.parquet", "table.xlsx"])
def test_a_file_that_is_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"data\.source\.path=.*(cannot be read|file was expected)"):
        Table(str(tmp_path / name), "y").read()


@pytest.mark.parametrize("wrong", [{"task": "ranking"}, {"missing": "drop"}])
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


def test_no_rows_and_another_separator(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b,c\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no rows"):
        Table(str(tmp_path / "empty.csv"), "c").read()
    (tmp_path / "semicolons.csv").write_text("a;b;c\n1;2;x\n3;4;y\n", encoding="utf-8")
    with pytest.raises(DataError, match="looks separated by ';'"):
        Table(str(tmp_path / "semicolons.csv"), "c").read()
    assert Table(str(tmp_path / "semicolons.csv"), "c", separator=";").read()
