"""Secrets never reach a run directory."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|(^|_)KEY(_|$)|[^_]KEY$", re.IGNORECASE
)
_URL_CREDENTIALS = re.compile(r"""(?<=://)[^/\s@"']+@""")
_SHORTEST = 6
"""A shorter value would be struck out of ordinary text by chance."""
_SHORTEST_LINE = 16
"""A line of a value of several lines, such as a private key; its last one may be a few letters."""
_STRUCK = "***"
_BARE_KEY = re.compile(r"^(?P<before>\s*(?:- +)*)(?P<scalar>\*\*\*.*?)(?=:(?:\s|$))")
_YAML_KEY = r"""(?:'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|[^\s:'"#].*?)"""
_BARE_SCALAR = re.compile(rf"^(?P<before>\s*(?:- +)*(?:{_YAML_KEY}: +)?)(?P<scalar>\*\*\*.*)$")
_SPACE = r"\\?\s+\\?\s*"
"""Where YAML may have broken a line."""


def is_secret(name: str) -> bool:
    """Whether an environment variable's name says that its value is secret.

    Args:
        name: Such as `WANDB_API_KEY`.
    """
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """Strike out credentials in addresses, and the values of environment variables that `is_secret` names.

    Args:
        text: Anything about to be written.

    >>> redact("https://me:hunter2@example.org/x.git")
    'https://***@example.org/x.git'
    """
    return _redacted(text, _values(tuple(os.environ.items())))


def redact_values(text: str) -> str:
    """Strike out the values of secret environment variables alone.

    For source code: an address in it is there for all to read, and a patch does not apply when the lines
    around a change are not as they were.

    Args:
        text: Anything about to be written.
    """
    return _struck(text, _values(tuple(os.environ.items())))


def _redacted(text: str, values: Sequence[str]) -> str:
    # Most texts are no address; the search for one costs more than the rest of the function.
    return _struck(_URL_CREDENTIALS.sub(f"{_STRUCK}@", text) if "://" in text else text, values)


def _struck(text: str, values: Sequence[str]) -> str:
    for value in values:
        words = value.split()
        if len(words) > 1:
            text = re.sub(_SPACE.join(map(re.escape, words)), _STRUCK, text)
        else:
            text = text.replace(value, _STRUCK)
    return text


def redact_tree(value: Any) -> Any:
    """A copy of nested dicts and lists with every string as `redact` leaves it; what else they hold is kept.

    Args:
        value: Such as a config on its way to a logger.

    >>> redact_tree({"uri": ["postgresql://me:hunter2@db/x"], "lr": 0.1})
    {'uri': ['postgresql://***@db/x'], 'lr': 0.1}
    """
    return _redacted_tree(value, _values(tuple(os.environ.items())))


def _redacted_tree(value: Any, values: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _redacted(value, values)
    if isinstance(value, dict):
        return {_redacted_tree(key, values): _redacted_tree(one, values) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted_tree(one, values) for one in value]
    return value


def redact_yaml(text: str) -> str:
    """As `redact`, and what was YAML still is: a bare `***` would be read as a reference.

    Args:
        text: YAML in block style.
    """
    redacted = redact(text)
    if redacted == text:
        return text
    return "\n".join(_BARE_SCALAR.sub(_quoted, _BARE_KEY.sub(_quoted, line)) for line in redacted.split("\n"))


def _quoted(match: re.Match[str]) -> str:
    scalar = match["scalar"].replace("'", "''")
    return f"{match['before']}'{scalar}'"


@functools.lru_cache(maxsize=2)
def _values(environment: tuple[tuple[str, str], ...]) -> list[str]:
    """What to strike out, also as it stands in JSON and addresses; longer first, as they may hold others."""
    found = set()
    for value in {content.strip() for name, content in environment if is_secret(name)}:
        if len(value) >= _SHORTEST:
            found |= {value, json.dumps(value)[1:-1], quote(value, safe=""), value.replace("'", "''")}
        lines = value.splitlines()
        if len(lines) > 1:
            found |= {line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE}
    return sorted(found, key=lambda value: (-len(value), value))
