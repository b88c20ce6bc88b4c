"""A comparison as a LaTeX table that needs no package."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from assay.report.table.cells import BEST, columns_of, sign_text
from assay.terminal import printable

if TYPE_CHECKING:
    from assay.report.table.comparison import Comparison

_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': "{''}",
    "*": "{*}",  # after \\\\ it would be a part of it, as a bracket would
    "±": r"\ensuremath{\pm}",
    "–": "--",
    "×": r"\ensuremath{\times}",
    "[": "{[}",
    "]": "{]}",
    "`": "{`}",
}
_SPECIAL_OT1: Final = "ßæøœłÆØŒŁı"
"""Letters that every font of LaTeX has, beside those that are a letter and an accent."""
_ACCENTS: Final = "\u0300\u0301\u0302\u0303\u0308\u0327\u030a\u030c"


def to_latex(comparison: Comparison) -> str:
    """A `table` with a `tabular`, its caption what is to be said of it; the best score is bold."""
    header, rows = columns_of(comparison)
    names = len(comparison.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{'l' * names}{'r' * (len(header) - names)}}}",
        r"\hline",
        _line([escaped(one) for one in header]),
        r"\hline",
    ]
    for number, row in enumerate(rows):
        cells = [escaped(one) for one in row]
        if number == comparison.best:
            cells[names] = rf"\textbf{{{escaped(row[names].removesuffix(f' {BEST}'))}}}"
        lines.append(_line(cells))
    said = [
        sign_text(comparison),
        comparison.verdict.text,
        *comparison.notes,
        *(f"broken: {run.path}: {run.reason}" for run in comparison.broken),
    ]
    caption = " ".join(f"{escaped(one[:1].upper() + one[1:])}." for one in said if one)
    return "\n".join([*lines, r"\hline", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]) + "\n"


def escaped(text: str) -> str:
    r"""Text that LaTeX sets as it is, with any engine; a letter its fonts lack as its code point.

    Args:
        text: Anything.

    >>> print(escaped(r"\input{x} 5 % é 中"))
    \textbackslash{}input\{x\} 5 \% é {[}U+4E2D]
    """
    return "".join(
        _letter(letter) for letter in unicodedata.normalize("NFC", printable(text.replace("\n", " ")))
    )


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter.isascii() or letter in _SPECIAL_OT1:
        return letter
    base, *accents = list(unicodedata.normalize("NFD", letter))
    if base.isascii() and base.isalpha() and len(accents) == 1 and accents[0] in _ACCENTS:
        return letter
    return f"{{[}}U+{ord(letter):04X}]"


def _line(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
