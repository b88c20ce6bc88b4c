"""A comparison as CSV, Markdown, LaTeX, a table in the terminal, or the documents of `--json`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from assay.analysis.objective import score_text
from assay.analysis.rows import csv_text
from assay.quoting import counted, typed
from assay.terminal import escape_markdown, in_a_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console, RenderableType

    from assay.analysis.comparison import Comparison
    from assay.analysis.rows import Row
    from assay.analysis.run import Run


ABSENT: Final = "–"
BEST: Final = "*"


def short_names(keys: tuple[str, ...]) -> dict[str, str]:
    """Keys as the end of each that no other one ends with."""
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


def _remarks(comparison: Comparison) -> list[str]:
    """What is to be said below the table."""
    broken = [f"broken: {run.path}: {run.reason}" for run in comparison.broken]
    said = [sign_text(comparison), comparison.verdict.text, *comparison.notes, *broken]
    return [one for one in said if one]


def to_csv(comparison: Comparison) -> str:
    """Rows of a comparison, and below them the runs that cannot be read."""
    names = [f"{name}{end}" for name in comparison.metrics for end in ("", " std", " low", " high", " n")]
    rows: list[list[Any]] = []
    for number, row in enumerate(comparison.rows):
        cells: list[Any] = [row.values.get(key) for key in comparison.columns]
        for name in comparison.metrics:
            score = row.scores.get(name)
            cells += (score.mean, score.std, score.low, score.high, score.n) if score else (*[None] * 4, 0)
        paths = "\n".join(str(run.path) for run in row.runs)
        rows.append([*cells, row.repetitions, row.state or "finished", int(number == comparison.best), paths])
    empty = [None] * (len(comparison.columns) + len(names) + 1)
    rows += [[*empty, f"broken: {run.reason}", 0, str(run.path)] for run in comparison.broken]
    return csv_text([*comparison.columns, *names, "repetitions", "status", "best", "runs"], rows)


def to_markdown(comparison: Comparison) -> str:
    """A table, and below it what is to be said of it."""
    header, rows = columns_of(comparison)
    names = len(comparison.columns)
    rule = ["---"] * names + ["---:"] * (len(header) - names)
    text = [_line(list(map(escape_markdown, header))), _line(rule)]
    text += [_line(list(map(escape_markdown, row))) for row in rows]
    text += [f"\n{escape_markdown(one)}" for one in _remarks(comparison)]
    return "\n".join(text) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


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


def to_latex(comparison: Comparison) -> str:
    """A `table` with a `tabular`, its caption what is to be said of it; the best score is bold."""
    header, rows = columns_of(comparison)
    names = len(comparison.columns)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{'l' * names}{'r' * (len(header) - names)}}}",
        r"\hline",
        _latex_line([escaped(one) for one in header]),
        r"\hline",
    ]
    for number, row in enumerate(rows):
        cells = [escaped(one) for one in row]
        if number == comparison.best:
            cells[names] = rf"\textbf{{{escaped(row[names].removesuffix(f' {BEST}'))}}}"
        lines.append(_latex_line(cells))
    caption = " ".join(f"{escaped(one[:1].upper() + one[1:])}." for one in _remarks(comparison))
    return "\n".join([*lines, r"\hline", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]) + "\n"


def escaped(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return "".join(_SPECIAL.get(letter, letter) for letter in printable(text.replace("\n", " ")))


def _latex_line(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


_UNLIMITED: Final = 100_000
_GAP: Final = 2
_KEYS: Final = 6
_METRICS: Final = 7
"""Columns of a list of runs, as far as nobody has asked for more."""


def print_comparison(
    console: Console, comparison: Comparison, *, each: bool = False, asked: bool = False
) -> None:
    """Print a comparison."""
    if not console.is_terminal:
        console.width = _UNLIMITED
    console.print(to_terminal(comparison, console.width, each=each, asked=asked))


def to_terminal(
    comparison: Comparison, width: int, *, each: bool = False, asked: bool = False
) -> RenderableType:
    """What is printed."""
    parts: list[RenderableType] = []
    named = {*comparison.columns, *comparison.metrics}
    if each:
        comparison = _of_most_runs(comparison, asked=asked)
    named -= {*comparison.columns, *comparison.metrics}
    runs = sum(len(row.runs) for row in comparison.rows)
    if comparison.rows:
        table, left_out = _fitting(comparison, width, each=each)
        same = "  ".join(typed(key, text) for key, text in comparison.shared.items())
        kinds = counted(runs, "run")
        if not each:
            kinds = f"{counted(len(comparison.rows), 'configuration')}, {kinds}"
        parts += [Text(in_a_line(kinds + (f"; all with {same}" if same else ""))), table]
        if left_out := [*left_out, *sorted(named)]:
            names = ", ".join(left_out)
            parts.append(_said("note", f"not shown: {names}; --metric NAME chooses, --format csv has all"))
    if comparison.best is not None and not each:
        best = comparison.rows[comparison.best]
        parts.append(_said("best", _directory(best, comparison)))
    if comparison.verdict.text:
        parts.append(_said("test", comparison.verdict.text))
    parts += [
        _said("broken", f"{run.path}: {run.reason.removeprefix(str(run.path)).lstrip('/: ')}")
        for run in comparison.broken
    ]
    parts += [_said("note", note) for note in (sign_text(comparison), *comparison.notes) if note]
    return Group(*parts)


def best_run(comparison: Comparison) -> Path | None:
    """Directory of the best run of the best configuration; None where nothing has finished with a score."""
    ranking = comparison.ranking
    if comparison.best is None or ranking is None:
        return None
    best = comparison.rows[comparison.best].best(ranking.metric, ranking.direction)
    return best.path if best is not None else None


def _of_most_runs(comparison: Comparison, *, asked: bool) -> Comparison:
    """What a screen has room for of runs of several projects: the columns that most of them have."""

    def common(names: Sequence[str], count: Callable[[str], int], most: int) -> tuple[str, ...]:
        kept = sorted(names, key=lambda name: -count(name))[:most]
        return tuple(name for name in names if name in kept)

    rows, metrics = comparison.rows, comparison.metrics
    if not asked:
        scored = common(metrics[1:], lambda name: sum(name in row.scores for row in rows), _METRICS - 1)
        metrics = (*metrics[:1], *scored)
    columns = common(
        comparison.columns, lambda key: sum(row.values.get(key) is not None for row in rows), _KEYS
    )
    return replace(comparison, columns=columns, metrics=metrics)


def _directory(best: Row, comparison: Comparison) -> str:
    several = f", the best of {len(best.counted)} repetitions" if len(best.counted) > 1 else ""
    return f"{best_run(comparison)}{several}"


def _said(what: str, text: str) -> Table:
    line = Table.grid(padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(Text(what, style="bold" if what != "broken" else "red"), Text(in_a_line(text)))
    return line


def _fitting(comparison: Comparison, width: int, *, each: bool) -> tuple[RenderableType, list[str]]:
    """The table with as many metrics as there is room for, and those that are left out."""
    names = short_names(comparison.columns)
    header, rows = columns_of(comparison)
    if each:
        at = len(names) + len(comparison.metrics)
        header = [*header[:at], *header[at + 1 :], "run"]
        rows = [
            [*cells[:at], *cells[at + 1 :], str(row.runs[0].path)]
            for cells, row in zip(rows, comparison.rows, strict=True)
        ]
    cells = [[in_a_line(cell) for cell in line] for line in (header, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    styles = ["bold", *(_style(comparison, number) for number in range(len(rows)))]
    first, most = len(names), len(comparison.metrics)
    for kept in range(most, 0, -1):
        shown = [*range(first + kept), *range(first + most, len(header))]
        if sum(widths[column] + _GAP for column in shown) - _GAP <= width:
            numbers = range(first, first + most + (not each))
            return _aligned(cells, widths, shown, numbers, styles), list(comparison.metrics[kept:])
    return _folded(cells, first, most, styles), list(comparison.metrics[1:])


def _style(comparison: Comparison, number: int) -> str:
    return "bold green" if number == comparison.best else "" if comparison.rows[number].finished else "dim"


def _aligned(
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    shown: Sequence[int],
    numbers: Container[int],
    styles: Sequence[str],
) -> Text:
    """Columns beside each other, numbers to the right: a table of rich's takes a millisecond per row."""
    text = Text(no_wrap=True)
    for line, style in zip(cells, styles, strict=True):
        padded = []
        for column in shown:
            space = " " * (widths[column] - cell_len(line[column]))
            padded.append(f"{space}{line[column]}" if column in numbers else f"{line[column]}{space}")
        end = "" if line is cells[-1] else "\n"
        text.append((" " * _GAP).join(padded).rstrip() + end, style=style)
    return text


def _folded(cells: Sequence[Sequence[str]], first: int, most: int, styles: Sequence[str]) -> Table:
    """For a narrow screen: what differs in one column, whose lines are broken, and one score."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", show_edge=False)
    names, *rows = cells
    table.add_column("config", overflow="fold", ratio=1)
    for title in names[first : first + min(1, most)]:
        table.add_column(Text(title), justify="right", overflow="fold")
    for title in names[first + most :]:
        table.add_column(Text(title), overflow="fold")
    for line, style in zip(rows, styles[1:], strict=True):
        values = zip(names[:first], line[:first], strict=True)
        config = " ".join(f"{name}={one}" for name, one in values if one != ABSENT)
        rest = (*line[first : first + min(1, most)], *line[first + most :])
        table.add_row(Text(config), *map(Text, rest), style=style)
    return table


@final
@dataclass(frozen=True)
class Score:
    """A score of a row.

    Attributes:
        mean: Of the runs that have it.
        std: Standard deviation of them; null of one run.
        low: Lower end of the 95 % interval of the mean (Student's t); null of one run.
        high: Upper end.
        n: Runs that have it.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


@final
@dataclass(frozen=True)
class RunInRow:
    """A run of a row.

    Attributes:
        run: Its directory.
        status: `running`, `finished`, `failed`, `pruned` or `interrupted`.
        cause: Kind of the failure; empty where it did not fail.
        reason: How it ended, when not well.
        seed: Of the run.
        started: UTC, ISO 8601.
        seconds: It took.
    """

    run: Path
    status: str
    cause: str
    reason: str
    seed: int
    started: str
    seconds: float


@final
@dataclass(frozen=True)
class ComparedRow:
    """One configuration, or one run.

    Attributes:
        config: What differs, by key; null where it does not have the key.
        best: Whether it is the best row.
        finished: Runs that its scores are of.
        repetitions: Runs that differ in the seed or the fold alone.
        scores: By metric.
        runs: All of them.
    """

    config: Mapping[str, str | None]
    best: bool
    finished: int
    repetitions: int
    scores: Mapping[str, Score]
    runs: Sequence[RunInRow]


@final
@dataclass(frozen=True)
class Broken:
    """A run that cannot be read.

    Attributes:
        run: Its directory.
        reason: Why.
    """

    run: Path
    reason: str


@final
@dataclass(frozen=True)
class BestTest:
    """Whether the best row is ahead of the second by more than noise.

    Attributes:
        name: Of the test.
        p_value: Null where n is too small to say.
        verdict: In words; empty where there are no two rows to compare.
    """

    name: str
    p_value: float | None
    verdict: str


@final
@dataclass(frozen=True)
class Compared:
    """What differs between runs, and their scores.

    Attributes:
        metric: What rows are sorted by; null where by none.
        direction: `min` or `max`, which is better; null where nobody knows.
        columns: Keys that differ.
        metrics: Scores that are shown.
        shared: What all have and is not a default, by key.
        rows: Sorted, the best first where there is a metric.
        broken: Runs that cannot be read.
        test: Whether the best is ahead of the second.
        notes: What to know, a sentence each.
    """

    metric: str | None
    direction: str | None
    columns: Sequence[str]
    metrics: Sequence[str]
    shared: Mapping[str, str]
    rows: Sequence[ComparedRow]
    broken: Sequence[Broken]
    test: BestTest
    notes: Sequence[str]


@final
@dataclass(frozen=True)
class Best:
    """The best run.

    Attributes:
        run: Its directory.
        metric: By which.
        direction: `min` or `max`, which is better.
        row: Its row in a comparison.
    """

    run: Path
    metric: str
    direction: str
    row: ComparedRow


def to_document(comparison: Comparison) -> Compared:
    """Everything that a comparison says."""
    ranking = comparison.ranking
    return Compared(
        metric=ranking.metric if ranking else None,
        direction=ranking.direction or None if ranking else None,
        columns=comparison.columns,
        metrics=comparison.metrics,
        shared=comparison.shared,
        rows=[_row(row, best=number == comparison.best) for number, row in enumerate(comparison.rows)],
        broken=[Broken(run.path, run.reason) for run in comparison.broken],
        test=BestTest(*comparison.verdict),
        notes=comparison.notes,
    )


def _row(row: Row, *, best: bool) -> ComparedRow:
    return ComparedRow(
        config=row.values,
        best=best,
        finished=row.finished,
        repetitions=row.repetitions,
        scores={name: Score(one.mean, one.std, one.low, one.high, one.n) for name, one in row.scores.items()},
        runs=[_run(run) for run in row.runs],
    )


def _run(run: Run) -> RunInRow:
    return RunInRow(run.path, run.status, run.cause, run.reason, run.seed, run.started, run.seconds)
