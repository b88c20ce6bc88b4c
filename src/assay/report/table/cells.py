"""A comparison as columns of text, in the units and digits that people read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from assay.report.table.comparison import Comparison, Row
    from assay.report.table.statistics import Mean

ABSENT: Final = "–"
BEST: Final = "*"


def score_text(score: Mean | None, plus_minus: str = "±") -> str:
    """A score with its interval, both to the digits that the interval leaves meaning.

    Args:
        score: Of a row; None where it has none.
        plus_minus: The sign.

    >>> from assay.report.table.statistics import Mean
    >>> score_text(Mean((0.97, 0.98), 0.97512, 0.01, 0.96, 0.99012)), score_text(Mean((0.97512,), 0.97512))
    ('0.975 ± 0.015', '0.9751')
    >>> score_text(Mean((8123.0, 8500.0), 8311.5, 1.0, 7111.5, 9511.5)), score_text(None)
    ('8312 ± 1200', '–')
    """
    if score is None:
        return ABSENT
    half = score.half_width
    if half is None or half == 0.0 or not math.isfinite(half):
        return f"{score.mean:.4g}" if half is None else f"{score.mean:.4g} {plus_minus} {half:.1g}"
    first = math.floor(math.log10(half))
    if first < -6 or (score.mean and abs(score.mean) < 1e-4):
        return f"{score.mean:.4g} {plus_minus} {half:.2g}"
    digits = max(0, 1 - first)
    return f"{score.mean:.{digits}f} {plus_minus} {round(half, 1 - first):.{digits}f}"


def short_names(keys: tuple[str, ...]) -> dict[str, str]:
    """Keys as the end of each that no other one ends with.

    Args:
        keys: Full keys.

    >>> short_names(("optimizer.lr", "model", "a.size", "b.size"))
    {'optimizer.lr': 'lr', 'model': 'model', 'a.size': 'a.size', 'b.size': 'b.size'}
    """
    found = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-n:]) for n in range(1, len(parts) + 1))
        found[key] = next(
            (
                end
                for end in ends
                if not any(other != key and f".{other}".endswith(f".{end}") for other in keys)
            ),
            key,
        )
    return found


def count_text(row: Row) -> str:
    """How many repetitions count, of how many.

    Args:
        row: Of a comparison.
    """
    counted = max((score.n for score in row.scores.values()), default=0)
    return str(counted) if counted == row.repetitions else f"{counted} of {row.repetitions}"


def columns_of(comparison: Comparison, plus_minus: str = "±") -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and the cells of every row: values, scores, n and what did not finish.

    Args:
        comparison: Of runs.
        plus_minus: The sign before half an interval.
    """
    names = short_names(comparison.columns)
    with_state = any(row.state for row in comparison.rows)
    header = [*names.values(), *comparison.metrics, "n", *(["status"] if with_state else [])]
    rows = []
    for number, row in enumerate(comparison.rows):
        scores = [score_text(row.scores.get(name), plus_minus) for name in comparison.metrics]
        if number == comparison.best and scores:
            scores[0] += f" {BEST}"
        values = [ABSENT if (text := row.values.get(key)) is None else text for key in comparison.columns]
        rows.append([*values, *scores, count_text(row), *([row.state] if with_state else [])])
    return header, rows
