"""Encoded rows against scikit-learn, and what is wrong or odd about a row."""

from __future__ import annotations

import datetime
import json
import math
import re
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.preprocessing import OneHotEncoder  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.tabular.table_encoder import Column, TableEncoder, judge_rows
from assay.errors import DataError

BUILT = Column("built", "date", 30.0, parts=("elapsed", "month"), start=10.0)


def test_a_missing_date_is_filled_in_part_by_part() -> None:
    assert BUILT.fills == (20.0, 1.0)  # 1970-01-31
    assert math.isnan(Column("size", "number").fills[0])


ROWS = np.arange(150)


def table(seed: int = 0) -> pd.DataFrame:
    """Numbers, whole numbers, yes and no, two columns of categories; the rows after 150 have more of them."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": draw.normal(50, 9, 200),
            "city": draw.choice(["Bonn", "Köln", "Ulm", "Aue", "Hof"], 200, p=[0.4, 0.3, 0.15, 0.1, 0.05]),
            "rooms": draw.integers(1, 9, 200),
            "garden": draw.random(200) > 0.5,
            "grade": draw.choice(list("abcdefgh"), 200),
        }
    )
    frame.loc[150:, "city"] = draw.choice(["Bonn", "Rom"], 50)
    return frame


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    return frame.astype({"garden": object}).mask(draw.random(frame.shape) < 0.1).astype({"garden": float})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_categories", [None, 4, 2, 1])
@pytest.mark.parametrize("impute", [False, True])
def test_as_scikit_learn(impute: bool, max_categories: int | None, seed: int) -> None:
    frame = with_gaps(table(seed)) if impute else table(seed)
    encoder = TableEncoder(impute, max_categories)
    encoder.fit(frame, ROWS)
    one_hot: Any = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=max_categories, sparse_output=False
    )
    numbers: Any = "passthrough"
    if impute:
        numbers = SimpleImputer(strategy="median", add_indicator=True)
        one_hot = make_pipeline(SimpleImputer(strategy="constant", fill_value=""), one_hot)
    reference = ColumnTransformer(
        [("numbers", numbers, ["size", "rooms", "garden"]), ("texts", one_hot, ["city", "grade"])]
    )
    reference.fit(frame.iloc[ROWS])
    expected = reference.transform(frame).astype(np.float32)
    encoded = encoder.transform(frame)
    assert encoded.dtype == torch.float32
    np.testing.assert_array_equal(encoded.numpy(), expected)


@given(st.permutations(["size", "city", "rooms", "since", "garden", "grade"]))
def test_each_input_has_the_name_of_its_column(order: list[str]) -> None:
    """In whatever order the columns stand: a value of each input, found by its name in the table itself."""
    frame = table().assign(since=pd.date_range("2020-01-01", periods=200, freq="37h"))
    frame.loc[3::14, ["size", "since"]] = None  # in eleven training rows
    frame.loc[3::20, "rooms"] = None  # in eight, too few to learn from
    encoder = TableEncoder(impute=True)
    encoder.fit(frame[order], ROWS)
    inputs = pd.DataFrame(encoder.transform(frame).numpy(), columns=encoder.feature_names)
    there = {name: inputs[f"{name} is missing"] == 0 for name in ("size", "since")}
    for name in inputs:
        column, _, category = str(name).partition("=")
        column, _, part = column.removesuffix(" is missing").partition(", ")
        if str(name).endswith("missing"):
            expected: Any = frame[column].isna()
        elif category:
            expected = (frame[column] == category).to_numpy()
        elif part == "elapsed":
            expected = (frame[column] - frame[column][0]).dt.total_seconds() / 86400
        else:
            expected = getattr(frame[column].dt, part) if part else frame[column].to_numpy()
        rows = there.get(column, frame[column].notna()) | str(name).endswith("missing")
        np.testing.assert_allclose(inputs[name][rows], np.asarray(expected, np.float32)[rows], rtol=1e-6)
    columns = {str(name).partition("=")[0].partition(",")[0] for name in inputs}
    assert columns == {*order, "size is missing", "since is missing"}


@pytest.mark.parametrize("impute", [False, True])
def test_what_is_learned_is_plain_and_comes_back_to_the_bit(impute: bool) -> None:
    frame = with_gaps(table()) if impute else table()
    frame["day"] = pd.date_range("2024-01-01", periods=200)
    encoder = TableEncoder(impute, 4)
    encoder.fit(frame, ROWS)
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.as_plain())))
    assert torch.equal(again.transform(frame), encoder.transform(frame))
    shuffled = frame[frame.columns[::-1]].assign(more=1)
    assert torch.equal(again.transform(shuffled), encoder.transform(frame))
    assert again.transform(frame.head(0)).shape == (0, encoder.transform(frame).shape[1])


@pytest.mark.parametrize(
    "wrong", [{"kind": "formula"}, {"name": 3}, {"span": [1.0]}, {"parts": ["__class__"]}]
)
def test_what_no_encoder_has_written_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        TableEncoder.from_plain({"columns": [{"name": "x", "kind": "number", **wrong}]})


TRAINING = pd.DataFrame(
    {
        "size": [1.5, 2.5, 4.0, 8.0],
        "rooms": [1, 2, 3, 4],
        "garden": [True, False, True, True],
        "code": ["01", "1", "x", "x"],
        "since": pd.to_datetime(["2020-01-01", "2021-02-03", "2022-03-04", "2023-04-05"], utc=True),
    }
)

GOOD: dict[str, Any] = {"size": 3.0, "rooms": 2, "garden": True, "code": "01", "since": "2021-02-03"}


def fitted(impute: bool = False) -> TableEncoder:
    encoder = TableEncoder(impute)
    encoder.fit(TRAINING, np.arange(4))
    return encoder


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("size", "1,200", "'size' is '1,200', not a number"),
        ("size", None, "'size' has no value"),
        ("size", float("inf"), "'size' is 'inf', which is too large"),
        ("size", 1e39, "'size' is '1e+39', which is too large"),
        ("size", True, "'size' is 'True', not a number"),
        ("rooms", datetime.date(2020, 1, 1), "'rooms' is '2020-01-01', not a number"),
        ("garden", "perhaps", "'garden' is 'perhaps', not a number"),
        ("code", None, "'code' has no value"),
        ("code", "M\ufffd", "'code' is 'M\ufffd', which is not text in UTF-8 (--encoding names another)"),
        ("code", "x,3\ny,4", "'code' is 'x,3\\ny,4'; perhaps a quote is not closed"),
        ("since", "2021-13-01", "'since' is '2021-13-01', not a date such as 2024-12-31"),
        ("since", 20210101, "'since' is '20210101', not a date such as 2024-12-31"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_row(column: str, value: Any, error: str) -> None:
    """Beside good rows, whose numbers are what they are alone."""
    encoder = fitted()
    judged = judge_rows(pd.DataFrame([GOOD, {**GOOD, column: value}, GOOD]), encoder.columns)
    assert judged.errors == {1: error}
    assert not judged.warnings
    found = encoder.transform(judged.frame.iloc[[0, 2]])
    alone = encoder.transform(judge_rows(pd.DataFrame([GOOD]), encoder.columns).frame)
    assert torch.equal(found, alone.expand(2, -1))
    assert found[0, :3].tolist() == [3, 2, 1]
    with pytest.raises(DataError, match=re.escape(f"row 1 (rows count from 0): {error}")):
        encoder.transform(pd.DataFrame([GOOD, {**GOOD, column: value}]))


@pytest.mark.parametrize(
    ("column", "value", "warning"),
    [
        ("size", -6, "'size' is '-6.0', far outside the training range, 1.5 to 8"),
        ("size", 14, None),
        ("size", np.inf, "'size' has no value, unlike each training row; it is filled in"),
        ("rooms", "8", "'rooms' is '8', far outside the training range, 1 to 4"),
        ("garden", False, None),
        (
            "since",
            "2029-1-1",
            "'since' is '2029-1-1', far outside the training range, 2020-01-01 to 2023-04-05",
        ),
        ("since", "2025-01-01", None),
        ("code", "y", "'code' is 'y', which no training row has: it counts as none of the known ones"),
        (
            "code",
            "X ",
            "'code' is 'X ', which no training row has (it has 'x'): it counts as none of the known ones",
        ),
    ],
)
def test_a_value_unlike_those_of_training_is_said(column: str, value: Any, warning: str | None) -> None:
    encoder = TableEncoder.from_plain(json.loads(json.dumps(fitted(impute=True).as_plain())))
    judged = judge_rows(pd.DataFrame([GOOD, {**GOOD, column: value}]), encoder.columns)
    assert judged.warnings == ({} if warning is None else {1: warning})
    assert not judged.errors


def test_all_is_as_the_encoder_has_it_where_nothing_is_wrong() -> None:
    """Whatever type a value comes in: judged rows are encoded as the training rows are."""
    encoder = fitted()
    judged = judge_rows(TRAINING.astype(object), encoder.columns)
    assert not judged.errors
    assert not judged.warnings
    assert torch.equal(encoder.transform(judged.frame), encoder.transform(TRAINING))


def test_what_is_missing_is_filled_in_where_training_did() -> None:
    encoder = fitted(impute=True)
    frame = pd.DataFrame([dict.fromkeys(GOOD), {**GOOD, "size": float("inf")}])
    judged = judge_rows(frame, encoder.columns)
    assert not judged.errors
    assert encoder.transform(judged.frame)[:, 0].tolist() == [3.25, 3.25]
    assert set(judge_rows(pd.DataFrame([{**GOOD, "size": 1e300}]), encoder.columns).errors) == {0}


@pytest.mark.parametrize(("text", "value"), [("1,5", 1.5), ("1.234", None), ("1.234,5", None), ("7", 7.0)])
def test_a_comma_for_a_decimal_point(text: str, value: float | None) -> None:
    frame = pd.DataFrame([{**GOOD, "size": text}, {**GOOD, "size": "?"}])
    judged = judge_rows(frame, fitted().columns, decimal=",")
    assert judged.frame["size"].tolist()[0] == pytest.approx(value, nan_ok=True) or value is None
    assert (0 in judged.errors) == (value is None)
