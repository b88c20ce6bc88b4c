"""Secrets never reach a run directory; what is needed to run again always does."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

STRUCK = "***"
"""What stands in the place of a secret."""

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|PASS|PAT|AUTH|DSN|WEBHOOK)(_|$)|[^_]TOKEN$|_PWD$|WEBHOOK"
    r"|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|(ACCESS|PRIVATE|SIGNING|DEPLOY)_KEY",
    re.IGNORECASE,
)
_PERHAPS_SECRET_NAME = re.compile(r"(^|_)KEY(_|$)|[^_]KEY$", re.IGNORECASE)
"""`AZURE_KEY` is a secret, `CACHE_KEY` is not: here the value tells."""
_SECRET_KEY = re.compile(
    r"(.*_)?(api_?key|access_?key|secret(_?key)?|private_?key|password|passwd|passphrase|credentials?"
    r"|webhook(_url)?)|((auth|access|api|bearer|hf|github|id|refresh|personal)_)?token",
    re.IGNORECASE,
)
"""Names of config keys that hold a secret; `pad_token` and `sort_key` do not."""
_OVERRIDE = re.compile(r"(?P<key>[+~]*[\w.@/]+)=(?P<value>.+)", re.DOTALL)
_URL_CREDENTIALS = re.compile(r"""(?<=://)[^/\s@"']+@""")
_SHORTEST = 6
"""A shorter value would be struck out of ordinary text by chance."""
_SHORTEST_LINE = 16
"""A line of a value of several lines, such as a private key; its last one may be a few letters."""
_RANDOM = re.compile(r"(?=[^\W_]*\d)(?=[^\W_]*[^\W\d_])[^\W_]{12,}|[^\W_]{24,}")
"""Letters and digits in one long piece: no word, name, path or number that a config has by chance."""
_KNOWN = re.compile(
    r"\b(gh[pousr]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|hf_[A-Za-z]{30,}|sk-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35})\b"
)
"""Tokens that say themselves what they are: GitHub's, GitLab's, Hugging Face's, OpenAI's, Slack's, AWS's,
Google's."""
_PRIVATE_KEY = re.compile(
    r"(?<=PRIVATE KEY-----\n)(?:[+ ]?[A-Za-z0-9+/=:,. -]+\n)+?(?=[+ ]?-----END )"
)
_SPACE = r"\\?\s+\\?\s*"
"""Where YAML may have broken a line."""

_given: set[str] = set()
"""Values that stood under a secret's key in a config of this process."""


class _Values(NamedTuple):
    random: tuple[str, ...]
    """Struck out wherever they stand, also within words."""
    others: tuple[str, ...]
    """Struck out where they stand as a word of their own; in a config, where they are a whole value."""


def is_secret(name: str) -> bool:
    """Whether an environment variable's name says that its value is, or may be, secret."""
    return bool(_SECRET_NAME.search(name) or _PERHAPS_SECRET_NAME.search(name))


def is_secret_key(key: str) -> bool:
    """Whether a config key's name says that its value is secret.

    >>> [key for key in ("api_key", "db.password", "pad_token", "monitor_key") if is_secret_key(key)]
    ['api_key', 'db.password']
    """
    return _SECRET_KEY.fullmatch(key.rpartition(".")[2]) is not None


def redact(text: str, *, code: bool = False) -> str:
    """Strike out the values of environment variables that `is_secret` names, and credentials in addresses."""
    if not code:
        text = _without_credentials(text)
    text = _without_random(text, _values())
    for value in _values().others:
        if code and not re.search(r"\d", value):
            continue  # a word that code may hold by chance
        text = re.sub(rf"(?<!\w){_pattern(value)}(?!\w)", STRUCK, text)
    return text


def _without_random(text: str, values: _Values) -> str:
    """Strike out what cannot stand in a text by chance: random values, tokens of services, private keys."""
    text = _KNOWN.sub(STRUCK, text)
    if "PRIVATE KEY-----" in text:  # line by line: a patch counts its lines
        text = _PRIVATE_KEY.sub(
            lambda match: re.sub(r"(?m)^([+ ]?).+$", rf"\1{STRUCK}", match[0]), text
        )
    for value in values.random:
        if len(value.split()) > 1:
            text = re.sub(_pattern(value), STRUCK, text)
        else:
            text = text.replace(value, STRUCK)
    return text


def redact_tree(value: Any) -> Any:
    """A copy of nested dicts and lists without secrets; what else they hold is kept."""
    remember_secrets(value)
    return _redact_tree(value, _values())


def holds_secret(text: str) -> bool:
    """Whether a name or path holds a secret that cannot stand there by chance."""
    overrides = re.findall(r"([\w.@]+)=[^,/]", text)  # as in Hydra's override_dirname
    return _without_random(text, _values()) != text or any(map(is_secret_key, overrides))


def remember_secrets(value: Any, key: str = "") -> None:
    """Remember what stands under a secret's key, for the lines of the log that are written later."""
    if isinstance(value, dict):
        for name, inner in value.items():
            remember_secrets(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            remember_secrets(inner, key)
    elif stated := _find_secret(value, key):
        _given.add(stated[1])


def _redact_tree(value: Any, values: _Values, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _redact_tree(inner, values, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_tree(inner, values, key) for inner in value]
    if stated := _find_secret(value, key):
        return stated[0] + STRUCK
    if not isinstance(value, str) or key == "_target_":
        return value
    if _OVERRIDE.fullmatch(value):
        before, equals, after = value.partition("=")
    else:
        before, equals, after = ("", "", value)
    if after in values.others:
        return before + equals + STRUCK
    return _without_random(_without_credentials(value), values)


def _find_secret(value: Any, key: str) -> tuple[str, str] | None:
    """The secret that stands under a secret's key or in an override of one, after what stands before it."""
    if isinstance(value, int) and len(str(value)) >= _SHORTEST:
        text = str(value)
    else:
        text = value
    if not isinstance(text, str) or text in ("", STRUCK) or "${" in text:
        return None
    if is_secret_key(key):
        return "", text
    override = _OVERRIDE.fullmatch(text)
    if override and is_secret_key(override["key"].lstrip("+~")):
        return f"{override['key']}=", override["value"].strip("'\"")
    return None


def _without_credentials(text: str) -> str:
    # Most texts are not an address; the search for one costs more than the rest.
    if "://" in text:
        return _URL_CREDENTIALS.sub(f"{STRUCK}@", text)
    return text


def _pattern(value: str) -> str:
    return _SPACE.join(map(re.escape, value.split()))


def _values() -> _Values:
    return _values_in(tuple(os.environ.items()), frozenset(_given))


@functools.lru_cache(maxsize=2)
def _values_in(environment: Sequence[tuple[str, str]], typed: frozenset[str]) -> _Values:
    """What to strike out, also as it stands in JSON and addresses; longer first, as they may hold others."""
    random = set()
    others = set()
    named = [(name, content.strip()) for name, content in environment if is_secret(name)]
    for name, value in [*named, *(("TOKEN", value) for value in typed)]:
        if len(value) < _SHORTEST or (os.path.isabs(value) and os.path.exists(value)):  # noqa: PTH110, PTH117 - text
            continue
        written = {
            value,
            json.dumps(value)[1:-1],
            quote(value, safe=""),
            value.replace("'", "''"),
        }
        lines = {line.strip() for line in value.splitlines()[1:]} | {
            value.partition("\n")[0].strip()
        }
        if _RANDOM.search(value) or re.search(r"[^\w.:/\-]", value):
            random |= written | {line for line in lines if len(line) >= _SHORTEST_LINE}
        elif _SECRET_NAME.search(name):
            others |= written
    return _Values(_longest_first(random), _longest_first(others - random))


def _longest_first(values: set[str]) -> tuple[str, ...]:
    return tuple(sorted(values, key=lambda value: (-len(value), value)))
