"""A page as values, sections of blocks, and the same as one HTML file that opens offline."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import io
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np

from assay.figure import Line, Points
from assay.files.atomic import write_text
from assay.quoting import format_number
from assay.terminal import printable
from assay_report.draw import to_plotly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import jinja2

    from assay.figure import Figure, Mark


Tone: TypeAlias = Literal["", "good", "bad", "warn", "dim", "best"]
"""How a text stands out; empty: not at all."""


@final
@dataclass(frozen=True)
class Cell:
    """One field of a table."""

    text: str
    sort: float | None = None
    tone: Tone = ""
    href: str = ""
    title: str = ""


@final
@dataclass(frozen=True)
class Table:
    """Rows that are sorted by a click on a column, and filtered by what is typed."""

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
class Cards:
    """Large numbers side by side."""

    cards: Sequence[tuple[str, str, str]]
    caption: str = ""


@final
@dataclass(frozen=True)
class Figures:
    """Figures in a grid."""

    figures: Sequence[Figure]


@final
@dataclass(frozen=True)
class Picture:
    """A sample with what was said of it; one without a picture has a row of named values."""

    png: bytes
    said: str
    key: str
    tone: Tone = ""
    row: Mapping[str, Any] | None = None

    @property
    def source(self) -> str:
        """As an address that holds the picture itself."""
        kind = "jpeg"
        if self.png.startswith(b"\x89PNG"):
            kind = "png"
        return f"data:image/{kind};base64,{base64.b64encode(self.png).decode()}"


_SMALL = 8_000
"""Bytes of a PNG file that a page shows as it is."""
_SIDE = (128, 128)
_STRIP = (400, 128)
"""Width and height of others at most: of a picture, and of three beside each other."""


def make_thumbnail(png: bytes, *, is_wide: bool = False) -> bytes:
    """A picture as a small JPEG file, unless it takes few bytes anyway."""
    if len(png) <= _SMALL:
        return png
    from PIL import Image

    file = io.BytesIO()
    with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
        small = image.convert("RGB")
    small.thumbnail(_STRIP if is_wide else _SIDE)
    small.save(file, "JPEG", quality=85, optimize=True)
    return file.getvalue()


@final
@dataclass(frozen=True)
class Pictures:
    """Samples in a grid."""

    title: str
    pictures: Sequence[Picture]
    caption: str = ""
    are_wide: bool = False


def _value_text(value: object) -> str:
    """A value of a row, cut where it is long."""
    text = str(value)
    if isinstance(value, float):
        text = format_number(value, 6)
    if value is None:
        return ""
    if len(text) <= 200:
        return text
    return f"{text[:200]}…"


def sample_blocks(
    title: str,
    said: str,
    samples: Sequence[Picture],
    caption: str = "",
    *,
    are_wide: bool = False,
) -> Blocks:
    """Samples as thumbnails, and those without a picture as rows of a table, with what is `said` of each."""
    pictures = [
        replace(sample, png=make_thumbnail(sample.png, is_wide=are_wide))
        for sample in samples
        if sample.png
    ]
    described = [(sample, sample.row) for sample in samples if sample.row and not sample.png]
    names = dict.fromkeys(name for _, row in described for name in row)
    rows: list[list[Cell | str]] = [
        [
            sample.key,
            Cell(sample.said, tone=sample.tone),
            *(_value_text(row.get(name)) for name in names),
        ]
        for sample, row in described
    ]
    blocks: Blocks = []
    if pictures:
        blocks.append(Pictures(title, pictures, caption, are_wide))
    if rows:
        blocks.append(Table(("sample", said, *names), rows, caption, title=title))
    return blocks


@final
@dataclass(frozen=True)
class Code:
    """Text to copy or a log, in a fixed font."""

    text: str
    title: str = ""
    folded: bool = False


@final
@dataclass(frozen=True)
class Note:
    """A marked box: why something is not here, or what to beware of."""

    text: str
    tone: Tone = ""


Block: TypeAlias = Table | Cards | Figures | Pictures | Code | Note
Blocks: TypeAlias = list[Block]


@final
@dataclass(frozen=True)
class Section:
    """A part of a page that the navigation leads to."""

    name: str
    title: str
    blocks: Sequence[Block]
    intro: str = ""


@final
@dataclass(frozen=True)
class Page:
    """All of a page."""

    kind: str
    title: str
    sections: Sequence[Section]
    status: tuple[str, Tone] = ("", "")
    facts: Sequence[str] = ()
    reloads_for: float = 0.0
    """Seconds for which the browser reloads it, because a process rewrites it before they are over."""
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def figures(self) -> list[Figure]:
        """Every figure that is on it, in full."""
        blocks = (block for section in self.sections for block in section.blocks)
        return [
            figure for block in blocks if isinstance(block, Figures) for figure in block.figures
        ]


_LINE = 800
"""Points that a line keeps."""
_SCATTER = 2000
"""Points that a scatter keeps."""


def write(page: Page, path: Path) -> None:
    """Write a page as one file, whole or not at all."""
    write_text(path, render(page))


def render(page: Page) -> str:
    """A page as HTML that needs nothing else: script, style, pictures and numbers are in it."""
    environment = load_templates()
    figures = [thin_figure(figure) for figure in page.figures]
    drawn = {figure.name: to_plotly(figure) for figure in figures}
    if len(drawn) < len(figures):
        raise ValueError(f"two figures of one name: {sorted(figure.name for figure in figures)}")
    if drawn:
        library, packed = _library()
    else:
        library, packed = ("", "")
    script = _source(environment, "page.js")
    return environment.get_template("base.html").render(
        page=page,
        sections=[section for section in page.sections if section.blocks],
        shown={figure.name: figure for figure in figures},
        figures=to_script_json(drawn),
        # Nothing moves while it draws.
        heights={name: plot["layout"]["height"] for name, plot in drawn.items()},
        style=_source(environment, "page.css"),
        library=packed,
        script=script,
        policy=_policy(library, script),
    )


def to_script_json(value: Any) -> str:
    r"""JSON that cannot end a script or begin a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@functools.cache
def load_templates() -> jinja2.Environment:
    """The templates, in which each value is escaped."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("assay_report"),
        autoescape=True,
        # Texts without what reverses the letters around them; what is HTML already stays as it is.
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(environment: jinja2.Environment, name: str) -> str:
    loader: Any = environment.loader
    return str(loader.get_source(environment, name)[0])


@functools.cache
def _library() -> tuple[str, str]:
    """Plotly's script, and the same compressed, in base64."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # plotly ships no types

    script = str(get_plotlyjs())
    return script, base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()


def _policy(*scripts: str) -> str:
    """What the browser may load and run: these scripts, by their hashes, and what is in the file."""
    digests = (hashlib.sha256(text.encode()).digest() for text in scripts if text)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    # Plotly adds styles of its own.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def thin_figure(figure: Figure) -> Figure:
    """Thin long lines and large scatters.

    Of each stretch of a line its lowest and its highest point stay, so that no peak is lost; of a scatter,
    an even choice that is the same each time.
    """
    marks: list[Mark] = []
    captions = []
    if figure.caption:
        captions = [figure.caption]
    for mark in figure.marks:
        indices: Any = None
        if isinstance(mark, Line) and len(mark.x) > _LINE:
            y = np.nan_to_num(np.asarray(mark.y, dtype=float), posinf=0, neginf=0)
            stretches = np.array_split(np.arange(len(y)), _LINE // 2)
            ends = [
                (part[0], part[y[part].argmin()], part[y[part].argmax()]) for part in stretches
            ]
            indices = np.unique(
                [*ends[0], *(end for _, *extremes in ends for end in extremes), len(y) - 1]
            )
            captions.append(
                "Long curves are drawn through the lowest and highest point of each stretch."
            )
        elif isinstance(mark, Points) and len(mark.x) > _SCATTER:
            indices = np.sort(
                np.random.default_rng(0).choice(len(mark.x), _SCATTER, replace=False)
            )
            captions.append(
                f"{_SCATTER:,} of {len(mark.x):,} points are drawn, chosen at random."
            )
        if indices is not None:
            few: Any = {
                name: np.asarray(column)[indices].tolist()
                for name, column in vars(mark).items()
                if np.size(column) > 1
            }
            mark = replace(mark, **few)  # noqa: PLW2901 - the same mark, with fewer points
        marks.append(mark)
    return replace(figure, marks=tuple(marks), caption=" ".join(dict.fromkeys(captions)))
