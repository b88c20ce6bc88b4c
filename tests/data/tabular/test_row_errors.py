"""A row that an encoder refuses is named with its reason, and the others are encoded as without it."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from assay.data.tabular.table_encoder import TableEncoder, judge_rows
from assay.errors import DataError

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
        ("size", "big", "'size' is 'big', not a number"),
        ("size", "1,200", "'size' is '1,200', not a number"),
        ("size", None, "'size' has no value"),
        ("size", float("inf"), "'size' is 'inf', which is too large"),
        ("size", 1e39, "'size' is '1e+39', which is too large"),
        ("size", True, "'size' is 'True', not a number"),
        ("rooms", datetime.date(2020, 1, 1), "'rooms' is '2020-01-01', not a number"),
        ("garden", "perhaps", "'garden' is 'perhaps', not a number"),
        ("code", None, "'code' has no value"),
        (
            "code",
            "M\ufffdnchen",
            "'code' is 'M\ufffdnchen', which is not text in UTF-8 (--encoding names another)",
        ),
        ("code", "x,3\ny,4", "'code' is 'x,3\\ny,4': is a quote not closed there?"),
        ("since", "2021-13-01", "'since' is '2021-13-01', not a date such as 2024-12-31"),
        ("since", 20210101, "'since' is '20210101', not a date such as 2024-12-31"),
        ("since", None, "'since' has no value"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_row(column: str, value: Any, error: str) -> None:
    """Beside good rows, whose numbers are what they are alone."""
    encoder = fitted()
    frame = pd.DataFrame([GOOD, {**GOOD, column: value}, GOOD])
    judged = judge_rows(frame, encoder.columns)
    assert judged.errors == {1: error}
    assert not judged.warnings
    found = encoder.transform(judged.frame.iloc[[0, 2]])
    alone = encoder.transform(judge_rows(pd.DataFrame([GOOD]), encoder.columns).frame)
    assert torch.equal(found, alone.expand(2, -1))
    assert found[0, :3].tolist() == [3, 2, 1]


@pytest.mark.parametrize(
    ("column", "value", "warning"),
    [
        ("size", 1e9, "'size' is '1000000000.0', far outside the training range, 1.5 to 8"),
        ("size", -6, "'size' is '-6.0', far outside the training range, 1.5 to 8"),
        ("size", 14, None),
        ("size", np.nan, None),
        ("rooms", "8", "'rooms' is '8', far outside the training range, 1 to 4"),
        ("garden", False, None),
        (
            "since",
            "2029-01-01",
            "'since' is '2029-01-01', far outside the training range, 2020-01-01 to 2023-04-05",
        ),
        ("since", "2025-01-01", None),
    ],
)
def test_a_value_far_from_those_of_training_is_said(column: str, value: Any, warning: str | None) -> None:
    encoder = fitted(impute=True)
    encoder = TableEncoder.from_plain(json.loads(json.dumps(encoder.as_plain())))
    judged = judge_rows(pd.DataFrame([GOOD, {**GOOD, column: value}]), encoder.columns)
    told = {row: text for row, text in judged.warnings.items() if "filled in" not in text}
    assert told == ({} if warning is None else {1: warning})
    plain = encoder.as_plain()
    for learned in plain["columns"]:
        del learned["span"]
    older = TableEncoder.from_plain(plain)
    assert not any("far" in text for text in judge_rows(judged.frame, older.columns).warnings.values())


def test_an_infinite_value_that_is_filled_in_is_said() -> None:
    judged = judge_rows(pd.DataFrame([GOOD, {**GOOD, "size": np.inf}]), fitted(impute=True).columns)
    assert judged.warnings == {1: "'size' has no value, which each training row has: it is filled in"}


def test_a_column_may_be_called_anything() -> None:
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"{size}": [1.0, 2.0]}), np.arange(2))
    assert judge_rows(pd.DataFrame({"{size}": ["big"]}), encoder.columns).errors == {
        0: "'{size}' is 'big', not a number"
    }


def test_a_whole_column_of_another_type() -> None:
    frame = pd.DataFrame([GOOD] * 3).assign(
        rooms=pd.to_datetime("2020-01-01"), since=[1, 2, 3], size=["1.5", " 2 ", "-3e0"]
    )
    judged = judge_rows(frame, fitted().columns)
    assert set(judged.errors) == {0, 1, 2}
    assert "not a number" in judged.errors[0]
    assert "not a date" in judged.errors[0]
    assert judged.frame["size"].tolist() == [1.5, 2, -3]


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
    too_large = judge_rows(pd.DataFrame([{**GOOD, "size": 1e300}]), encoder.columns)
    assert set(too_large.errors) == {0}


def test_an_unknown_category_is_odd_but_no_error() -> None:
    judged = judge_rows(pd.DataFrame([GOOD, {**GOOD, "code": "y"}]), fitted().columns)
    assert not judged.errors
    said = "'code' is 'y', which no training row has: it counts as none of the known ones"
    assert judged.warnings == {1: said}


@pytest.mark.parametrize(("text", "value"), [("1,5", 1.5), ("1.234", None), ("1.234,5", None), ("7", 7.0)])
def test_a_comma_for_a_decimal_point(text: str, value: float | None) -> None:
    frame = pd.DataFrame([{**GOOD, "size": text}, {**GOOD, "size": "?"}])
    judged = judge_rows(frame, fitted().columns, decimal=",")
    assert judged.frame["size"].tolist()[0] == pytest.approx(value, nan_ok=True) or value is None
    assert (0 in judged.errors) == (value is None)


def test_the_encoder_alone_refuses_the_same() -> None:
    """The reference: what is an error here, fitting and transforming would refuse, or turn to no number."""
    with pytest.raises(DataError):
        fitted().transform(pd.DataFrame([{**GOOD, "size": "big"}]))
