"""Wraps the prose of the pages: `python -m tests.contract.wrap_prose`.

Tables, code, front matter and HTML stay as they are, and so do paragraphs whose lines are short enough.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
WIDTH: Final = 120
_FENCE: Final = re.compile(r" *(```|~~~)")
_NO_PROSE: Final = re.compile(r"\||#|<| {4}|\t|!!! |\[[^]]+\]: ")
_ITEM: Final = re.compile(r"( {0,6}(?:[-*+]|\d+\.) +)(.*)")
_WORD: Final = re.compile(r"(?:`[^`]*`|!?\[[^]]*\]\([^)]*\)|\S)+")
_MARKS_BLOCK: Final = re.compile(r"(?:[-+*=>|]|#+|\d+[.)])$")
"""A word that begins a list, a heading or a quotation where it begins a line."""


def pages() -> list[Path]:
    """Every page that people read, except the one that is generated."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(path for path in found if path.name != "json.md")


def paragraphs(text: str) -> list[tuple[bool, list[str]]]:
    """The lines of a page in pieces, each with whether it is a paragraph or an item of prose."""
    pieces: list[tuple[bool, list[str]]] = []
    fence = ""
    in_item = False
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence or mark:
            pieces.append((False, [line]))
            fence = "" if fence and line.strip().startswith(fence) else fence or (mark[1] if mark else "")
            continue
        if not line.strip():
            pieces.append((False, [line]))
            continue
        after = pieces[-1] if pieces else (False, [])
        is_item = bool(_ITEM.match(line)) and (in_item or not line.startswith("    "))
        if is_item:
            pieces.append((True, [line]))
        elif after[0] and not re.match(r"\||#|<", line):
            after[1].append(line)
        else:
            pieces.append((not _NO_PROSE.match(line), [line]))
        in_item = is_item or (in_item and line.startswith("  "))
    return pieces


def wrap(text: str) -> str:
    """The page with each paragraph wrapped that has a line above `WIDTH`."""
    lines: list[str] = []
    for is_prose, piece in paragraphs(text):
        is_long = is_prose and max(map(len, piece)) > WIDTH
        lines += _fill(piece) if is_long else piece
    return "\n".join(lines) + "\n"


def _fill(piece: list[str]) -> list[str]:
    item = _ITEM.match(piece[0])
    first = item[1] if item else re.match(" *", piece[0])[0]  # type: ignore[index]  # it matches any line
    words = _WORD.findall(" ".join([item[2] if item else piece[0], *piece[1:]]))
    lines = [first + words[0]]
    for word, after in zip(words[1:], [*words[2:], ""], strict=True):
        glued = f"{word} {after}" if _MARKS_BLOCK.match(after) else word
        if len(lines[-1]) + 1 + len(glued) > WIDTH and not _MARKS_BLOCK.match(word):
            lines.append(" " * len(first) + word)
        else:
            lines[-1] += f" {word}"
    return lines


def main() -> None:
    """Wrap all pages in place."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (wrapped := wrap(text)) != text:
            path.write_text(wrapped, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
