"""`tokenizer.json` of a network that somebody has trained, judged and brought to assay's ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST: Final = 1_000_000
_LONGEST_CHAIN: Final = 8
_PARTS: Final = {
    "normalizer": ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents"),
    "pre_tokenizer": ("BertPreTokenizer", "ByteLevel", "Whitespace", "WhitespaceSplit"),
    "post_processor": ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"),
    "model": ("BPE", "WordLevel", "WordPiece"),
}
"""What takes time in proportion to a text: no regular expressions or replacements of a stranger's."""
_CHAINS: Final = ("normalizers", "pretokenizers", "processors")


def in_house(text: str | bytes, padding: int) -> dict[str, Any]:
    """The tokenizer as plain data, in which padding has the id 0.

    Args:
        text: Of tokenizer.json, perhaps of a stranger's.
        padding: The id that fills up a text in there; it changes places with 0.

    Raises:
        ValueError: It is something else, or does what may take any time.
    """
    plain = json.loads(text)
    if not isinstance(plain, dict) or not isinstance(plain.get("model"), dict):
        raise ValueError("it is not a tokenizer")
    for part, kinds in _PARTS.items():
        for one in _steps(plain.get(part)):
            if one.get("type") not in kinds:
                told = f"its {part} {one.get('type')!r:.40} is not one that is taken"
                raise ValueError(f"{told} ({', '.join(kinds)})")
    model, added = plain["model"], plain.get("added_tokens") or []
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise ValueError("it has no vocabulary")
    ids = [*vocabulary.values(), *(one.get("id") for one in added)]
    if not all(type(one) is int and 0 <= one < _MOST for one in ids) or not {0, padding} <= {*ids}:
        raise ValueError(
            f"its vocabulary has no token with the id {padding}, which pads texts, or strange ids"
        )
    swapped = {0: padding, padding: 0}
    model |= {"vocab": {token: swapped.get(at, at) for token, at in vocabulary.items()}}
    model |= {"dropout": None} if model["type"] == "BPE" else {}  # it would draw other tokens each time
    for one in added:
        one["id"] = swapped.get(one["id"], one["id"])
    for step in _steps(plain.get("post_processor")):
        for name in ("sep", "cls"):
            if name in step:
                step[name] = [step[name][0], swapped.get(step[name][1], step[name][1])]
        for special in (step.get("special_tokens") or {}).values():
            special["ids"] = [swapped.get(one, one) for one in special["ids"]]
    return {**plain, "decoder": None, "padding": None, "truncation": None}


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """A part, or the parts in it where it is a sequence."""
    if part is None:
        return
    if not isinstance(part, dict):
        raise ValueError("it is not a tokenizer")
    chain = next((part[name] for name in _CHAINS if part.get("type") == "Sequence" and name in part), [part])
    if (
        not isinstance(chain, list)
        or len(chain) > _LONGEST_CHAIN
        or not all(isinstance(x, dict) for x in chain)
    ):
        raise ValueError("a sequence in it is not one that is taken")
    yield from chain
