"""Secrets never reach a run directory."""

from __future__ import annotations

import json
import os
import re
from urllib.parse import quote

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|(^|_)KEY(_|$)|[^_]KEY$", re.IGNORECASE)
_URL_CREDENTIALS = re.compile(r"""(?<=://)[^/\s@"']+@""")
_SHORTEST = 6
"""A shorter value would be struck out of ordinary text by chance."""
_SHORTEST_LINE = 16
"""A line of a value of several lines, such as a private key; its last one may be a few letters."""
_STRUCK = "***"
_BARE_STRUCK_SCALAR = re.compile(r"^(?P<before>\s*(?:- +)*(?:(?:'[^']*'|\"[^\"]*\"|[^\s:'\"#][^:]*): +)?)(?P<scalar>\*\*\*.*)$")


def redact(text: str) -> str:
    """Strike out credentials in addresses, and the values of environment variables whose names say that they are secret.

    Args:
        text: Anything about to be written.

    >>> redact("https://me:hunter2@example.org/x.git")
    'https://***@example.org/x.git'
    """
    return redact_values(_URL_CREDENTIALS.sub(f"{_STRUCK}@", text))


def redact_values(text: str) -> str:
    """Strike out the values of secret environment variables alone.

    For source code: an address in it is there for all to read, and a patch with a changed line around a change does not apply.

    Args:
        text: Anything about to be written.
    """
    for value in _values():
        text = text.replace(value, _STRUCK)
    return text


def redact_yaml(text: str) -> str:
    """As `redact`, and what was YAML still is: a bare `***` would be read as a reference.

    Args:
        text: YAML in block style.
    """
    redacted = redact(text)
    if redacted == text:
        return text
    lines = (_BARE_STRUCK_SCALAR.sub(_quoted, line) for line in redacted.splitlines())
    return "\n".join(lines) + "\n" * redacted.endswith("\n")


def _quoted(match: re.Match[str]) -> str:
    scalar = match["scalar"].replace("'", "''")
    return f"{match['before']}'{scalar}'"


def _values() -> list[str]:
    """What to strike out, also as it stands in JSON and in an address; longer ones first, since one may lie in another."""
    found = set()
    for name, value in os.environ.items():
        if not _SECRET_NAME.search(name):
            continue
        value = value.strip()
        if len(value) >= _SHORTEST:
            found |= {value, json.dumps(value)[1:-1], quote(value, safe="")}
        lines = value.splitlines()
        if len(lines) > 1:
            found |= {line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE}
    return sorted(found, key=lambda value: (-len(value), value))
