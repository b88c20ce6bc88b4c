"""Prose is wrapped, and the wrapping changes nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import markdown  # type: ignore[import-untyped]  # it ships no types
import pytest
from tests.contract.wrap_prose import ROOT, WIDTH, pages, paragraphs, wrap

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_is_wrapped(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrap(text) == text, "python -m tests.contract.wrap_prose"
    prose = [line for is_prose, piece in paragraphs(text) if is_prose for line in piece]
    assert [line for line in prose if len(line) > WIDTH and len(line.split()) > 12] == []


def test_a_wrapped_page_says_the_same() -> None:
    words = " ".join(["word"] * 30)
    few = " ".join(["word"] * 9)
    code = f"`assay train {few}`"
    link = f"[{few}](page.md)"
    text = f"# {words}\n\n{words} - {words} 1. {words} {code} {link}\n\n- {words}\n  {words}\n- b\n\n"
    text += f"| {words} | b |\n|---|---|\n| a | {words} |\n\n    assay {words}\n\n```sh\nassay {words}\n```\n"
    wrapped = wrap(text)
    assert wrap(wrapped) == wrapped != text
    html = [
        " ".join(markdown.markdown(page, extensions=["tables", "fenced_code"]).split())
        for page in (text, wrapped)
    ]
    assert html[0] == html[1]
    assert (
        max(len(line) for line in wrapped.splitlines() if line.startswith(("word", "- ", "  word"))) <= WIDTH
    )
