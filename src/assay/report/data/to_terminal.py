"""A survey on a terminal, of 60 columns or more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.markup import escape
from rich.table import Table

from assay.quoting import number_text
from assay.terminal import in_a_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.report.data.survey import ColumnSurvey, Survey, Values
    from assay.terminal import Console

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def histogram(counts: Sequence[int]) -> str:
    """A column a bin; an empty bin is a dot.

    >>> histogram([0, 1, 4, 8])
    '·▁▄█'
    """
    highest = max(counts, default=0) or 1
    return "".join(_LEVELS[-(-8 * count // highest) - 1] if count else "·" for count in counts)


def bar(share: float, width: int) -> str:
    """A bar from left to right.

    Args:
        share: Of the whole width, from 0 to 1.
        width: In characters.

    >>> bar(0.5, 5)
    '██▌'
    """
    eighths = round(8 * width * share)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).strip() or ("▏" if share > 0 else "")


_MOST: Final = 20
"""Rows of a table; the page has all."""
_BAR: Final = 10


def show(console: Console, survey: Survey) -> None:
    """Print it."""
    shape = "×".join(map(str, survey.input_shape))
    console.print(f"[bold]{escape(survey.name)}[/bold]  {survey.task}, {survey.in_words}, inputs {shape}")
    console.print(_subsets(survey))
    if survey.class_names and survey.subsets[0].class_counts:
        console.print(_classes(survey))
    for at, values in enumerate(survey.subsets[0].targets):
        name = survey.target_names[at] if at < len(survey.target_names) else f"target {at}"
        console.print(f"[bold]{escape(in_a_line(name))}[/bold]  {_values(values)}")
    if survey.columns:
        console.print(_columns(survey.columns))
    for label, sentences in (("note", survey.notes), ("warning", survey.warnings)):
        for sentence in sentences:
            console.print(f"[yellow]{label}:[/yellow] {escape(sentence)}")


def _table(*columns: str, left: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < left else "right", overflow="fold", max_width=24)
    return table


def _subsets(survey: Survey) -> Table:
    inputs = [] if survey.columns else ["inputs"]
    table = _table("", "samples", "copies", "in train", *inputs, left=1)
    for one in survey.subsets:
        values = one.lengths or one.inputs
        told = "" if values is None else _range(values)
        table.add_row(
            one.name,
            f"{one.num_samples:,}",
            number(one.num_equal),
            "" if one.name == "train" else number(one.in_training),
            *([f"{told} tokens" if one.lengths else told] if inputs else []),
        )
    return table


def _classes(survey: Survey) -> Table:
    table = _table("class", "", *(one.name for one in survey.subsets), left=2)
    counts = survey.subsets[0].class_counts
    order = sorted(range(len(counts)), key=lambda at: -counts[at])
    for at in order[:_MOST]:
        name = escape(in_a_line(survey.class_names[at]))
        own = [f"{one.class_counts[at]:,}" for one in survey.subsets]
        table.add_row(name, bar(counts[at] / (max(counts) or 1), _BAR), *own)
    if len(order) > _MOST:
        table.add_row(f"{len(order) - _MOST} more", "")
    return table


def _columns(columns: Sequence[ColumnSurvey]) -> Table:
    table = _table("column", "values", "", left=3)
    table.columns[1].max_width, table.columns[2].no_wrap = None, True
    for one in columns[:_MOST]:
        missing = f"; {one.num_missing:,} missing" if one.num_missing else ""
        drawn = "" if one.values is None else histogram(one.values.histogram)
        table.add_row(escape(in_a_line(one.name)), f"{_said(one)}{missing}", drawn)
    if len(columns) > _MOST:
        table.add_row(f"{len(columns) - _MOST} more", "", "")
    return table


def _said(column: ColumnSurvey) -> str:
    if column.span:
        return f"{column.span[0]} to {column.span[1]}"
    if column.values is not None:
        return f"{_range(column.values)}, mean {number_text(column.values.mean)}"
    listed = ", ".join(f"{in_a_line(value)} ({count:,})" for value, count in column.frequent.items())
    return escape(f"{column.num_different:,} different: {listed}" if listed else "nothing")


def _values(values: Values) -> str:
    return f"{_range(values)}, mean {number_text(values.mean)}  {histogram(values.histogram)}"


def _range(values: Values) -> str:
    return f"{number_text(values.low)} to {number_text(values.high)}"


def number(count: int | None) -> str:
    """A count; a question mark where nobody knows."""
    return "?" if count is None else f"{count:,}"
