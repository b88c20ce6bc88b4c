from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data.tokenizer import KINDS, PAD, UNKNOWN, Tokenizer

TEXTS = [
    "The quick brown fox, it's [PAD] jumps",
    "over the lazy dog's <b>[UNK]</b> ﬁne",
    "Zürich 中文 fox",
] * 3
TRAINED = {
    (kind, lowercase): Tokenizer.train(TEXTS, kind=kind, vocab_size=300, lowercase=lowercase)
    for kind in KINDS
    for lowercase in (False, True)
}


@pytest.mark.parametrize("tokenizer", TRAINED.values(), ids=map(str, TRAINED))
@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text() | st.sampled_from(["[PAD]", "[UNK] [PAD]", "x\ud800y"]), max_size=4))
def test_no_text_has_the_id_of_padding_or_one_out_of_the_vocabulary(
    tokenizer: Tokenizer, texts: list[str]
) -> None:
    for ids in tokenizer.encode([*TEXTS, *texts]):
        assert all(PAD < one < tokenizer.vocab_size for one in ids)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_byte_pairs_give_back_each_text_and_know_every_sign(text: str) -> None:
    tokenizer = TRAINED["bpe", False]
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode(ids) == text
    assert UNKNOWN not in ids


@pytest.mark.parametrize("key", TRAINED, ids=str)
def test_what_is_kept_is_the_library_s_own_file_and_gives_the_same_ids(key: Any) -> None:
    from tokenizers import Tokenizer as Library

    tokenizer, kept = TRAINED[key], TRAINED[key].to_json()
    assert Tokenizer.from_json(kept).encode(TEXTS) == tokenizer.encode(TEXTS)
    library = Library.from_str(kept)
    assert [found.ids for found in library.encode_batch(TEXTS)] == tokenizer.encode(TEXTS)
    assert Tokenizer.from_json(kept).to_json() == kept


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_tokenizer(kind: Any) -> None:
    texts = [json.__doc__ or "", *TEXTS]
    made = [Tokenizer.train(texts, kind=kind, vocab_size=320).to_json() for _ in range(2)]
    assert made[0] == made[1]


def test_words_that_training_lacks_are_unknown_and_capitals_may_be_folded() -> None:
    words = TRAINED["word", True]
    assert words.encode(["QUICK cat"])[0] == [words.encode(["quick"])[0][0], UNKNOWN]
    assert TRAINED["word", False].encode(["QUICK"]) == [[UNKNOWN]]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "char"}, "tokenizer='char': one of bpe, word"),
        ({"kind": "bpe", "vocab_size": 257}, "vocab_size=257: 258"),
        ({"kind": "word", "vocab_size": 2}, "vocab_size=2: 3"),
        ({"kind": "word", "vocab_size": 10**7}, "1,000,000"),
    ],
)
def test_an_argument_out_of_its_range_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Tokenizer.train(TEXTS, **options)


@pytest.mark.parametrize("part", ["vocab", "merges"])
def test_a_stranger_s_tokenizer_reads_no_file(part: str) -> None:
    plain = json.loads(TRAINED["bpe", True].to_json())
    plain["model"][part] = "/etc/passwd"
    with pytest.raises(ValueError, match="it is not a tokenizer"):
        Tokenizer.from_json(json.dumps(plain))


@pytest.mark.parametrize("text", ["[]", "null", "1", '{"model": 3}', "{}"])
def test_another_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a tokenizer"):
        Tokenizer.from_json(text)


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\\")))
def test_a_token_is_shown_as_its_bytes_those_of_a_part_of_a_character_by_number(text: str) -> None:
    tokenizer = TRAINED["bpe", False]
    (ids,) = tokenizer.encode([text + "└"])
    shown = "".join(tokenizer.pieces(ids))
    numbers = re.sub(rb"\\x(..)", lambda found: bytes([int(found[1], 16)]), shown.encode())
    assert numbers.decode() == text + "└"
    assert shown.endswith(r"\xe2\x94\x94")
