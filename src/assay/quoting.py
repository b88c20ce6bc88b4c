"""Numbers in words, and text such that Hydra's grammar, a shell and a spreadsheet take it as it is."""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@%+-]*( [A-Za-z0-9_./@%+-]+)*")
_DOTTED_PATH = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
_FUNCTION = re.compile(r"[a-z_]+\(")
_WORDS = {"true", "false", "null", "nan", "inf"}
"""Plain text that Hydra takes for something else."""


def is_dotted_path(text: str) -> bool:
    """Whether a text is a plain dotted name, as a target and a task of one's own are named.

    >>> is_dotted_path("torch.nn.Linear"), is_dotted_path("binary"), is_dotted_path("a..b")
    (True, False, False)
    """
    return _DOTTED_PATH.fullmatch(text) is not None


def reads_as_number(text: str) -> bool:
    """Whether text reads as a number.

    >>> reads_as_number("1e-3"), reads_as_number("-inf"), reads_as_number("adam")
    (True, True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def pluralize(number: int, thing: str, things: str = "") -> str:
    """A number of things, in words."""
    if number != 1:
        thing = things or f"{thing}s"
    return f"{number:,} {thing}"


def join_first(things: Sequence[Any], most: int = 5) -> str:
    """The first of many, and how many more there are.

    >>> join_first(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(map(str, things[:most]))
    if len(things) > most:
        return f"{shown} and {len(things) - most} more"
    return shown


def format_number(value: float, digits: int = 4) -> str:
    """A number as people write it: all digits before the point, and after it as many as are significant."""
    if not math.isfinite(value) or not 1e-4 <= abs(value) < 1e15:
        return f"{value + 0.0:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    if decimals:
        return text.rstrip("0").rstrip(".")
    return text


def format_duration(seconds: float) -> str:
    """A length of time, roughly."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def format_override(key: str, value: str | Sequence[str]) -> str:
    """An override, as it is typed in a shell."""
    if isinstance(value, str):
        return shlex.quote(f"{key}={_format_value(value)}")
    return shlex.quote(f"{key}=[{','.join(map(_format_value, value))}]")


def command(*words: object, config_dir: str | Path | None = None) -> str:
    """What to type next: a verb and its words, with the folder of config groups that they were typed with.

    >>> command("train", "-m", "notes=a b", "seed=1,2", config_dir="my conf")
    "assay train --config-dir 'my conf' -m 'notes=a b' seed=1,2"
    """
    verb, *others = map(str, words)
    if config_dir:
        options = ["--config-dir", str(config_dir)]
    else:
        options = []
    return shlex.join(["assay", verb, *options, *others])


def repeat_command(
    overrides: Iterable[str], *more: str, config_dir: str | Path | None = None
) -> str:
    """What to type to train the same once a value of others: without a seed and a folder of its own."""
    kept = [word for word in overrides if not word.lstrip("+").startswith(("seed=", "hydra."))]
    return command("train", "-m", *kept, *more, config_dir=config_dir)


def _format_value(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return quote_text(text)


def quote_letters(override: str) -> str:
    """An override with quotes around what Hydra's grammar takes in quotes alone: letters beyond ASCII.

    >>> print(quote_letters("data.source.path=häuser.csv"), quote_letters("target=[Größe in m²,age]"))
    data.source.path="häuser.csv" target=["Größe in m²",age]
    """
    key, equals, value = override.partition("=")
    if value.isascii() or any(mark in value for mark in "'\"$"):
        return override
    between = ",[]"
    if "{" in value:
        between = ",[]{}:"
    elif _FUNCTION.match(value):
        between = ",[]()"
    words = re.split(f"([{re.escape(between)}])", value)
    return (
        key
        + equals
        + "".join(word if word.isascii() else quote_text(word.strip()) for word in words)
    )


def quote_text(text: str) -> str:
    r"""Text as Hydra's grammar takes any text: in quotes, nothing in it interpolated.

    >>> print(quote_text(r"C:\my ${x}"), quote_text('"'))
    "C:\my \${x}" '"'
    """
    # the shell's own are single ones
    mark = '"'
    if '"' in text:
        mark = "'"
    text = re.sub(r"(\\*)\$\{", lambda found: f"{found[1] * 2}\\${{", text)
    text = re.sub(rf"(\\*){mark}", lambda found: f"{found[1] * 2}\\{mark}", text)
    text = re.sub(r"(\\+)\Z", lambda found: found[1] * 2, text)
    return f"{mark}{text}{mark}"


def to_utf8(text: str) -> str:
    r"""Text that can be written to a file: of a name that is not UTF-8, the odd bytes are escaped.

    >>> print(to_utf8("caf\udce9.png"))
    caf\udce9.png
    """
    return text.encode("utf-8", "backslashreplace").decode()
