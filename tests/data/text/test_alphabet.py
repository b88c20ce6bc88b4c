from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.alphabet import Alphabet

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(TEXTS)
def test_there_and_back(text: str) -> None:
    for alphabet in (Alphabet(), Alphabet.of_texts([text, "ab"])):
        ids = alphabet.encode([text])[0].tolist()
        assert alphabet.decode(ids) == text
        assert all(0 < one < alphabet.vocab_size for one in ids)
        assert sum(alphabet.token_bytes[one] for one in ids) == len(text.encode())
        again = Alphabet.from_plain(alphabet.as_plain())
        assert again.encode([text])[0].tolist() == ids


def test_what_training_lacked_is_one_unknown_character() -> None:
    alphabet = Alphabet.of_texts(["abc"])
    assert alphabet.encode(["aéz\0"])[0].tolist() == [2, 1, 1, 1]
    assert alphabet.decode([0, 2, 1, 4]) == "a\ufffdc"
    assert alphabet.token_bytes == [0, 0, 1, 1, 1]


def test_bytes_of_half_a_character_can_be_shown() -> None:
    ids = Alphabet().encode(["é<"])[0].tolist()
    assert Alphabet().pieces(ids) == ["\\xc3", "\\xa9", "<"]
    assert Alphabet().decode(ids[:1]) == "\ufffd"


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"kind": "bytes", "characters": "a"},
        {"kind": "characters", "characters": None},
        {"kind": "characters", "characters": "ba"},
        {"kind": "characters", "characters": "aa"},
        {"kind": "words", "characters": "ab"},
    ],
)
def test_what_a_stranger_wrote(plain: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"alphabet|ascending"):
        Alphabet.from_plain(plain)
