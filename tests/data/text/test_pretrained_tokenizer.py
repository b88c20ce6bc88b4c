from __future__ import annotations

import json
from typing import Any

import pytest

from assay.data.tokenizer import in_house


def plain(**changes: Any) -> str:
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "a": 3}
    post = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "dropout": 0.5}
    added = [{"id": 1, "content": "<pad>"}]
    return json.dumps(
        {"model": model, "post_processor": post, "added_tokens": added, "padding": {}} | changes
    )


def test_padding_and_0_change_places_and_nothing_is_drawn() -> None:
    made = in_house(plain(), 1)
    assert made["model"]["vocab"] == {"<s>": 1, "<pad>": 0, "</s>": 2, "a": 3}
    assert (made["post_processor"]["cls"], made["post_processor"]["sep"]) == (["<s>", 1], ["</s>", 2])
    assert (made["added_tokens"][0]["id"], made["model"]["dropout"], made["padding"]) == (0, None, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "not a tokenizer"),
        ("{", "Expecting property name"),
        (plain(model={"type": "BPE"}), "not a tokenizer with a vocabulary"),
        (plain(model={"type": "Unigram", "vocab": []}), "not a tokenizer with a vocabulary"),
        (plain(added_tokens=[3]), "not a tokenizer"),
        (plain(model={"type": "BPE", "vocab": {"a": 0}}, added_tokens=[]), "no token with the id 1"),
    ],
)
def test_what_is_not_taken(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        in_house(text, 1)
