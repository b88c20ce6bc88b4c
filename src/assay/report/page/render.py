"""A page as one HTML file that opens offline."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

from assay.figure.thinned import thinned
from assay.figure.to_plotly import to_plotly
from assay.files.atomic import write_text
from assay.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

    import jinja2

    from assay.report.page.page import Page


def write(page: Page, path: Path) -> None:
    """Write a page as one file, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    write_text(path, render(page))


def render(page: Page) -> str:
    """A page as HTML that needs nothing else: script, style, pictures and numbers are in it.

    The browser is told to run only these scripts and to ask no network for anything.

    Returns:
        Every text of it escaped.

    Raises:
        ValueError: Two figures have one name.
    """
    environment = _environment()
    shown = [thinned(figure) for figure in page.figures]
    drawn = {figure.name: to_plotly(figure) for figure in shown}
    if len(drawn) < len(shown):
        raise ValueError(f"two figures of one name: {sorted(figure.name for figure in shown)}")
    library, script = _library() if drawn else "", _source(environment, "page.js")
    return environment.get_template("base.html").render(
        page=page,
        sections=[section for section in page.sections if section.blocks],
        shown={figure.name: figure for figure in shown},
        figures=as_json(drawn),
        heights={
            name: one["layout"]["height"] for name, one in drawn.items()
        },  # nothing moves while it draws
        style=_source(environment, "page.css"),
        library=library,
        script=script,
        policy=_policy(library, script),
    )


def as_json(value: Any) -> str:
    r"""JSON that ends no script and begins no comment, whatever its texts say.

    Args:
        value: Plain data.

    >>> print(as_json("</script><!-- &"))
    "\u003c/script\u003e\u003c!-- \u0026"
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("assay.report.page"),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: Any) -> Any:
    """Texts without what reverses the letters around them; what is HTML already stays as it is."""
    if isinstance(value, dict):
        return {name: _printable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_printable(one) for one in value]
    return printable(value) if type(value) is str else value


def _source(environment: jinja2.Environment, name: str) -> str:
    """A file of the page as it is."""
    loader: Any = environment.loader
    text: str = loader.get_source(environment, name)[0]
    return text


@functools.cache
def _library() -> str:
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # plotly ships no types

    script: str = get_plotlyjs()
    if "</script" in script.lower():  # it would end there
        raise ValueError("this version of plotly.js cannot be part of a page")
    return script


def _policy(*scripts: str) -> str:
    """What the browser may load and run: these scripts, by their hashes, and what is in the file."""
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in scripts
        if text
    ]
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(hashes)}",
            "style-src 'unsafe-inline'",  # plotly adds its own
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
