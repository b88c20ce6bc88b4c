"""A comparison on a screen, however narrow, or in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from assay.quoting import counted
from assay.report.table.cells import columns_of, count_text, short_names
from assay.terminal import in_a_line

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from assay.report.table.comparison import Comparison, Row

_UNLIMITED: Final = 100_000
_DIM: Final = "dim"


def print_comparison(console: Console, comparison: Comparison, *, each: bool = False) -> None:
    """Print a comparison.

    Args:
        console: Where; lines of one that is not a terminal are as long as they have to be.
        comparison: Of runs.
        each: Whether each row is one run, to be named by its directory.
    """
    if not console.is_terminal:
        console.width = _UNLIMITED
    console.print(to_terminal(comparison, console.width, console, each=each))


def to_terminal(
    comparison: Comparison, width: int, console: Console, *, each: bool = False
) -> RenderableType:
    """What is printed.

    Args:
        comparison: Of runs.
        width: Characters of a line.
        console: Measures it.
        each: As for `print_comparison`.
    """
    parts: list[RenderableType] = []
    runs = sum(len(row.runs) for row in comparison.rows)
    if comparison.rows:
        table, left_out = _fitting(comparison, width, console, each=each)
        same = "  ".join(f"{key}={text}" for key, text in comparison.shared.items())
        kinds = counted(runs, "run")
        if not each:
            kinds = f"{counted(len(comparison.rows), 'configuration')}, {kinds}"
        parts += [Text(kinds + (f"; all with {in_a_line(same)}" if same else "")), table]
        if left_out:
            parts.append(
                _said(
                    "note",
                    f"too narrow for {', '.join(left_out)}; --metric NAME chooses, --format csv has all",
                )
            )
    if comparison.best is not None and not each:
        best = comparison.rows[comparison.best]
        parts.append(_said("best", _directory(best, comparison)))
    if comparison.verdict:
        parts.append(_said("test", comparison.verdict))
    parts += [
        _said("broken", f"{run.path}: {run.reason.removeprefix(str(run.path)).lstrip('/: ')}")
        for run in comparison.broken
    ]
    parts += [_said("note", note) for note in comparison.notes]
    return Group(*parts)


def best_run(comparison: Comparison) -> Path | None:
    """Directory of the best run of the best configuration; None where nothing has finished with a score.

    Args:
        comparison: Of runs.
    """
    ranking = comparison.ranking
    if comparison.best is None or ranking is None:
        return None
    scored = [
        (score if ranking.direction == "min" else -score, run.path)
        for run in comparison.rows[comparison.best].counted
        if (score := run.score(ranking.metric)) is not None and score == score  # noqa: PLR0124 - nan
    ]
    return min(scored, key=lambda one: one[0])[1] if scored else None


def _directory(best: Row, comparison: Comparison) -> str:
    several = f", the best of {len(best.counted)} repetitions" if len(best.counted) > 1 else ""
    return f"{best_run(comparison)}{several}"


def _said(what: str, text: str) -> Table:
    line = Table.grid(padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(Text(what, style="bold" if what != "broken" else "red"), Text(in_a_line(text)))
    return line


def _fitting(comparison: Comparison, width: int, console: Console, *, each: bool) -> tuple[Table, list[str]]:
    """The table with as many metrics as there is room for, and those that are left out."""
    for folded in (False, True):
        for number in range(len(comparison.metrics), 0, -1):
            table = _table(comparison, comparison.metrics[:number], folded=folded, each=each)
            options = console.options.update(width=_UNLIMITED, max_width=_UNLIMITED)
            natural = Measurement.get(console, options, table).maximum
            if natural <= width or (folded and number == 1):
                return table, list(comparison.metrics[number:])
    return _table(comparison, (), folded=width < _UNLIMITED, each=each), []


def _table(comparison: Comparison, metrics: tuple[str, ...], *, folded: bool, each: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    names = {key: in_a_line(name) for key, name in short_names(comparison.columns).items()}
    header, all_cells = columns_of(comparison)
    with_state = "status" in header[len(names) :]
    if folded:
        table.add_column("config", overflow="fold", ratio=1)
    else:
        for name in names.values():
            table.add_column(Text(name), overflow="fold")
    for metric in metrics:
        table.add_column(Text(in_a_line(metric)), justify="right", no_wrap=not folded)
    if not each:
        table.add_column("n", justify="right", no_wrap=True)
    if with_state:
        table.add_column("status", overflow="fold")
    if each:
        table.add_column("run", overflow="fold")
    for number, (row, cells) in enumerate(zip(comparison.rows, all_cells, strict=True)):
        values = cells[: len(names)]
        scores = cells[len(names) : len(names) + len(metrics)]
        if folded:
            values = [" ".join(f"{name}={one}" for name, one in zip(names.values(), values, strict=True))]
        rest = [*([] if each else [count_text(row)]), *([row.state] if with_state else [])]
        style = "bold green" if number == comparison.best else "" if row.finished else _DIM
        every = [*values, *scores, *rest, *([str(row.runs[0].path)] if each else [])]
        table.add_row(*(Text(in_a_line(one)) for one in every), style=style)
    return table
