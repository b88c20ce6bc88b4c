"""Secrets never reach a run directory."""

from __future__ import annotations

import os
import re

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
_SHORTEST = 6
"""A shorter value would be struck out of ordinary text by chance."""


def redact(text: str) -> str:
    """Strike out credentials in addresses, and the values of environment variables whose names say that they are secret.

    Args:
        text: Anything about to be written.

    >>> redact("https://me:hunter2@example.org/x.git")
    'https://***@example.org/x.git'
    """
    text = _URL_CREDENTIALS.sub("***@", text)
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST:
            text = text.replace(value, "***")
    return text
