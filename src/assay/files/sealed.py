"""Text files that end with their own SHA-256: a flipped bit or a missing end is noticed.

A sum within the file, not beside it: one file can be replaced at one instant, two cannot.
"""

from __future__ import annotations

import hashlib

_YAML = ("# sha256: ", "\n")
_JSON = ('  "sha256": "', '"\n}\n')
_DIGITS = 64


def seal_yaml(text: str) -> str:
    """Add the sum as a last line, a comment.

    >>> print(seal_yaml("a: 1"), end="")
    a: 1
    # sha256: 37b128c59f1f5097f73f82691cb519f1f568667faab5ced1b4ab979d36837eae
    """
    return _seal(text if text.endswith("\n") else text + "\n", *_YAML)


def seal_json(text: str) -> str:
    """Add the sum as the last field, `sha256`, of everything before it.

    Args:
        text: A JSON object that is not empty, indented by two spaces.
    """
    return _seal(text.rstrip().removesuffix("\n}") + ",\n", *_JSON)


def yaml_is_whole(data: bytes) -> bool | None:
    """Whether a YAML file is as it was sealed; None when it has no seal.

    Args:
        data: All of the file.
    """
    return _is_whole(data, *_YAML) if _YAML[0].encode() in data else None


def json_is_whole(data: bytes) -> bool:
    """Whether a JSON file is as it was sealed.

    Args:
        data: All of the file.
    """
    return _is_whole(data, *_JSON)


def _seal(text: str, before: str, after: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{text}{before}{digest}{after}"


def _is_whole(data: bytes, before: str, after: str) -> bool:
    length = len(before) + _DIGITS + len(after)
    text, end = data[:-length], data[-length:]
    return end == f"{before}{hashlib.sha256(text).hexdigest()}{after}".encode()
