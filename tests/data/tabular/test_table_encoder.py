from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.feature_extraction.text import HashingVectorizer  # type: ignore[import-untyped]  # ships no types
from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.preprocessing import OneHotEncoder  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.data.tabular.table_encoder import TableEncoder
from assay.errors import DataError

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
        numbers = SimpleImputer(strategy="median")
        one_hot = make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot)
    reference = ColumnTransformer(
        [("numbers", numbers, ["size", "rooms", "garden"]), ("texts", one_hot, ["city", "grade"])]
    )
    reference.fit(frame.iloc[ROWS])
    expected = reference.transform(frame).astype(np.float32)
    encoded = encoder.transform(frame)
    assert encoded.dtype == torch.float32
    np.testing.assert_array_equal(encoded.numpy(), expected)


@given(st.permutations(["size", "city", "rooms", "since", "garden", "grade", "remark"]))
def test_each_input_has_the_name_of_its_column(order: list[str]) -> None:
    """In whatever order the columns stand: a value of each input, found by its name in the table itself."""
    frame = table().assign(
        since=pd.date_range("2020-01-01", periods=200, freq="37h"), remark=["sunny garden", "quiet"] * 100
    )
    encoder = TableEncoder(buckets={"remark": 4})
    encoder.fit(frame[order], ROWS)
    inputs = pd.DataFrame(encoder.transform(frame).numpy(), columns=encoder.feature_names)
    for name in inputs:
        column, _, category = str(name).partition("=")
        column, _, part = column.partition(", ")
        if column == "remark":
            expected = HashingVectorizer(n_features=4).transform(frame["remark"]).toarray()[:, int(part[-1])]
        elif category:
            expected = (frame[column] == category).to_numpy()
        elif part == "elapsed":
            expected = (frame[column] - frame[column][0]).dt.total_seconds() / 86400
        else:
            expected = getattr(frame[column].dt, part) if part else frame[column].to_numpy()
        np.testing.assert_allclose(inputs[name], np.asarray(expected, dtype=np.float32), rtol=1e-6)
    assert {str(name).partition("=")[0].partition(",")[0] for name in inputs} == set(order)


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


def test_categories_are_the_same_as_text_and_as_numbers() -> None:
    frame = pd.DataFrame({"code": ["1", "2", "x"] * 10})
    encoder = TableEncoder()
    encoder.fit(frame, np.arange(30))
    for column in ([1, 2, 1], [1.0, 2.0, 1.0], ["1", "2", "1"]):
        assert encoder.transform(pd.DataFrame({"code": column})).argmax(1).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="rooms"), "has no column 'rooms', which the model was trained on"),
        (lambda frame: pd.concat([frame, frame[["rooms"]]], axis=1), "has two columns called 'rooms'"),
        (lambda frame: frame.assign(size=np.nan), r"row 0 \(rows count from 0\): 'size' has no value"),
        (lambda frame: frame.assign(size=np.inf), "'size' is 'inf', which is too large"),
        (lambda frame: frame.assign(city=None), "'city' has no value"),
        (lambda frame: frame.assign(rooms="three"), "'rooms' is 'three', not a number"),
    ],
)
def test_rows_that_cannot_be_encoded(change: Any, message: str) -> None:
    encoder = TableEncoder()
    encoder.fit(table(), ROWS)
    with pytest.raises(DataError, match=message):
        encoder.transform(change(table()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "formula"},
        {"codes": ["a"]},
        {"name": 3},
        {"span": [1.0]},
        {"span": ["a", "b"]},
        {"span": 3},
        {"parts": ["__class__"]},
    ],
)
def test_what_no_encoder_has_written_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not what a table's encoder has learned"):
        TableEncoder.from_plain({"columns": [{"name": "x", "kind": "number", **wrong}]})
