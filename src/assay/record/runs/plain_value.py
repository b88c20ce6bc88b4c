"""What a value that was typed stands for: a number, true, false, nothing, or text."""

from __future__ import annotations

from typing import Any, Final

_WORDS: Final = {"true": True, "false": False, "null": None}


def plain_value(value: Any) -> Any:
    """Text as what it reads as; a list as text, so that it can be compared and be a key.

    Args:
        value: Text, or a value of a config.

    >>> plain_value("1e-3"), plain_value("7"), plain_value("True"), plain_value("adam"), plain_value([1, 2])
    (0.001, 7, True, 'adam', '[1,2]')
    """
    if not isinstance(value, str):
        return value if value is None or isinstance(value, bool | int | float) else shown(value)
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    try:
        # `1_000` is text to Hydra, and a number to Python.
        return value if "_" in value else int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return value


def shown(value: Any) -> str:
    """A value as it is typed.

    >>> shown([32, "a"]), shown({"p": 0.5}), shown(True), shown(None), shown(1e-05)
    ('[32,a]', '{p:0.5}', 'true', 'null', '1e-05')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{shown(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(shown, value)) + "]"
    return str(value)
