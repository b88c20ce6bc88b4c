"""The page of a sweep, or of several runs: which was best, what mattered, and what failed."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, final
from urllib.parse import quote

import numpy as np
from rich.text import Text

from assay.errors import AssayError
from assay.figure import Bars, Figure, Line, Points
from assay.files.symlinks import check_inside, read_tail
from assay.quoting import command, format_duration, join_first, pluralize, reads_as_number
from assay.record.run_directory import JOURNAL, LOG
from assay.record.run_lock import is_written
from assay.record.scores import format_score, is_share
from assay.record.secrets import redact
from assay.terminal import printable
from assay_analysis.comparison import compare
from assay_analysis.journal import Journal
from assay_analysis.objective import Objective, score_text
from assay_analysis.read_runs import log_candidates, read_curves, read_runs
from assay_analysis.run import ConfigValues, shorten_values
from assay_report.draw import is_logarithmic
from assay_report.page import Cards, Cell, Code, Figures, Note, Page, Section, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay_analysis.comparison import Comparison, Row
    from assay_analysis.read_runs import Curve
    from assay_analysis.run import Run
    from assay_report.page import Blocks, Tone


@final
@dataclass(frozen=True)
class Contents:
    """All that a page says of a sweep or of several runs."""

    paths: Sequence[Path]
    comparison: Comparison
    each: Comparison | None
    objectives: Sequence[Objective]
    total: int
    typed: Sequence[str] = ()
    notices: Sequence[str] = ()
    thing: str = "run"
    logs: Path | None = None

    @property
    def runs(self) -> list[Run]:
        """Each run, jobs by their numbers."""
        runs = [run for row in self.comparison.rows for run in row.runs]
        return sorted(
            [*runs, *self.comparison.broken], key=lambda run: _natural_key(self.name(run))
        )

    def name(self, run: Run) -> str:
        """The path of a run, below the folder that was named or that all have in common."""
        if len(self.paths) == 1:
            return os.path.relpath(run.path, self.paths[0])
        folders = [path.absolute().parent for path in self.paths]
        return os.path.relpath(run.path.absolute(), os.path.commonpath(folders))


def _natural_key(name: str) -> tuple[int, str]:
    return int(name) if name.isdecimal() else -1, name


def is_sweep(directory: Path) -> bool:
    """Whether a folder is a sweep's."""
    return (directory / JOURNAL).is_file()


def read_contents(paths: Sequence[Path]) -> Contents:
    """Read runs, and the journal of a sweep, even if it still runs or was killed."""
    runs = read_runs(paths, lost=True)
    folder = paths[0]
    notices: list[str] = []
    journal = None
    logs = None
    if len(paths) == 1 and is_sweep(folder):
        try:
            journal = Journal.open(folder, repair=False)
            logs = folder / "logs"
            check_inside(logs, folder)
        except AssayError as error:
            logs = None
            notices.append(f"{error.message}. What follows is from the run directories alone.")
    configs = ConfigValues()
    comparison = compare(runs, configs=configs)
    aims: list[Objective] = []
    if journal:  # which has checked the directions
        aims = [Objective(*aim) for aim in journal.objectives]  # type: ignore[arg-type]  # see above
    scored = [aim.name for aim in aims if any(run.score(aim.name) is not None for run in runs)]
    if not set(scored) <= set(comparison.metrics):
        shown = [*scored, *comparison.metrics]
        comparison = compare(runs, metrics=shown, configs=configs)
    ranking = comparison.ranking
    if ranking is not None and ranking.metric not in [aim.name for aim in aims]:
        aims = [
            Objective(ranking.metric, "maximize" if ranking.direction == "max" else "minimize")
        ]
    aims = aims or [Objective("val/loss", "minimize")]
    num_jobs = 0
    typed: list[str] = []
    thing = "run"
    if journal is not None:
        thing = "job"
        typed = _list_commands(journal)
        num_jobs = len(journal.jobs)
        if num_open := sum(not job.ended for job in journal.jobs.values()):
            goes_on = "it is still running"
            if not is_written(folder):
                goes_on = command("resume", folder)
            notices.append(f"{num_open} of {num_jobs} jobs are not done: {goes_on}.")
    each = None
    if any(len(row.runs) > 1 for row in comparison.rows):
        each = compare(runs, metrics=scored, each=True, configs=configs)
    return Contents(
        paths,
        comparison,
        each,
        aims,
        max(num_jobs, len(runs)),
        typed,
        [*notices, *(f"{note[:1].upper()}{note[1:]}." for note in comparison.notes)],
        thing,
        logs,
    )


def _list_commands(journal: Journal) -> list[str]:
    folder = journal.header["config_dir"]
    return [command("train", "-m", *words, config_dir=folder) for words in journal.commands]


_LINES = 25
_BYTES = 16 << 10
_LONGEST = 400
"""Letters of a line."""
_TAILS = 40
"""Kinds of failures whose log is shown: the page is to stay small."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def log_tail(path: Path) -> str:
    """The last lines of a log, without what a terminal would obey, and without secrets."""
    try:
        content = read_tail(path, _BYTES)
    except OSError:
        return ""
    # A progress bar overwrites its line; the last state of it counts.
    text = content.decode(errors="replace").replace("\r\n", "\n").rstrip()
    lines = Text.from_ansi(text).plain.split("\n")
    if len(content) == _BYTES:  # the first one has lost its beginning
        lines = lines[1:]
    cut = [
        line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines[-_LINES:]
    ]
    return printable(redact("\n".join(cut)))


_TONES: dict[str, Tone] = {
    **dict.fromkeys(("failed", "broken"), "bad"),
    **dict.fromkeys(("pruned", "waiting"), "dim"),
    **dict.fromkeys(("interrupted", "running"), "warn"),
}
_MOST_ROWS = 300
"""Of a table: all of 10,000 runs would be a page that no browser sorts."""
_NAMED = 12
"""Jobs of one failure that are named."""


def sweep_page(contents: Contents, folder: Path) -> Page:
    """Make the page of a sweep."""
    comparison = contents.comparison
    aims = contents.objectives
    rows = comparison.rows
    figures, notes = parameter_figures(rows, aims[0])
    curves, unread = curve_figures(rows, aims)
    title = contents.thing.capitalize()
    warned = ((contents.name(run), text) for run in contents.runs for text in run.warnings)
    useless = [f"{title} {name}: {warning}" for name, warning in warned]
    warnings = _note_blocks([*contents.notices, *unread, *useless], "warn")
    board: Blocks = [_table(contents, comparison, folder)]
    jobs: Blocks = []
    if contents.each:
        jobs = [_table(contents, contents.each, folder)]
    typed: Blocks = []
    if contents.typed:
        typed = [Code("\n".join(contents.typed))]
    if comparison.verdict:
        verdict = comparison.verdict.sentence
        board += [Note(f"{verdict[:1].upper()}{verdict[1:]}.")]
    sections = [
        Section("summary", "Summary", [*warnings, _summary(contents)]),
        Section("leaderboard", "Leaderboard", board, _describe_order(contents)),
        Section("parameters", "Parameters", [*_figures(figures), *_note_blocks(notes)]),
        Section("curves", "Learning curves", _figures(curves)),
        Section("failures", "Failures", failure_blocks(contents)),
        Section("jobs", f"{title}s", jobs),
        Section("reproduce", "Reproduce", typed),
    ]
    paths = contents.paths
    return Page(
        "Sweep" if contents.thing == "job" else "Runs",
        paths[0].resolve().name if len(paths) == 1 else f"{contents.total} runs",
        sections,
        _status(contents),
        [
            ", ".join(map(str, paths)),
            *(f"{key}={value}" for key, value in comparison.shared.items()),
        ],
    )


def _status(contents: Contents) -> tuple[str, Tone]:
    counts = Counter(run.status for run in contents.runs)
    failed = counts["failed"] + counts["broken"]
    if counts["finished"] + counts["pruned"] + failed < contents.total:
        return f"{counts['finished']} of {contents.total} finished", "warn"
    if failed:
        return (f"{failed} of {contents.total} failed", "bad")
    return ("finished", "good")


def _summary(contents: Contents) -> Cards:
    cards = []
    things = f"{contents.thing}s"
    comparison = contents.comparison
    if comparison.best is not None:
        best = comparison.rows[comparison.best]
        repeated = "seeds"
        if best.folds:
            repeated = "folds"
        for aim in contents.objectives:
            if score := best.scores.get(aim.name):
                over = ""
                if score.n > 1:
                    over = (
                        f"{score_text(aim.name, score, best.shares)} over {score.n} {repeated}, "
                    )
                text = format_score(aim.name, score.mean, best.shares)
                cards.append((f"{aim.name} of the best", text, f"{over}{best.label}"))
    runs = contents.runs
    counts = ", ".join(
        f"{count} {status}" for status, count in Counter(run.status for run in runs).items()
    )
    cards.append((things, str(contents.total), counts))
    cards.append(
        ("configurations", str(len(comparison.rows)), "that differ in more than seed and fold")
    )
    if took := sum(run.seconds for run in runs):
        cards.append(("time", format_duration(took), f"of all {things} together"))
    return Cards(cards)


def _describe_order(contents: Contents) -> str:
    objective = contents.objectives[0]
    ranking = contents.comparison.ranking
    if ranking is not None and not ranking.decides:
        return f"By {objective.name}, which cannot rank these runs."
    side = "lowest"
    if objective.direction == "maximize":
        side = "highest"
    seeds = ""
    if contents.each:
        seeds = " Scores are means of seeds or folds with their 95 % interval (Student's t)."
    return f"By {objective.name}, the {side} first; what has not finished comes last.{seeds}"


def _table(contents: Contents, comparison: Comparison, folder: Path) -> Table:
    """A line for each row; where a row is one run, with a link to it."""
    keys = comparison.columns
    names = comparison.metrics
    repeated = any(len(row.runs) > 1 for row in comparison.rows)
    rows: list[list[Cell | str]] = []
    for index, row in enumerate(comparison.rows[:_MOST_ROWS]):
        tone: Tone = ""
        if index == comparison.best:
            tone = "best"
        means = [(name, row.scores.get(name) if row.finished else None) for name in names]
        scores = [
            Cell(score_text(name, mean, row.shares), mean.mean, tone) if mean else Cell("")
            for name, mean in means
        ]
        counted = row.counted[0]
        state = Cell(
            row.state or "finished", tone=_TONES.get(counted.status, ""), title=counted.reason
        )
        time = Cell("")
        if row.seconds is not None:
            time = Cell(format_duration(row.seconds), row.seconds)
        first: Cell | str = f"{row.finished} of {row.repetitions}"
        if not repeated:
            first = _link(contents, row.runs[0], folder)
        rows.append(
            [
                Cell(str(index + 1), index + 1),
                first,
                *_values(row.values, keys),
                *scores,
                state,
                time,
            ]
        )
    head = ["#", "finished" if repeated else contents.thing, *keys, *names, "status", "time"]
    numeric = frozenset(("#", *names, "time"))
    caption = ""
    if (total := len(comparison.rows)) > len(rows):
        folders = shlex.join(map(str, contents.paths))
        verb = "compare"
        if comparison is contents.each:
            verb = "ls"
        caption = (
            f"The first {len(rows)} of {total:,}: assay {verb} {folders} --format csv has all."
        )
    return Table(head, rows, caption, numeric, filtered=len(rows) > 5)


def failure_blocks(contents: Contents) -> Blocks:
    """Runs that did not finish, grouped by reason apart from its numbers, largest group first."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in contents.runs:
        if run.status in ("failed", "broken", "interrupted"):
            reason = _NUMBER.sub("0", run.reason.replace(str(run.path), ""))
            groups.setdefault((run.status, run.cause, reason), []).append(run)
    blocks: Blocks = []
    for index, runs in enumerate(sorted(groups.values(), key=len, reverse=True)):
        example = runs[0]
        names = join_first([contents.name(run) for run in runs], _NAMED)
        cause = ""
        if example.cause:
            cause = f" ({example.cause.replace('_', ' ')})"
        heading = f"{pluralize(len(runs), contents.thing)} {example.status}{cause}: {names}."
        blocks.append(
            Note(f"{heading} {printable(example.reason)}".strip(), _TONES.get(example.status, ""))
        )
        log_path = None
        if not example.path.is_symlink():
            log_path = example.path / LOG
        printed = None
        if contents.logs is not None:
            printed = contents.logs / f"{example.path.name}.txt"
        # What its process printed counts where it died or has no log of its own.
        logs = []
        if index < _TAILS:
            logs = log_candidates(log_path, printed, died=example.cause == "killed")
        tails = ((log, log_tail(log)) for log in logs)
        blocks += [
            Code(tail, f"The end of {log}", folded=index > 0) for log, tail in tails if tail
        ][:1]
    return blocks


def _note_blocks(texts: Sequence[str], tone: Tone = "") -> Blocks:
    hidden = []
    if len(texts) > 10:
        hidden = [f"and {len(texts) - 10} more of these"]
    return [Note(text, tone) for text in (*texts[:10], *hidden)]


def _figures(figures: Sequence[Figure]) -> Blocks:
    if figures:
        return [Figures(figures)]
    return []


def _link(contents: Contents, run: Run, folder: Path) -> Cell:
    name = contents.name(run)
    path = run.path.resolve()
    href = ""
    if path.is_dir() and path.is_relative_to(folder.resolve()):
        href = f"{quote(path.relative_to(folder.resolve()).as_posix())}/"
    return Cell(name, float(name) if name.isdecimal() else None, href=href, title=str(run.path))


def _values(values: Mapping[str, str | None], keys: Sequence[str]) -> list[Cell]:
    """One cell per key with the shortened value; its full value in the tooltip."""
    short = shorten_values(values)
    texts = [(short.get(key, ""), values.get(key) or "") for key in keys]
    return [Cell(text, title=full if full != text else "") for text, full in texts]


MISSING = "–"
_IN_DECADES = ("lr", "learning_rate", "weight_decay", "eps")
"""Ends of keys whose values are compared by their ratios, however few they are."""


_MOST = 10
"""Parameters with a figure."""
_MOST_BARS = 30


def parameter_figures(rows: Sequence[Row], aim: Objective) -> tuple[list[Figure], list[str]]:
    """The score over each parameter."""
    scored = [
        (row, row.scores[aim.name].mean)
        for row in rows
        if row.finished and aim.name in row.scores
    ]
    typed = dict.fromkeys(key for row, _ in scored for key in row.values)
    keys = [key for key in typed if len({row.values.get(key) for row, _ in scored}) > 1]
    if len(scored) < 2 or not keys:
        few = f"Fewer than two configurations have finished with a {aim.name}."
        return [], [few] if len(rows) > 1 else []
    notes = []
    if len(keys) > _MOST:
        notes = [f"The first {_MOST} of {len(keys)} parameters."]
    figures = [
        _slice_figure(key, scored, aim, f"slice_{number}")
        for number, key in enumerate(keys[:_MOST], 1)
    ]
    return figures, notes


def _slice_figure(
    key: str,
    scored: Sequence[tuple[Row, float]],
    aim: Objective,
    name: str,
) -> Figure:
    mark: Points | Bars
    texts = [row.values.get(key) or MISSING for row, _ in scored]
    means = [mean for _, mean in scored]
    log = ""
    caption = ""
    shares = scored[0][0].shares
    if all(reads_as_number(text) and math.isfinite(float(text)) for text in texts):
        x = [float(text) for text in texts]
        log = "x" * (min(x) > 0 and (key.endswith(_IN_DECADES) or is_logarithmic(x)))
        labels = [
            f"{row.label}\n{aim.name} {format_score(aim.name, mean, shares)}"
            for row, mean in scored
        ]
        mark = Points("", x, means, labels)
    else:
        import pandas as pd

        # In the order of the configurations: the best first.
        groups = pd.Series(means, texts).groupby(level=0, sort=False)
        table = groups.agg(["mean", "min", "max", "size"])
        words = table.index.tolist()[:_MOST_BARS]
        middle, low, high, sizes = table.iloc[:_MOST_BARS].to_numpy().T
        labels = [
            f"{word}: mean {format_score(aim.name, mean, shares)} of {size:.0f}"
            for word, mean, size in zip(words, middle, sizes, strict=True)
        ]
        mark = Bars("", words, middle, low, high, labels)
        caption = "Mean of the configurations with each value; from the lowest to the highest."
        if len(words) < len(table):
            caption += f" The best {len(words)} of {len(table)} values."
    percent = "y" * is_share(aim.name, shares)
    return Figure(name, key, (mark,), key, aim.name, log=log, shares=percent, caption=caption)


_CURVES = 16
"""Configurations drawn."""
_METRICS = 4
_FAR = 100
"""Interquartile ranges off at which a value, such as the loss of a run that diverged, is out of sight."""
_NEAR = 3
"""Interquartile ranges that are then shown at most."""


def curve_figures(
    rows: Sequence[Row], aims: Sequence[Objective]
) -> tuple[list[Figure], list[str]]:
    """One figure per metric: the objectives, then the losses that were logged."""
    problems: list[str] = []
    read: dict[str, list[dict[str, Curve]]] = {}
    for rank, row in enumerate(rows, 1):
        if len(read) == _CURVES:
            break
        curves = []
        for run in row.counted:
            try:
                if run.path.is_dir() and not run.path.is_symlink():
                    curves += [read_curves(run.path)]
            except AssayError as error:
                problems.append(error.message)
        if any(curves):
            read[f"{rank}: {row.short_label}"] = curves
    names = [aim.name for aim in aims]
    candidates = [
        *names,
        *(f"train/{name.rpartition('/')[2]}" for name in names),
        "train/loss",
        "val/loss",
    ]
    runs = [run_curves for curves in read.values() for run_curves in curves]
    logged = {
        name for run_curves in runs for name, curve in run_curves.items() if len(curve.steps) > 1
    }
    names_shown = [name for name in dict.fromkeys(candidates) if name in logged][:_METRICS]
    return [_curve_figure(name, read, rows) for name in names_shown], problems


def _curve_figure(
    name: str, curves_of: Mapping[str, list[dict[str, Curve]]], rows: Sequence[Row]
) -> Figure:
    drawn = [
        mean_line(label, [run[name] for run in curves if name in run])
        for label, curves in curves_of.items()
    ]
    lines = [line for line in drawn if line is not None]
    caption = []
    if len(lines) < len(rows):
        caption.append(f"Of {len(rows)} configurations the best {len(lines)} with a curve.")
    if any(line.low is not None for line in lines):
        caption.append("Mean of the seeds; the band reaches from the lowest to the highest.")
    values = np.concatenate([np.zeros(0), *(np.asarray(line.y, dtype=float) for line in lines)])
    y_range = None
    lower = upper = 0.0
    if len(values):
        lower, upper = np.quantile(values, (0.25, 0.75))
    off = np.maximum(lower - values, values - upper)
    spread = upper - lower
    if 0 < spread < np.inf and (off > _FAR * spread).any():  # all others would be one flat line
        near = values[off <= _NEAR * spread]
        room = np.ptp(near) / 20
        y_range = float(near.min() - room), float(near.max() + room)
        far = pluralize(len(values) - len(near), "point")
        caption.append(f"{far} far outside: a double click shows all.")
    return Figure(
        f"curve_{re.sub('[^a-z0-9]', '_', name.lower())}",
        name,
        tuple(lines),
        "optimizer step",
        name,
        shares="y" * is_share(name, rows[0].shares),
        y_range=y_range,
        is_wide=True,
        caption=" ".join(caption),
    )


def mean_line(label: str, curves: Sequence[Curve]) -> Line | None:
    """The mean of several runs' curves at each step, of those that were logged there."""
    import pandas as pd

    steps = [step for curve in curves for step in curve.steps]
    values = pd.Series(
        [value for curve in curves for value in curve.values], index=steps, dtype=float
    )
    table = values[np.isfinite(values)].groupby(level=0).agg(["mean", "min", "max"])
    if table.empty:
        return None
    x, mean, low, high = table.index.to_numpy(), *table.to_numpy().T
    if len(curves) < 2:
        return Line(label, x, mean)
    return Line(label, x, mean, low, high)
