"""A page as values: sections of blocks, each with a template of its own."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.figure.figure import Figure

Tone: TypeAlias = Literal["", "good", "bad", "warn", "dim", "best"]
"""How a text stands out; empty: not at all."""


@final
@dataclass(frozen=True)
class Cell:
    """One field of a table.

    Attributes:
        text: What is shown.
        sort: By what rows are sorted; None: by the text.
        tone: How it stands out.
        href: A relative address, quoted by `urllib.parse.quote`; empty: no link.
        title: What is said when the pointer is over it.
    """

    text: str
    sort: float | None = None
    tone: Tone = ""
    href: str = ""
    title: str = ""


@final
@dataclass(frozen=True)
class Table:
    """Rows that are sorted by a click on a column, and filtered by what is typed.

    Attributes:
        columns: Their names.
        rows: One field per column each; plain texts are cells of their own.
        caption: Below it.
        numeric: Columns whose fields stand to the right.
        filtered: Whether there is a field to filter by; for long tables.
        wraps: Whether long fields are broken, so that all columns are seen at once; else one scrolls.
        title: Above it.
    """

    template: ClassVar[str] = "table.html"
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    caption: str = ""
    numeric: frozenset[str] = frozenset()
    filtered: bool = False
    wraps: bool = False
    title: str = ""

    @property
    def cells(self) -> Iterator[list[Cell]]:
        """Rows whose fields are all cells."""
        for row in self.rows:
            yield [value if isinstance(value, Cell) else Cell(value) for value in row]


@final
@dataclass(frozen=True)
class Facts:
    """Names and values in two columns.

    Attributes:
        rows: Name and value of each.
    """

    template: ClassVar[str] = "facts.html"
    rows: Sequence[tuple[str, Cell | str]]

    @property
    def cells(self) -> Iterator[tuple[str, Cell]]:
        """Rows whose values are all cells."""
        for name, value in self.rows:
            yield name, value if isinstance(value, Cell) else Cell(value)


@final
@dataclass(frozen=True)
class Cards:
    """Large numbers side by side.

    Attributes:
        cards: Name, value, and what stands below it, of each.
        caption: Below them all.
    """

    template: ClassVar[str] = "cards.html"
    cards: Sequence[tuple[str, str, str]]
    caption: str = ""


@final
@dataclass(frozen=True)
class Figures:
    """Figures in a grid.

    Attributes:
        figures: To draw; long ones are thinned out, which their caption says.
    """

    template: ClassVar[str] = "figures.html"
    figures: Sequence[Figure]


@final
@dataclass(frozen=True)
class Picture:
    """A sample with what was said of it.

    Attributes:
        png: Of the picture.
        said: What the model said, and what was right.
        key: Which sample.
        tone: `good` where it was right, `bad` where it was not.
    """

    png: bytes
    said: str
    key: str
    tone: Tone = ""

    @property
    def source(self) -> str:
        """As an address that holds the picture itself."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@final
@dataclass(frozen=True)
class Pictures:
    """Samples in a grid.

    Attributes:
        title: Above them.
        pictures: In their order.
        caption: Below them.
        are_wide: Whether each shows several pictures side by side.
    """

    template: ClassVar[str] = "pictures.html"
    title: str
    pictures: Sequence[Picture]
    caption: str = ""
    are_wide: bool = False


@final
@dataclass(frozen=True)
class Code:
    """Text to copy or a log, in a fixed font.

    Attributes:
        text: As it is.
        title: Above it.
        folded: Whether it is shown only when asked for.
    """

    template: ClassVar[str] = "code.html"
    text: str
    title: str = ""
    folded: bool = False


@final
@dataclass(frozen=True)
class Note:
    """A marked box: why something is not here, or what to beware of.

    Attributes:
        text: One or two sentences.
        tone: How it stands out.
    """

    template: ClassVar[str] = "note.html"
    text: str
    tone: Tone = ""


@final
@dataclass(frozen=True)
class Passage:
    """A text with each token marked by how surprising it is.

    Attributes:
        said: What the model said of all of it.
        key: Which sample.
        tokens: Text, strength from 0 to 9, and a title, of each.
    """

    said: str
    key: str
    tokens: Sequence[tuple[str, int, str]]


@final
@dataclass(frozen=True)
class Passages:
    """Passages one below the other.

    Attributes:
        title: Above them.
        passages: In their order.
        caption: Below them.
    """

    template: ClassVar[str] = "passages.html"
    title: str
    passages: Sequence[Passage]
    caption: str = ""


Block: TypeAlias = Table | Facts | Cards | Figures | Pictures | Passages | Code | Note


@final
@dataclass(frozen=True)
class Section:
    """A part of a page that the navigation leads to.

    Attributes:
        name: Its anchor.
        title: Its heading.
        blocks: In their order; without any the section is left out.
        intro: A sentence below the heading.
    """

    name: str
    title: str
    blocks: Sequence[Block]
    intro: str = ""


@final
@dataclass(frozen=True)
class Page:
    """All of a page.

    Attributes:
        kind: What it is a report of, such as `run` or `sweep`.
        title: Of whom.
        sections: In their order.
        status: A word for the heading, with its tone.
        facts: Short texts below the title.
        made: When; of now unless given.
    """

    kind: str
    title: str
    sections: Sequence[Section]
    status: tuple[str, Tone] = ("", "")
    facts: Sequence[str] = ()
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def figures(self) -> list[Figure]:
        """Every figure that is on it, in full."""
        blocks = (block for section in self.sections for block in section.blocks)
        return [figure for block in blocks if isinstance(block, Figures) for figure in block.figures]
