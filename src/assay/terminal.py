"""What is printed: names, descriptions and messages of others reach a terminal as text, never as commands."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from typing import TYPE_CHECKING, final

import rich.console
from rich.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from rich.console import ConsoleOptions, RenderableType

# C0 but for tab and line feed, DEL, C1 (8-bit CSI and OSC), and what reverses the order of letters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    r"""Write control characters as they are written in Python.

    Args:
        text: Anything on its way to a terminal or a log.

    >>> print(printable("loss\x1b]0;owned\x07 is nan"))
    loss\x1b]0;owned\x07 is nan
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


@final
class Console(rich.console.Console):
    """Rich's console, through which no control sequence of somebody else's reaches the screen."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render to segments; what is text in them is printable.

        Args:
            renderable: As for Rich.
            options: As for Rich.
        """
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def make_printable() -> None:
    """Have warnings and tracebacks of this process printed as text, too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
    sys.excepthook = _print_exception


def _print_exception(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, where))))
