"""`tokenizer.json` of a pretrained network, brought to assay's ids."""

from __future__ import annotations

import json
from typing import Any


def in_house(text: str | bytes, padding: int) -> dict[str, Any]:
    """The tokenizer as plain data, in which padding has the id 0.

    Args:
        text: Of tokenizer.json.
        padding: The id that fills up a text in there; it changes places with 0.

    Raises:
        ValueError: It is something else, or has no vocabulary of tokens and ids.
    """
    plain = json.loads(text)
    try:
        return _renumbered(plain, padding)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError("it is not a tokenizer with a vocabulary of tokens and ids") from error


def _renumbered(plain: dict[str, Any], padding: int) -> dict[str, Any]:
    model, added = plain["model"], plain.get("added_tokens") or []
    vocabulary = model["vocab"]
    if not {0, padding} <= {*vocabulary.values(), *(one["id"] for one in added)}:
        raise ValueError(f"its vocabulary has no token with the id {padding}, which pads texts")
    swapped = {0: padding, padding: 0}
    model |= {"vocab": {token: swapped.get(at, at) for token, at in vocabulary.items()}}
    model |= {"dropout": None} if model["type"] == "BPE" else {}  # it would draw other tokens each time
    for one in added:
        one["id"] = swapped.get(one["id"], one["id"])
    post = plain.get("post_processor") or {}
    for step in post.get("processors", [post]):
        for name in ("sep", "cls"):
            if name in step:
                step[name] = [step[name][0], swapped.get(step[name][1], step[name][1])]
        for special in (step.get("special_tokens") or {}).values():
            special["ids"] = [swapped.get(one, one) for one in special["ids"]]
    return {**plain, "decoder": None, "padding": None, "truncation": None}
