from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from assay.data.text_encoder import TextEncoder
from assay.data.tokenizer import UNKNOWN
from assay.errors import DataError

TEXTS = pd.DataFrame(
    {"text": ["one two three", "two two four five", "six seven eight nine", "only in the test"]}
)
TRAIN = np.array([0, 1, 2])


def fitted(**options: Any) -> TextEncoder:
    encoder = TextEncoder("text", tokenizer="word", **{"max_length": 8, **options})
    encoder.fit(TEXTS, TRAIN)
    return encoder


def test_the_vocabulary_is_that_of_the_training_rows_alone() -> None:
    encoder = fitted()
    assert encoder.vocab_size == 2 + 9
    ids = encoder.transform(TEXTS)
    assert ids.dtype == torch.int64
    assert ids.shape == (4, 8)
    assert ids[3].tolist() == [UNKNOWN] * 4 + [0] * 4
    assert (ids[:3] != UNKNOWN).all()
    assert not ids[0, 3:].any()


def test_what_is_cut_off_is_counted_and_said() -> None:
    encoder = fitted(max_length=3)
    ids = encoder.transform(TEXTS)
    assert ids.shape == (4, 3)
    assert torch.equal(ids, fitted().transform(TEXTS)[:, :3])
    assert any("max_length=3: 3 texts (75.0 %) are longer" in note for note in encoder.notes)
    assert any("vocab_size=8192: the training texts have only 11 tokens" in note for note in encoder.notes)
    learned = TextEncoder.from_plain(encoder.as_plain(), encoder.tokenizer)
    [told] = learned.unknown(TEXTS)
    assert told.startswith("4 of 4 rows are unlike the training rows, first row 0 (rows count from 0): ")
    assert told.endswith("'text' has 3 tokens or more, and is cut off there")


def test_an_enormous_text_takes_no_longer_than_its_beginning() -> None:
    encoder = fitted(max_length=64)
    start = time.process_time()
    enormous = pd.DataFrame({"text": ["two " * 2_500_000, "x" * 10_000_000]})
    ids = encoder.transform(enormous)
    assert time.process_time() - start < 5  # a tenth of a second; tokenised as a whole, a minute
    assert torch.equal(ids[0], encoder.transform(pd.DataFrame({"text": ["two " * 100]}))[0])


def test_a_text_without_any_token_has_an_unknown_one() -> None:
    assert fitted().transform(pd.DataFrame({"text": [" \n", "two"]}))[0].tolist() == [UNKNOWN] + [0] * 7


def test_what_is_kept_gives_the_same_ids_and_remembers_no_lengths() -> None:
    encoder = fitted()
    again = TextEncoder.from_plain(encoder.as_plain(), encoder.tokenizer)
    assert torch.equal(again.transform(TEXTS), encoder.transform(TEXTS))
    assert again.column == "text"
    assert again.notes == ()
    for plain in ({}, {"column": 3, "max_length": 8}, {"column": "a", "max_length": True}, {"column": "a"}):
        with pytest.raises(ValueError, match="not what a text's encoder has learned"):
            TextEncoder.from_plain(plain, encoder.tokenizer)
    with pytest.raises(ValueError, match="max_length=99999999"):
        TextEncoder.from_plain({"column": "a", "max_length": 99999999}, encoder.tokenizer)


def test_what_is_odd_about_a_text_is_said() -> None:
    encoder = fitted(max_length=4)
    frame = pd.DataFrame({"text": ["one two", "what is this", "one two three four five"]})
    odd = encoder.odd(encoder.transform(frame))
    assert odd == {
        1: "most words of 'text' are unknown to the model",
        2: "'text' has 4 tokens or more, and is cut off there",
    }


def test_a_table_without_the_column_is_refused() -> None:
    with pytest.raises(DataError, match="no column 'text'"):
        fitted().check_columns(["words"])


@pytest.mark.parametrize("length", [0, -1, 65_537])
def test_a_length_out_of_its_range_is_named(length: int) -> None:
    with pytest.raises(ValueError, match=f"max_length={length}: 1 to 65,536"):
        TextEncoder("text", max_length=length)
