"""What differs from one time, place or machine to the next, and what stands for it in a golden page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).parents[2]
_MASKS: Final = [
    (re.compile(pattern, re.MULTILINE), shown)
    for pattern, shown in (
        (r"[ \t]+$", ""),
        (r"\b[0-9a-f]{64}\b", "<sha256>"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+\d\d:\d\d)?", "<time>"),
        (r"\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d(-[0-9a-f]{6})?", "<date>/<time>"),
        (r"\d{4}-\d\d-\d\d[-T_]\d\d-\d\d-\d\d(-\d+(?=/))?", "<date>-<time>"),
        (r"(?<=SHA-256 )[0-9a-f]{12}\b", "<sha256>"),
        (r'(?<=", line )\d+(?=, in )', "<number>"),
        (r" {2,}\d+(\.\d+)? ?m?s\b", "  <seconds>"),
        (r"(?<=in )\d+(\.\d+)? ?m?s\b", "<seconds>"),
        (r'("(?:size|\w*bytes\w*)": )\d+', r"\1<bytes>"),
        (r"\d[\d.,]* ([KMG]i?)?B\b", "<bytes>"),
        (r"\b\d+\.\d+\.\d+\b", "<version>"),
        (r"(?<=\(commit )[0-9a-f]{12}(-dirty)?", "<commit>"),
        (r'(?<="lr_note": ")(the first [\d,]+ of [\d,]+ steps)?(?=")', "<how far in time>"),
        (r"(?<=CUDA )\d+\.\d+", "<version>"),
        (r"\d+ physical, \d+ usable", "<cores>"),
        (r"^(  model {10}|  \"model\": )\S.*(?=\n  \"?cores)", r"\1<processor>"),
        (r"^(  bf16 {11}|  \"bf16\": )\S.*", r"\1<whether>"),
    )
]


_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(\.\d+)?(e[+-]?\d+)?(?!\w)")
_GAP: Final = re.compile(r"(?<=\S) {2,}(?=\S)")


def mask_numbers(text: str) -> str:
    """Replace each number, and what aligns it in a column; names such as `f1` stay."""
    return _GAP.sub("  ", _NUMBER.sub("#", text))


def mask(text: str, folder: Path) -> str:
    """Replace what is dated, random, timed or of this machine.

    Args:
        text: As printed or written.
        folder: In which the command was typed.
    """
    for path, shown in ((folder, "<folder>"), (_REPOSITORY, "<assay>"), (Path(sys.prefix), "<python>")):
        text = text.replace(str(path), shown)
    for pattern, shown in _MASKS:
        text = pattern.sub(shown, text)
    return text
