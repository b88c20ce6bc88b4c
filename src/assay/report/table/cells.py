"""A comparison as columns of text, in the units and digits that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from assay.record.score_text import score_text

if TYPE_CHECKING:
    from assay.report.table.comparison import Comparison, Row

ABSENT: Final = "–"
BEST: Final = "*"


def short_names(keys: tuple[str, ...]) -> dict[str, str]:
    """Keys as the end of each that no other one ends with.

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
    """How many repetitions count, of how many."""
    counted = max((score.n for score in row.scores.values()), default=0)
    if row.folds:
        folds = len({run.fold for run in row.runs})
        return f"{counted} folds" if counted == folds and row.whole else f"{counted} of {folds} folds"
    return str(counted) if counted == row.repetitions else f"{counted} of {row.repetitions}"


def sign_text(comparison: Comparison) -> str:
    """What stands after the sign between two numbers; nothing where no row shows one."""
    scores = (row.scores.get(name) for row in comparison.rows for name in comparison.metrics)
    if not any(score is not None and score.half_width is not None for score in scores):
        return ""
    return "± is half a 95 % interval of the mean (Student's t)"


def columns_of(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and the cells of every row: values, scores, n and what did not finish."""
    names = short_names(comparison.columns)
    with_state = any(row.state for row in comparison.rows)
    header = [*names.values(), *comparison.metrics, "n", *(["status"] if with_state else [])]
    rows = []
    for number, row in enumerate(comparison.rows):
        found = [(name, row.scores.get(name)) for name in comparison.metrics]
        scores = [ABSENT if score is None else score_text(name, score) for name, score in found]
        if number == comparison.best and scores:
            scores[0] += f" {BEST}"
        values = [ABSENT if (text := row.values.get(key)) is None else text for key in comparison.columns]
        rows.append([*values, *scores, count_text(row), *([row.state] if with_state else [])])
    return header, rows
