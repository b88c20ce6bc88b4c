"""A comparison as CSV, Markdown, LaTeX, a table in the terminal, or the documents of `--json`."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from rich.cells import cell_len
from rich.text import Text

from assay.quoting import format_override, pluralize
from assay.terminal import escape_markdown, print_lines, printable, single_line
from assay_analysis.comparison import csv_text
from assay_analysis.objective import score_text
from assay_analysis.run import shorten_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from assay_analysis.comparison import Comparison, Row
    from assay_analysis.run import Run
    from assay_analysis.statistics import Mean, Verdict


ABSENT = "–"
BEST = "*"


_TAKEN = ("n", "run", "status", "time", "seconds", "started", "test", "val", "train")
"""What a column of a key is not called: it would be taken for something else."""


def short_names(keys: tuple[str, ...]) -> dict[str, str]:
    """Keys as the end of each that no other one ends with."""

    def shorten(key: str) -> str:
        parts = key.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        unique = (
            end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1
        )
        return next((end for end in unique if end not in _TAKEN), key)

    return {key: shorten(key) for key in keys}


def count_text(row: Row) -> str:
    """How many repetitions count, of how many."""
    counted = max((score.n for score in row.scores.values()), default=0)
    if row.folds:
        unit, total = (" folds", len({run.fold for run in row.runs}))
    else:
        unit, total = ("", row.repetitions)
    of = ""
    if not (counted == total and (row.is_complete or not unit)):
        of = f" of {total}"
    return f"{counted}{of}{unit}"


def sign_text(comparison: Comparison) -> str:
    """What stands after the sign between two numbers; nothing where no row shows one."""
    scores = (row.scores.get(name) for row in comparison.rows for name in comparison.metrics)
    if not any(score is not None and score.half_width is not None for score in scores):
        return ""
    return "± is half a 95 % interval of the mean (Student's t)"


def columns_of(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and the cells of every row: values, scores, n and what did not finish."""
    names = short_names(comparison.columns)
    states = ["status"] * any(row.state for row in comparison.rows)
    header = [*names.values(), *comparison.metrics, "n", *states]
    rows = []
    for number, row in enumerate(comparison.rows):
        row_scores = [(name, row.scores.get(name)) for name in comparison.metrics]
        scores = [
            ABSENT if score is None else score_text(name, score, row.shares)
            for name, score in row_scores
        ]
        if number == comparison.best and scores:
            scores[0] += f" {BEST}"
        short = shorten_values(row.values)
        values = [short.get(key, ABSENT) for key in comparison.columns]
        rows.append([*values, *scores, count_text(row), *[row.state for _ in states]])
    return header, rows


def _remarks(comparison: Comparison) -> list[str]:
    broken = [f"broken: {run.path}: {run.reason}" for run in comparison.broken]
    verdict = ""
    if comparison.verdict:
        verdict = comparison.verdict.sentence
    return [
        remark
        for remark in (sign_text(comparison), *comparison.notes, *broken, verdict)
        if remark
    ]


def to_csv(comparison: Comparison) -> str:
    """Rows of a comparison, and below them the runs that cannot be read."""
    return csv_text(comparison.to_frame())


def to_markdown(comparison: Comparison) -> str:
    """A table, and remarks below it."""
    header, rows = columns_of(comparison)
    names = len(comparison.columns)
    rule = ["---"] * names + ["---:"] * (len(header) - names)
    lines = [
        [*map(escape_markdown, header)],
        rule,
        *([*map(escape_markdown, row)] for row in rows),
    ]
    text = [f"| {' | '.join(cells)} |" for cells in lines]
    text += [f"\n{escape_markdown(remark)}" for remark in _remarks(comparison)]
    return "\n".join(text) + "\n"


_SPECIAL = {
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
    """A `table` with a `tabular`, with remarks in its caption; the best score is bold."""
    header, rows = columns_of(comparison)
    names = len(comparison.columns)
    cells = [[escape(cell) for cell in row] for row in (header, *rows)]
    if (best := comparison.best) is not None:
        cells[best + 1][names] = (
            rf"\textbf{{{escape(rows[best][names].removesuffix(f' {BEST}'))}}}"
        )
    head, *body = (f"{' & '.join(row)} \\\\" for row in cells)
    alignment = "l" * names + "r" * (len(header) - names)
    caption = " ".join(
        f"{escape(remark[:1].upper() + remark[1:])}." for remark in _remarks(comparison)
    )
    tabular = [rf"\begin{{tabular}}{{{alignment}}}", r"\hline", head, r"\hline", *body, r"\hline"]
    end = [r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
    return "\n".join([r"\begin{table}", r"\centering", *tabular, *end]) + "\n"


def escape(text: str) -> str:
    """Escape a text for LaTeX."""
    return "".join(_SPECIAL.get(letter, letter) for letter in printable(text.replace("\n", " ")))


_UNLIMITED = 100_000
_GAP = 2
_PLACE = 30
"""Letters of the end of a run's path, where there is no room for all."""


def print_comparison(console: Console, comparison: Comparison, *, each: bool = False) -> None:
    """Print a comparison."""
    if not console.is_terminal:
        console.width = _UNLIMITED
    runs = sum(len(row.runs) for row in comparison.rows)
    if comparison.rows:
        table, left_out, folder = _fit_table(comparison, console.width, each=each)
        shared = shorten_values(comparison.shared)
        same = "  ".join(format_typed(key, text) for key, text in shared.items())
        kinds = pluralize(runs, "run")
        if folder:
            kinds += f" in {folder}"
        if not each:
            kinds = f"{pluralize(len(comparison.rows), 'configuration')}, {kinds}"
        if same:
            kinds += f"; all with {same}"
        console.print(Text(single_line(kinds)), table, sep="\n")
        if left_out:
            names = ", ".join(left_out)
            _print_line(
                console,
                "note",
                f"not shown: {names}; --metric NAME chooses, --format csv has all",
            )
    if comparison.best is not None and comparison.best_run is not None and not each:
        repetitions = len(comparison.rows[comparison.best].counted)
        several = ""
        if repetitions > 1:
            several = f", the best of {repetitions} repetitions"
        _print_line(console, "best", f"{comparison.best_run.path}{several}")
        for warning in comparison.best_run.warnings:
            _print_line(console, "warning", f"the best run: {warning}")
    for run in comparison.broken:
        _print_line(
            console,
            "broken",
            f"{run.path}: {run.reason.removeprefix(str(run.path)).lstrip('/: ')}",
        )
    for note in filter(None, (sign_text(comparison), *comparison.notes)):
        _print_line(console, "note", note)
    if comparison.verdict:
        _print_line(console, "verdict", comparison.verdict.sentence)


def _print_line(console: Console, label: str, text: str) -> None:
    print_lines(console, [(label, single_line(text))], len(label) + 1)


def _fit_table(comparison: Comparison, width: int, *, each: bool) -> tuple[Text, list[str], str]:
    """The table with as many columns as there is room for, those left out, and the folder of its runs."""
    header, rows = columns_of(comparison)
    keys = len(comparison.columns)
    names = [*comparison.columns, *comparison.metrics]
    lines = [header, *rows]
    folder = ""
    if each:  # n is 1
        paths = [row.runs[0].path for row in comparison.rows]
        places = list(map(str, paths))
        if width < _UNLIMITED:
            common = os.path.commonpath([path.absolute().parent for path in paths])
            places = [os.path.relpath(path, common) for path in paths]
            places = [
                place if len(place) <= _PLACE else f"…{place[1 - _PLACE :]}" for place in places
            ]
            folder = min(common, os.path.relpath(common), key=len)
        for line, place in zip(lines, ["run", *places], strict=True):
            del line[len(names)]
            line.append(place)
    cells = [[single_line(cell) for cell in line] for line in lines]
    widths = [max(map(cell_len, column)) + _GAP for column in zip(*cells, strict=True)]
    # Scores go first, from the last one on, then keys, and a score of the test last.
    ranked = ""
    if comparison.metrics:
        ranked = comparison.metrics[0].rpartition("/")[2]
    tests = [name for name in comparison.metrics[1:] if name.startswith("test/")]
    kept = f"test/{ranked}" if f"test/{ranked}" in tests else next(iter(tests), "")
    order = [*range(len(names) - 1, keys, -1), *range(keys - 1, -1, -1)]
    shown = list(range(len(widths)))
    left_out = []

    def fits() -> bool:
        return sum(widths[column] for column in shown) - _GAP <= width

    for at in sorted(order, key=lambda at: names[at] == kept):
        if fits():
            break
        shown.remove(at)
        left_out.append(names[at])
    numbers = range(keys, len(names) + (not each))
    texts = []  # a table of rich's takes a millisecond per row
    for number, line in enumerate(cells, -1):
        spaces = [" " * (widths[column] - _GAP - cell_len(line[column])) for column in shown]
        padded = (
            f"{space}{line[column]}" if column in numbers else f"{line[column]}{space}"
            for column, space in zip(shown, spaces, strict=True)
        )
        style = ""
        if number < 0:
            style = "bold"
        elif number == comparison.best:
            style = "bold green"
        elif not comparison.rows[number].finished:
            style = "dim"
        texts.append(Text((" " * _GAP).join(padded).rstrip(), style))
    table = Text("\n", overflow="fold").join(texts)
    table.no_wrap = fits()
    return table, left_out, folder


@final
@dataclass(frozen=True)
class RunInRow:
    """A run of a row.

    Attributes:
        run: Its directory.
        status: `running`, `finished`, `failed`, `pruned`, `interrupted` or `broken`.
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
    scores: Mapping[str, Mean]
    runs: Sequence[RunInRow]


@final
@dataclass(frozen=True)
class Compared:
    """What differs between runs, and their scores.

    Attributes:
        metric: What rows are sorted by; null where by none.
        direction: `min` or `max`, which is better; null where unknown.
        columns: Keys that differ.
        metrics: Scores that are shown.
        shared: What all have and is not a default, by key.
        rows: Sorted, the best first where there is a metric; those of `ls` without `--sort` the newest first.
        broken: Runs that cannot be read.
        verdict: On the first of two groups, or on the best row against the second; else null.
        notes: What to know, a sentence each.
        total: Rows and runs that cannot be read, on all pages together.
        offset: How many of these come before this page.
    """

    metric: str | None
    direction: str | None
    columns: Sequence[str]
    metrics: Sequence[str]
    shared: Mapping[str, str]
    rows: Sequence[ComparedRow]
    broken: Sequence[RunInRow]
    verdict: Verdict | None
    notes: Sequence[str]
    total: int
    offset: int


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
    """A comparison as the document of `--json`."""
    metric = direction = None
    if comparison.ranking:
        metric = comparison.ranking.metric
        direction = comparison.ranking.direction or None
    return Compared(
        metric=metric,
        direction=direction,
        rows=[
            ComparedRow(
                config=row.values,
                best=number == comparison.best,
                runs=list(map(_run, row.runs)),
                **{name: getattr(row, name) for name in ("finished", "repetitions", "scores")},
            )
            for number, row in enumerate(comparison.rows)
        ],
        broken=list(map(_run, comparison.broken)),
        **{name: getattr(comparison, name) for name in _AS_THEY_ARE},
    )


_AS_THEY_ARE = ("columns", "metrics", "shared", "verdict", "notes", "total", "offset")


def _run(run: Run) -> RunInRow:
    return RunInRow(
        run.path, run.status, run.cause, run.reason, run.seed, run.started, run.seconds
    )


def format_typed(key: str, text: str) -> str:
    """An override whose value was read from one that was typed, as it is typed again."""
    if _UNQUOTED.fullmatch(text):
        return shlex.quote(f"{key}={text}")
    return format_override(key, text)


_UNQUOTED = re.compile(r"""[\w./\\$%*@?|:+,=~(){}\[\]"' -]*""")
"""Values that Hydra takes without quotes, or that bring their own."""
