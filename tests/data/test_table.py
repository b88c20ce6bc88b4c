"""A table as samples: features, targets, what is filled in; and texts of a column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import LabelEncoder  # type: ignore[import-untyped]  # ships no types
from tests.data.tables import in_columns, write_table

from assay.data.core.rendering import sample_names
from assay.data.table.table import Table
from assay.data.table.table_targets import TableTargets
from assay.data.text.text_table import TextTable
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.data.core.data_module import DataModule
    from assay.data.core.samples import Samples

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
    return write_table(table, folder / name)


def setup(build: Callable[..., DataModule], source: Table, **options: Any) -> tuple[DataModule, Samples]:
    datamodule = build(source, **options)
    datamodule.setup()
    data = datamodule.splits.data["train"]
    assert data.in_memory
    return datamodule, data


def with_value(name: str, row: int, value: Any) -> pd.DataFrame:
    table = frame()
    table[name] = table[name].astype(object if isinstance(value, str) else float)
    table.loc[row, name] = value
    return table


def test_nothing_leaks_from_the_other_subsets(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    """The median and the categories are those of the training rows, and what is filled in is said."""
    table = frame(60).astype({"age": float})
    plain, _ = setup(data_module, Table(save(table, tmp_path, "plain.csv"), "kind"))
    train, test = plain.splits.rows["train"], plain.splits.rows["test"]
    table.loc[test, "age"] = 1e6
    table.loc[[train[0], test[0]], "age"] = np.nan
    table.loc[[train[1], test[1]], "city"] = None
    table.loc[test[2], "city"] = "Rom"
    source = Table(save(table, tmp_path, "gaps.csv"), "kind")
    _, data = setup(data_module, source)
    assert source.notes[-1] == (
        "4 of 60 rows have missing values, which are filled in: age (2, median), city (2, a category); "
        "data.source.missing=error refuses them"
    )
    np.testing.assert_allclose(data.inputs[[train[0], test[0]], 0], np.nanmedian(table.loc[train, "age"]))
    inputs = in_columns(data, data.inputs)
    assert inputs.shape[1] == 8  # none for Rome, one for what is missing
    for row in (train[1], test[1]):
        assert inputs[row, 4:].tolist() == [1, 0, 0, 0]
    assert inputs[test[2], 4:].sum() == 0


def test_a_test_table_of_its_own(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    path, test_path = save(frame(), tmp_path), save(frame(10), tmp_path, "test.parquet")
    datamodule, _ = setup(data_module, Table(path, "kind", test_path=test_path))
    spec = datamodule.spec
    assert (spec.num_train, spec.num_val, spec.num_test) == (36, 4, 10)
    test_path = save(with_value("age", 1, "old"), tmp_path, "test.csv")
    with pytest.raises(DataError, match=r"row 1 \(rows count from 0\): 'age' is 'old', not a number"):
        data_module(Table(path, "kind", test_path=test_path)).setup()


@pytest.mark.parametrize(
    "words", [["0.5", "1.0", "placebo"], ["007", "7.50", "both"], ["TRUE", "maybe"], ["NA", "DE"]]
)
def test_a_category_is_the_same_in_another_file(tmp_path: Path, words: list[str]) -> None:
    rows = frame(60).assign(dose=np.resize(words, 60))
    rows["kind"] = RNG.choice(["no", "yes"], 60)
    path, other = save(rows, tmp_path), save(rows[rows["dose"] != words[-1]], tmp_path, "test.csv")
    samples = Table(path, "kind", test_path=other).read()
    encoder: Any = samples["train"].encoder
    encoder.fit(samples["train"].raw, np.arange(60))
    codes = dict(zip(rows["dose"], encoder.transform(samples["train"].raw)[:, -1].tolist(), strict=True))
    assert len({*codes.values()}) == len(words)
    evaluated = Table(other, "kind")
    evaluated.fitted = encoder
    for held_out in (samples["test"], evaluated.read()["all"]):
        written = pd.read_csv(other, dtype=str, keep_default_na=False)["dose"]
        expected = [codes[dose] for dose in written]
        assert encoder.transform(held_out.raw)[:, -1].tolist() == expected


def test_a_word_that_means_missing_in_training_means_it_in_the_test(tmp_path: Path) -> None:
    rows, other = with_value("age", 0, "?"), frame(20)
    rows.loc[::7, "city"] = other.loc[::7, "city"] = "?"
    paths = save(rows, tmp_path), save(other, tmp_path, "test.csv")
    samples = Table(paths[0], "kind", test_path=paths[1]).read()
    for subset, table in (("train", rows), ("test", other)):
        missing = samples[subset].raw["city"].isna()
        assert missing.tolist() == (table["city"] == "?").tolist()


@pytest.mark.parametrize(
    ("table", "options", "message", "hint"),
    [
        (frame(), {"target": "kindd"}, "has no column 'kindd'; did you mean 'kind'?", "columns: age, height"),
        (frame(), {"features": ["agee"]}, "data.source.features: ", "columns: age"),
        (frame(), {"exclude": ["agee"]}, "data.source.exclude: ", "columns: age"),
        (frame(), {"features": ["age", "kind"]}, "features: 'kind' is the target", "leave it out"),
        (frame(), {"features": []}, "no column is left to predict from", "add a column"),
        (frame(), {"task": "regression"}, "kind cannot be converted to numbers (regression)", "multiclass"),
        (
            frame(),
            {"target": ["kind", "city"], "task": "binary"},
            "2 columns for a binary task",
            "multilabel",
        ),
        (
            frame(),
            {"target": ["age", "smokes"], "task": "multilabel"},
            "values other than 0 and 1",
            "regression",
        ),
        (
            with_value("height", 5, np.inf),
            {"target": "height"},
            "'height' has no finite value in row 5",
            "rows",
        ),
        (frame().assign(kind=None), {}, "data.source.target=kind: no row of", "another column"),
        (
            frame().assign(far=1e12 + np.arange(40.0)),
            {"target": "far"},
            "differ too little for 32-bit",
            "subtract",
        ),
    ],
)
def test_tables_that_cannot_be_used(
    tmp_path: Path, table: pd.DataFrame, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        Table(save(table, tmp_path), **{"target": "kind", **options}).read()
    assert hint in caught.value.hint


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
    frame().to_csv(tmp_path / "rows.csv", sep=";", decimal=",", index=False)
    source = Table(str(tmp_path / "rows.csv"), "kind")
    source.read()
    assert source.notes[:1] == [f"{tmp_path / 'rows.csv'}: separator ';' and decimal ',' found"]
    plain = Table(save(frame(), tmp_path), "kind")
    plain.read()
    assert not any("separator" in note for note in plain.notes)


@pytest.mark.parametrize(
    "wrong", [{"task": "ranking"}, {"task": "reconstruction"}, {"skip_rows": -1}, {"max_categories": -2}]
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Table("somewhere.csv", "y", **wrong)


def test_too_little_to_learn_from(tmp_path: Path, data_module: Callable[..., DataModule]) -> None:
    for table, target, message in (
        (frame().assign(kind="a"), "kind", "a single class, a: there is nothing to distinguish"),
        (frame().assign(y=3.5), "y", "the target is 3.5 in all training samples"),
    ):
        with pytest.raises(DataError, match=message):
            data_module(Table(save(table, tmp_path), target)).setup()


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
    with pytest.raises(DataError, match=r"data\.split\.group: .* no column 'patent'; did"):
        setup(data_module, Table(path, "kind"), split={**split, "group": "patent"})


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
    assert "signed such as '31.01.2020' (%d.%m.%Y), yyyymmdd such as '20200101' (%Y%m%d)" in dates
    assert few.endswith("rooms (5 values); as categories alone: 'data.source.categories=[rooms]'")


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


def test_a_column_that_gives_the_target_away(tmp_path: Path) -> None:
    """In which ways it may is in `test_table_columns`."""
    path = save(frame().assign(secret=lambda table: table["height"] / 2.54 + 1), tmp_path)
    how = "'secret' reveals the target 'height': .*the target is a linear function of it"
    with pytest.raises(DataError, match=how) as caught:
        Table(path, "height").read()
    assert caught.value.hint.startswith("'data.source.exclude=[secret]'")
    assert "secret" not in Table(path, "height", exclude=["secret"]).read()["all"].raw
    assert "secret" in Table(path, "height", keep=["secret"]).read()["all"].raw
    alone = Table(path, "height", features=["secret"])
    alone.read()
    assert "reveals the target" in alone.notes[-1]


FRAME = pd.DataFrame(
    {"kind": ["b", "a", "c", "a"] * 5, "sick": [0, 1, 1, 0] * 5, "size": np.linspace(0.5, 9.5, 20)}
)


def test_classes_are_numbered_as_scikit_learn_does() -> None:
    for frame, names in ((FRAME, ("a", "b", "c")), (pd.DataFrame({"kind": [10, 9] * 5}), ("9", "10"))):
        targets = TableTargets("multiclass", ["kind"], {"kind": frame["kind"].unique().tolist()})
        assert targets.class_names == names
        assert targets.encode(frame).tolist() == LabelEncoder().fit_transform(frame["kind"]).tolist()


def test_several_heads_hold_what_each_column_is() -> None:
    names = ["size", "kind", "sick"]
    targets = TableTargets("multitask", names, {name: FRAME[name].unique().tolist() for name in names[1:]})
    assert targets.class_names == ("size", "kind=a", "kind=b", "kind=c", "sick=0", "sick=1")
    assert targets.notes == [
        "predicted side by side: size as a number, kind as one of 3 classes, sick as one of 2 classes"
    ]
    encoded = targets.encode(FRAME)
    assert encoded.dtype == torch.float32
    np.testing.assert_allclose(encoded[:, 0].numpy(), FRAME["size"])
    assert encoded[:, 1].tolist() == LabelEncoder().fit_transform(FRAME["kind"]).tolist()
    assert encoded[:, 2].tolist() == FRAME["sick"].tolist()


TEXTS = pd.DataFrame(
    {"words": [f"word{row} and more" for row in range(12)], "kind": ["a", "b"] * 6, "who": list("uvwx") * 3}
)


def text_source(folder: Path, frame: pd.DataFrame, **options: Any) -> TextTable:
    frame.to_csv(path := folder / "texts.csv", index=False)
    return TextTable(str(path), "kind", "words", **options)


def test_rows_without_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    frame = TEXTS.copy()
    frame.loc[[3, 7], "words"] = [None, "  "]
    dropping = text_source(tmp_path, frame)
    dropping.split_columns = {"group": "who"}
    whole = dropping.read()["all"]
    kept = [row for row in range(12) if row not in (3, 7)]
    assert whole.names == [str(row) for row in kept]
    assert whole.raw["words"].tolist() == TEXTS["words"].iloc[kept].tolist()
    assert whole.targets.tolist() == [row % 2 for row in kept]
    assert whole.split_values["who"].tolist() == TEXTS["who"].iloc[kept].tolist()
    assert any("2 rows of 12 with no text" in note for note in dropping.notes)


def test_a_column_of_nothing_or_of_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has a value there"):
        text_source(tmp_path, TEXTS.assign(words=" ")).read()
    with pytest.raises(DataError, match="holds numbers, not texts"):
        text_source(tmp_path, TEXTS.assign(words=range(12))).read()


@pytest.mark.parametrize("positive", ["no", "yes", "No", 3.0])
def test_the_positive_class_can_be_chosen(tmp_path: Path, positive: str | float) -> None:
    frame = pd.DataFrame({"x": np.arange(20) / 3, "sick": ["yes", "no"] * 10, "grade": [1, 2, 3, 4] * 5})
    frame.to_csv(path := tmp_path / "rows.csv", index=False)
    source = Table(str(path), "sick", positive=positive)
    if positive not in ("no", "yes"):
        with pytest.raises(
            DataError,
            match=r"positive=\S+ expected a class of a binary task, got binary of the classes no, yes",
        ):
            source.read()
        return
    targets = source.read()["all"].targets
    assert source.class_names == (("yes", "no") if positive == "no" else ("no", "yes"))
    assert targets.tolist() == (frame["sick"] == positive).astype(int).tolist()
    for target in ("grade", "x"):
        with pytest.raises(DataError, match=r"got (multiclass of the classes 1, 2, 3, 4|regression)\n"):
            Table(str(path), target, positive="2").read()


def test_the_positive_class_does_not_decide_who_is_tested(
    tmp_path: Path, data_module: Callable[..., DataModule]
) -> None:
    frame = pd.DataFrame({"x": np.arange(60) / 7, "sick": ["yes", "no", "no"] * 20})
    frame.to_csv(path := tmp_path / "rows.csv", index=False)
    tested = []
    for positive in (None, "yes", "no", False):
        data = data_module(Table(str(path), "sick", positive=positive))
        data.setup()
        tested.append(data.splits.rows["test"].tolist())
    assert tested[1:] == tested[:1] * 3
