"""The page of a sweep, or of several runs: which was best, what mattered, and what failed."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

from assay.analysis.comparison import compare, default_metric
from assay.analysis.objective import Objective, format_score, score_text
from assay.analysis.out_of_fold import gathered, mean_scores
from assay.analysis.read_runs import read_runs
from assay.analysis.run import in_one_line, in_short
from assay.errors import AssayError
from assay.files.symlinks import check_inside, read_end
from assay.quoting import counted, duration
from assay.record.journal import FILE, Journal
from assay.record.log_file import FILE as LOG
from assay.record.log_file import logs_of
from assay.record.run_lock import is_written
from assay.record.secrets import redact
from assay.report.page import Cards, Cell, Code, Figures, Note, Page, Section, Table
from assay.report.sweep_figures import curve_figures, parameter_figures, tradeoff
from assay.targets.resolve import import_trusted
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from assay.analysis.comparison import Comparison
    from assay.analysis.out_of_fold import OutOfFold
    from assay.analysis.run import Run
    from assay.figure.figure import Figure
    from assay.report.page import Block, Tone


@final
@dataclass(frozen=True)
class Contents:
    """All that a page says of a sweep or of several runs."""

    paths: Sequence[Path]
    comparison: Comparison
    each: Comparison
    objectives: Sequence[Objective]
    total: int
    typed: Sequence[str] = ()
    notices: Sequence[str] = ()
    is_sweep: bool = False
    logs: Path | None = None

    @property
    def runs(self) -> list[tuple[Run, Mapping[str, str | None]]]:
        """Each run with the values of its row, jobs by their numbers."""
        rows = self.comparison.rows
        runs = [(run, row.values) for row in rows for run in row.runs]
        broken = [(run, dict[str, str | None]()) for run in self.comparison.broken]
        return sorted([*runs, *broken], key=lambda one: _natural(self.name(one[0])))

    def name(self, run: Run) -> str:
        """The path of a run, below the folder that was named or that all have in common."""
        if len(self.paths) == 1:
            return os.path.relpath(run.path, self.paths[0])
        folders = [path.absolute().parent for path in self.paths]
        return os.path.relpath(run.path.absolute(), os.path.commonpath(folders))


def _natural(name: str) -> tuple[int, str]:
    return int(name) if name.isdecimal() else -1, name


def is_sweep(directory: Path) -> bool:
    """Whether a folder is a sweep's."""
    return (directory / FILE).is_file()


def read_contents(paths: Sequence[Path]) -> Contents:
    """Read any runs, and of a sweep its journal, also while it still runs or after it was killed."""
    runs, first = read_runs(paths, lost=True), paths[0]
    notices: list[str] = []
    journal, logs = None, None
    if len(paths) == 1 and is_sweep(first):
        try:
            journal = Journal.open(first, repair=False)
            logs = first / "logs"
            check_inside(logs, first)
        except AssayError as error:
            logs = None
            notices.append(f"{error.message}. What follows is from the run directories alone.")
    sort = default_metric(paths, runs)
    comparison = compare(runs, sort=sort)
    aims = [Objective(name, direction) for name, direction in journal.objectives] if journal else []  # type: ignore[arg-type]  # checked by the journal
    scored = [aim.name for aim in aims if any(run.score(aim.name) is not None for run in runs)]
    if not set(scored) <= set(comparison.metrics):
        comparison = compare(runs, sort=sort, metrics=[*scored, *comparison.metrics])
    ranking = comparison.ranking
    if not aims:
        name = ranking.metric if ranking is not None else "val/loss"
        is_max = ranking is not None and ranking.direction == "max"
        aims = [Objective(name, "maximize" if is_max else "minimize")]
    jobs = journal.jobs.values() if journal else ()
    if left := sum(not job.ended for job in jobs):
        goes_on = "it is still running" if is_written(first) else f"assay resume {shlex.quote(str(first))}"
        notices.append(f"{left} of {len(jobs)} jobs are not done: {goes_on}.")
    return Contents(
        paths,
        comparison,
        compare(runs, metrics=scored, each=True),
        aims,
        max(len(jobs), len(runs)),
        [shlex.join(["assay", "train", "-m", *command]) for command in journal.commands] if journal else (),
        [*notices, *(f"{note[:1].upper()}{note[1:]}." for note in comparison.notes)],
        journal is not None,
        logs,
    )


_LINES: Final = 25
_BYTES: Final = 16 << 10
_LONGEST: Final = 400
"""Letters of a line."""
_TAILS: Final = 40
"""Kinds of failures whose log is shown: the page is to stay small."""
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Sequences that a terminal obeys: colours, the cursor, titles."""
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


@final
@dataclass(frozen=True)
class Failure:
    """Runs that failed for the same reason."""

    runs: Sequence[Run]
    log: Path | None
    tail: str


def failures(contents: Contents) -> list[Failure]:
    """What did not come to its end, most runs first; reasons that differ in numbers alone are one."""
    together: dict[tuple[str, str, str], list[Run]] = {}
    for run, _ in contents.runs:
        if run.status in ("failed", "broken", "interrupted"):
            together.setdefault((run.status, run.cause, _NUMBER.sub("0", run.reason)), []).append(run)
    found: list[Failure] = []
    for runs in sorted(together.values(), key=lambda runs: -len(runs)):
        first = runs[0]
        own = None if first.path.is_symlink() else first.path / LOG
        printed = contents.logs / f"{first.path.name}.txt" if contents.logs is not None else None
        # What its process printed counts where it died or has no log of its own.
        logs = logs_of(own, printed, died=first.cause == "killed") if len(found) < _TAILS else []
        tails = ((log, log_tail(log)) for log in logs)
        log, tail = next(((log, tail) for log, tail in tails if tail), (None, ""))
        found.append(Failure(runs, log, tail))
    return found


def log_tail(path: Path) -> str:
    """The last lines of a log, without what a terminal would obey, and without secrets."""
    try:
        content = read_end(path, _BYTES)
    except OSError:
        return ""
    text = _ESCAPES.sub("", content.decode(errors="replace")).replace("\r\n", "\n").rstrip()
    # A progress bar overwrites its line; the last state of it counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    whole = lines[1:] if len(content) == _BYTES else lines
    kept = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in whole[-_LINES:]]
    return printable(redact("\n".join(kept)))


FOLDS: Final = "Each sample is tested once, by the run that has not trained on it. Scores are of all at once."


def fold_blocks(contents: Contents) -> list[Block]:
    """Scores over the samples of all folds; nothing where no run has tested one."""
    every = gathered(contents.comparison.rows)
    if not every:
        return []
    import_trusted(one.predictions.task for one in every)
    labels = {id(one): f"{in_one_line(one.values)}: " if one.values else "" for one in every}
    problems = dict.fromkeys(f"{labels[id(one)]}{problem}" for one in every for problem in one.problems)
    notes = [Note(f"{problem[:1].upper()}{problem[1:]}.", "warn") for problem in problems]
    return [*notes, _out_of_fold(every, contents)]


def _out_of_fold(found: Sequence[OutOfFold], contents: Contents) -> Table:
    together: dict[tuple[tuple[str, str], ...], list[OutOfFold]] = {}
    for one in found:
        together.setdefault(tuple(one.values.items()), []).append(one)
    scores = [mean_scores(several) for several in together.values()]
    names, keys = dict.fromkeys(name for of in scores for name in of), contents.comparison.columns
    rows: list[list[Cell | str]] = []
    for several, of in zip(together.values(), scores, strict=True):
        samples = len(several[0].predictions.keys)
        cells = [Cell(format_score(name, of[name]), of[name]) if name in of else "" for name in names]
        rows.append([*_values(several[0].values, keys), Cell(f"{samples:,}", samples), *cells])
    return Table(
        [*keys, "samples", *names],
        rows,
        numeric=frozenset(("samples", *names)),
        caption="Each prediction is in out_of_fold.parquet." if contents.is_sweep else "",
        title="Out of fold",
    )


_TONES: Final[dict[str, Tone]] = {
    **dict.fromkeys(("failed", "broken"), "bad"),
    **dict.fromkeys(("pruned", "waiting"), "dim"),
    **dict.fromkeys(("interrupted", "running"), "warn"),
}
_NAMED: Final = 12
"""Jobs of one failure that are named."""


def sweep_page(contents: Contents, folder: Path) -> Page:
    """Make the page."""
    comparison, aims = contents.comparison, contents.objectives
    rows = comparison.rows
    figures, notes = parameter_figures(rows, aims[0])
    curves, unread = curve_figures(rows, aims)
    against = tradeoff(rows, aims)
    repeated = any(len(row.runs) > 1 for row in rows)
    thing = "job" if contents.is_sweep else "run"
    useless = [
        f"{thing.capitalize()} {contents.name(run)}: {one}"
        for run, _ in contents.runs
        for one in run.warnings
    ]
    said = comparison.test.verdict
    board = _table(contents, comparison, folder, thing)
    sections = [
        Section(
            "summary",
            "Summary",
            [*_notes([*contents.notices, *unread, *useless], "warn"), _summary(contents, thing)],
        ),
        Section(
            "leaderboard",
            "Leaderboard",
            [board, *([Note(f"{said[:1].upper()}{said[1:]}.")] if said else [])],
            _order(contents, repeated=repeated),
        ),
        Section("folds", "Folds", fold_blocks(contents), FOLDS),
        Section("parameters", "Parameters", [*_figures(figures), *_notes(notes)]),
        Section("tradeoff", "Trade-off", _figures([against] if against else [])),
        Section("curves", "Learning curves", _figures(curves)),
        Section("failures", "Failures", _failures(contents, thing)),
        Section(
            "jobs",
            f"{thing.capitalize()}s",
            [_table(contents, contents.each, folder, thing)] if repeated else [],
        ),
        Section("reproduce", "Reproduce", [Code("\n".join(contents.typed))] if contents.typed else []),
    ]
    paths = contents.paths
    return Page(
        "Sweep" if contents.is_sweep else "Runs",
        paths[0].resolve().name if len(paths) == 1 else f"{contents.total} runs",
        sections,
        _status(contents),
        [", ".join(map(str, paths)), *(f"{key}={value}" for key, value in comparison.shared.items())],
    )


def _status(contents: Contents) -> tuple[str, Tone]:
    counts = Counter(run.status for run, _ in contents.runs)
    failed = counts["failed"] + counts["broken"]
    if counts["finished"] + counts["pruned"] + failed < contents.total:
        return f"{counts['finished']} of {contents.total} finished", "warn"
    return (f"{failed} of {contents.total} failed", "bad") if failed else ("finished", "good")


def _summary(contents: Contents, thing: str) -> Cards:
    cards, comparison = [], contents.comparison
    if comparison.best is not None:
        best = comparison.rows[comparison.best]
        repeated = "folds" if best.folds else "seeds"
        for aim in contents.objectives:
            if score := best.scores.get(aim.name):
                over = f"{score_text(aim.name, score)} over {score.n} {repeated}, " if score.n > 1 else ""
                shown = format_score(aim.name, score.mean)
                cards.append((f"{aim.name} of the best", shown, f"{over}{best.label}"))
    runs = [run for run, _ in contents.runs]
    words = ", ".join(f"{count} {status}" for status, count in Counter(run.status for run in runs).items())
    cards.append((f"{thing}s", str(contents.total), words))
    cards.append(("configurations", str(len(comparison.rows)), "that differ in more than seed and fold"))
    if took := sum(run.seconds for run in runs):
        cards.append(("time", duration(took), f"of all {thing}s together"))
    return Cards(cards)


def _order(contents: Contents, *, repeated: bool) -> str:
    first, ranking = contents.objectives[0], contents.comparison.ranking
    if ranking is not None and not ranking.decides:
        return f"By {first.name}, which cannot tell here which is best."
    way = "highest" if first.direction == "maximize" else "lowest"
    seeds = " Scores are means of seeds or folds with their 95 % interval (Student's t)." if repeated else ""
    return f"By {first.name}, the {way} first; what has not finished comes last.{seeds}"


def _table(contents: Contents, comparison: Comparison, folder: Path, thing: str) -> Table:
    """A line for each row; where a row is one run, with a link to it."""
    keys, names = comparison.columns, comparison.metrics
    repeated = any(len(row.runs) > 1 for row in comparison.rows)
    rows: list[list[Cell | str]] = []
    for place, row in enumerate(comparison.rows):
        tone: Tone = "best" if place == comparison.best else ""
        scores = [(name, row.scores.get(name) if row.finished else None) for name in names]
        of = f"{row.finished} of {row.repetitions}"
        rows.append(
            [
                Cell(str(place + 1), place + 1),
                of if repeated else _link(contents, row.runs[0], folder),
                *_values(row.values, keys),
                *(Cell(score_text(name, one), one.mean, tone) if one else Cell("") for name, one in scores),
                Cell(
                    row.state or "finished",
                    tone=_TONES.get(row.counted[0].status, ""),
                    title=row.counted[0].reason,
                ),
                _time(row.seconds),
            ]
        )
    head = ["#", "finished" if repeated else thing, *keys, *names, "status", "time"]
    numeric = frozenset(("#", *names, "time"))
    return Table(_distinct(head), rows, numeric=numeric, filtered=len(rows) > 5)


def _failures(contents: Contents, thing: str) -> list[Block]:
    blocks: list[Block] = []
    for place, failure in enumerate(failures(contents)):
        runs, first = failure.runs, failure.runs[0]
        names = ", ".join(contents.name(run) for run in runs[:_NAMED])
        more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
        cause = f" ({first.cause.replace('_', ' ')})" if first.cause else ""
        which = f"{counted(len(runs), thing)} {first.status}{cause}: {names}{more}."
        blocks.append(Note(f"{which} {printable(first.reason)}".strip(), _TONES.get(first.status, "")))
        if failure.tail:
            blocks.append(Code(failure.tail, f"The end of {failure.log}", folded=place > 0))
    return blocks


def _notes(texts: Sequence[str], tone: Tone = "") -> list[Block]:
    more = [f"and {len(texts) - 10} more of these"] if len(texts) > 10 else []
    return [Note(text, tone) for text in (*texts[:10], *more)]


def _figures(figures: Sequence[Figure]) -> list[Block]:
    return [Figures(figures)] if figures else []


def _link(contents: Contents, run: Run, folder: Path) -> Cell:
    name, path = contents.name(run), run.path.resolve()
    href = ""
    if path.is_dir() and path.is_relative_to(folder.resolve()):
        href = f"{quote(path.relative_to(folder.resolve()).as_posix())}/"
    return Cell(name, float(name) if name.isdecimal() else None, href=href, title=str(run.path))


def _values(values: Mapping[str, str | None], keys: Sequence[str]) -> list[Cell]:
    """A cell per key, in short; the pointer tells all."""
    short, whole = in_short(values), {key: values.get(key) or "" for key in keys}
    texts = [(short.get(key, ""), whole[key]) for key in keys]
    return [Cell(text, title=full if full != text else "") for text, full in texts]


def _time(seconds: float | None) -> Cell:
    return Cell("" if seconds is None else duration(seconds), seconds)


def _distinct(names: Sequence[str]) -> list[str]:
    """A key may be called as a column of the page's own."""
    return [name + " " * names[:at].count(name) for at, name in enumerate(names)]
