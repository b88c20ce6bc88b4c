"""Escape untrusted text before it is printed to a terminal or Markdown."""

from __future__ import annotations

import errno
import html
import logging
import os
import re
import sys
import textwrap
import traceback
from typing import IO, TYPE_CHECKING, Any, Literal, final

import rich.console
import rich.table
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from types import TracebackType

    from rich.console import ConsoleOptions, RenderableType


# C0 but for tab and line feed, DEL, C1 (8-bit CSI and OSC), what reverses the order of letters, and halves
# of letters (lone surrogates), which no encoding can write.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def printable(text: str) -> str:
    r"""Write control characters as they are written in Python."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def single_line(text: str) -> str:
    r"""Text for a cell of a table, or the middle of a line: printable, and without line feeds.

    >>> print(single_line("name\nbest  another"))
    name\nbest  another
    """
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def shorten(text: str, most: int = 80) -> str:
    """At most so many characters of a text, in a line."""
    text = single_line(text)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…"


def leave_terminal() -> bool:
    """Send what is printed nowhere, where it went to a terminal that is gone: a write there is an error."""
    import termios

    left = False
    empty = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        try:
            termios.tcgetattr(standard)
        except (
            termios.error
        ) as error:  # a file or a pipe is not a terminal; a closed one answers otherwise
            if error.args[0] == errno.EIO:
                os.dup2(empty, standard)
                left = True
    os.close(empty)
    return left


class _Lasting:
    """A standard stream that can be written to although its terminal is gone."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            # The signal that tells of it may come later than the first write that fails.
            if error.errno != errno.EIO or not leave_terminal():
                raise


@final
class Console(rich.console.Console):
    """Rich's console, through which no control sequence in printed text reaches the screen."""

    @property
    def file(self) -> Any:
        """The stream that is written to."""
        stream = super().file
        # one that was given is the giver's
        if self._file is None:
            return _Lasting(stream)
        return stream

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render to segments; what is text in them is printable."""
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def print_rows(
    console: Console,
    rows: Sequence[Sequence[str]],
    styles: Sequence[str] = ("", "cyan", "dim", "dim"),
) -> None:
    """Print aligned columns, one line per row whatever the width: for grep."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text(" ")
        for cell, width, style in zip(row, widths, styles, strict=False):
            line.append(f" {cell:<{width}} ", style=style)
        line.rstrip()
        console.print(line)


def make_table(head: Iterable[str], numeric: Collection[str] = ()) -> rich.table.Table:
    """An empty table without lines, in which numbers stand at the right."""
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in head:
        justify: Literal["left", "right"] = "left"
        if name in numeric:
            justify = "right"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in numeric)
    return table


_COMMAND = re.compile(r"(^|[:&] )assay ")
"""In a line that is to be copied, which is not broken."""
NO_BREAK = "\u00a0"
"""A space at which no line is broken."""


def print_lines(
    console: rich.console.Console,
    lines: Iterable[tuple[str, str]],
    width: int = 6,
    style: str = "bold",
) -> None:
    """Print a line for each pair of label and text, in a terminal broken between words."""
    for label, text in lines:
        head = f"{label:<{width}} "
        parts = [text.replace("\n", " ")]
        if console.is_terminal and not _COMMAND.search(text):
            room = max(20, console.width - len(head))
            parts = textwrap.wrap(
                parts[0], room, break_long_words=False, break_on_hyphens=False
            ) or [""]
        for number, part in enumerate(parts):
            start = (head, style) if not number else " " * len(head)
            line = Text.assemble(start, part.replace(NO_BREAK, " "))
            console.print(line, soft_wrap=True, highlight=False)


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def make_printable() -> None:
    """Have warnings and tracebacks of this process printed as text, too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
    sys.excepthook = _print_exception


def _print_exception(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, where))))


# Marks of any place, a mathematical formula's among them; and those that begin a list.
_MARKS = re.compile(r"([\\`*_\[\]|~#^$]|^[+-])")


def escape_markdown(text: object) -> str:
    r"""Text that Markdown shows letter by letter, in one line."""
    line = printable(" ".join(str(text).split()))
    return html.escape(_MARKS.sub(r"\\\1", line), quote=False)
