"""The page of a sweep, or of several runs: which was best, what mattered, and what failed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

from assay.analysis.config_values import in_one_line, in_short
from assay.analysis.objective import format_score, score_text
from assay.analysis.out_of_fold import gathered, mean_scores
from assay.analysis.statistics import mean_of
from assay.files.symlinks import read_end
from assay.quoting import counted, duration
from assay.record.log_file import FILE as LOG
from assay.record.log_file import logs_of
from assay.record.secrets import redact
from assay.report.page import Cards, Cell, Code, Figures, Note, Page, Section, Table
from assay.report.read_sweep import ranked, verdict
from assay.report.sweep_figures import curve_figures, parameter_figures, tradeoff
from assay.targets.own_task import import_trusted
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.analysis.jobs import Job, JobGroup
    from assay.analysis.out_of_fold import OutOfFold
    from assay.analysis.statistics import Mean
    from assay.figure.figure import Figure
    from assay.report.page import Block, Tone
    from assay.report.read_sweep import Contents

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
    """Jobs that failed for the same reason."""

    status: str
    cause: str
    reason: str
    jobs: tuple[Job, ...]
    log: Path | None
    tail: str


def failures(contents: Contents) -> list[Failure]:
    """What did not come to its end, most jobs first; reasons that differ in numbers alone are one."""
    together: dict[tuple[str, str, str], list[Job]] = {}
    for job in contents.jobs:
        if job.status in ("failed", "broken", "interrupted"):
            cause, reason = (job.outcome.cause, job.outcome.reason) if job.outcome is not None else ("", "")
            together.setdefault((job.status, cause, _NUMBER.sub("0", reason)), []).append(job)
    found: list[Failure] = []
    for (status, why, _), jobs in sorted(together.items(), key=lambda item: -len(item[1])):
        first = jobs[0]
        reason = printable(first.outcome.reason) if first.outcome is not None else ""
        own = first.run_dir / LOG if first.run_dir is not None else None
        # What its process printed counts where it died or has no log of its own.
        logs = logs_of(own, first.output, died=why == "killed") if len(found) < _TAILS else []
        tails = ((log, log_tail(log)) for log in logs)
        log, tail = next(((log, tail) for log, tail in tails if tail), (None, ""))
        found.append(Failure(status, why, reason, tuple(jobs), log, tail))
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
    """Scores over the samples of all folds; nothing where no job has tested one."""
    every = gathered(contents.jobs)
    if not every:
        return []
    import_trusted(one.predictions.task for one in every)
    labels = {id(one): f"{in_one_line(one.values)}: " if one.values else "" for one in every}
    problems = dict.fromkeys(f"{labels[id(one)]}{problem}" for one in every for problem in one.problems)
    notes = [Note(f"{problem[:1].upper()}{problem[1:]}.", "warn") for problem in problems]
    return [*notes, _out_of_fold(every, contents)]


def _means(names: Iterable[str], jobs: Sequence[Job]) -> list[Cell]:
    """Of scores of the test over jobs, with their intervals."""
    folds = [job.fold for job in jobs]
    means = [(name, mean_of([job.tested.get(name) for job in jobs], folds)) for name in names]
    return [Cell("") if mean is None else Cell(score_text(name, mean), mean.mean) for name, mean in means]


def _out_of_fold(found: Sequence[OutOfFold], contents: Contents) -> Table:
    together: dict[tuple[tuple[str, str], ...], list[OutOfFold]] = {}
    for one in found:
        together.setdefault(tuple(one.values.items()), []).append(one)
    scores = [mean_scores(several) for several in together.values()]
    names = dict.fromkeys(name for of in scores for name in of)
    rows: list[list[Cell | str]] = []
    for several, of in zip(together.values(), scores, strict=True):
        short, samples = in_short(several[0].values), len(several[0].predictions.keys)
        cells = [Cell(format_score(name, of[name]), of[name]) if name in of else "" for name in names]
        keys = [short.get(key, "") for key in contents.keys]
        rows.append([*keys, Cell(f"{samples:,}", samples), *cells])
    return Table(
        [*contents.keys, "samples", *names],
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
    groups = ranked(contents)
    figures, notes = parameter_figures(contents, groups)
    curves, unread = curve_figures(contents, groups)
    against = tradeoff(contents, groups)
    repeated = len(groups) < len(contents.jobs)
    thing = "job" if contents.is_sweep else "run"
    warned = [(job.name, job.outcome.warnings) for job in contents.jobs if job.outcome is not None]
    useless = [f"{thing.capitalize()} {name}: {one}" for name, several in warned for one in several]
    problems = [*contents.notices, *unread, *useless]
    said = verdict(contents, groups) if contents.decides else ""
    board = _leaderboard(contents, groups, folder, thing, repeated=repeated)
    sections = [
        Section("summary", "Summary", [*_notes(problems, "warn"), _summary(contents, groups, thing)]),
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
        Section("failures", "Failures", _failures(failures(contents), thing)),
        Section("jobs", f"{thing.capitalize()}s", [_jobs(contents, folder, thing)] if repeated else []),
        Section("reproduce", "Reproduce", [Code("\n".join(contents.typed))] if contents.typed else []),
    ]
    return Page(
        "Sweep" if contents.is_sweep else "Runs",
        contents.title,
        sections,
        _status(contents),
        [contents.source, *contents.shared],
    )


def _status(contents: Contents) -> tuple[str, Tone]:
    counts = Counter(job.status for job in contents.jobs)
    if counts["running"] or counts["waiting"] or counts["interrupted"]:
        return f"{counts['finished']} of {len(contents.jobs)} finished", "warn"
    if failed := counts["failed"] + counts["broken"]:
        return f"{failed} of {len(contents.jobs)} failed", "bad"
    return "finished", "good"


def _summary(contents: Contents, groups: Sequence[JobGroup], thing: str) -> Cards:
    cards = []
    if groups and contents.decides:
        best = groups[0]
        repeated = "folds" if any(job.fold is not None for job in best.jobs) else "seeds"
        for aim, score in zip(contents.objectives, best.scores, strict=True):
            if score is not None:
                over = f"{score_text(aim.name, score)} over {score.n} {repeated}, " if score.n > 1 else ""
                shown = format_score(aim.name, score.mean)
                cards.append((f"{aim.name} of the best", shown, f"{over}{best.label}"))
    counts = Counter(job.status for job in contents.jobs)
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    cards.append((f"{thing}s", str(len(contents.jobs)), words))
    cards.append(("configurations", str(len(groups)), "that differ in more than seed and fold"))
    if took := sum(job.outcome.seconds or 0 for job in contents.jobs if job.outcome is not None):
        cards.append(("time", duration(took), f"of all {thing}s together"))
    return Cards(cards)


def _order(contents: Contents, *, repeated: bool) -> str:
    first = contents.objectives[0]
    if not contents.decides:
        return f"By {first.name}, which cannot tell here which is best."
    way = "highest" if first.direction == "maximize" else "lowest"
    seeds = " Scores are means of seeds or folds with their 95 % interval (Student's t)." if repeated else ""
    return f"By {first.name}, the {way} first; what has not finished comes last.{seeds}"


def _leaderboard(
    contents: Contents, groups: Sequence[JobGroup], folder: Path, thing: str, *, repeated: bool
) -> Table:
    keys, aims = contents.keys, contents.objectives
    best: list[Mean | None] = []
    for place, aim in enumerate(aims):
        whole = [group.scores[place] for group in groups if group.finished == len(group.jobs)]
        scores = [score for score in whole if score is not None and contents.decides]
        best.append(min(scores, key=lambda score: aim.sort_key(score.mean), default=None))
    others = dict.fromkeys(name for job in contents.jobs for name in job.tested)
    tests = sorted(others.keys() - {aim.name for aim in aims}, key=list(others).index)
    tests.sort(key=lambda name: name.endswith("loss"))
    rows: list[list[Cell | str]] = []
    for rank, group in enumerate(groups, 1):
        scores_of_aims = [
            Cell("")
            if score is None
            else Cell(score_text(aim.name, score), score.mean, tone="best" if score is first else "")
            for aim, score, first in zip(aims, group.scores, best, strict=True)
        ]
        rows.append(
            [
                Cell(str(rank), rank),
                *([] if repeated else [_link(group.jobs[0], folder)]),
                *_values(group.values, keys),
                *scores_of_aims,
                *_means(tests, [job for job in group.jobs if job.status == "finished"]),
                *([f"{group.finished} of {len(group.jobs)}"] if repeated else []),
                Cell(group.status, tone=_TONES.get(group.status, "")),
                _time(group.seconds),
            ]
        )
    names = [*(aim.name for aim in aims), *tests]
    head = ["#", *([] if repeated else [thing]), *keys, *names, *(["finished"] if repeated else [])]
    numeric = frozenset(("#", *names, "time"))
    return Table(_distinct([*head, "status", "time"]), rows, numeric=numeric, filtered=len(rows) > 5)


def _jobs(contents: Contents, folder: Path, thing: str) -> Table:
    keys, aims = contents.keys, contents.objectives
    with_folds = any(job.fold is not None for job in contents.jobs)
    rows: list[list[Cell | str]] = []
    for job in contents.jobs:
        outcome = job.outcome
        scores = [(aim.name, aim.score(outcome) if outcome is not None else None) for aim in aims]
        rows.append(
            [
                _link(job, folder),
                *_values(job.values, keys),
                job.seed,
                *([Cell("" if job.fold is None else str(job.fold), job.fold)] if with_folds else []),
                Cell(job.status, tone=_TONES.get(job.status, ""), title=outcome.reason if outcome else ""),
                *(Cell("" if score is None else format_score(name, score), score) for name, score in scores),
                Cell(str(job.attempts), job.attempts),
                _time(outcome.seconds if outcome is not None else None),
            ]
        )
    names = [aim.name for aim in aims]
    head = [thing, *keys, "seed", *(["fold"] if with_folds else []), "status", *names, "attempts", "time"]
    numeric = frozenset((*names, "attempts", "time"))
    return Table(_distinct(head), rows, numeric=numeric, filtered=len(rows) > 5)


def _failures(found: Sequence[Failure], thing: str) -> list[Block]:
    blocks: list[Block] = []
    for place, failure in enumerate(found):
        names = ", ".join(job.name for job in failure.jobs[:_NAMED])
        more = f" and {len(failure.jobs) - _NAMED} more" if len(failure.jobs) > _NAMED else ""
        cause = f" ({failure.cause.replace('_', ' ')})" if failure.cause else ""
        which = f"{counted(len(failure.jobs), thing)} {failure.status}{cause}: {names}{more}."
        blocks.append(Note(f"{which} {failure.reason}".strip(), _TONES.get(failure.status, "")))
        if failure.tail:
            blocks.append(Code(failure.tail, f"The end of {failure.log}", folded=place > 0))
    return blocks


def _notes(texts: Sequence[str], tone: Tone = "") -> list[Block]:
    more = [f"and {len(texts) - 10} more of these"] if len(texts) > 10 else []
    return [Note(text, tone) for text in (*texts[:10], *more)]


def _figures(figures: Sequence[Figure]) -> list[Block]:
    return [Figures(figures)] if figures else []


def _link(job: Job, folder: Path) -> Cell:
    number = float(job.name) if job.name.isdecimal() else None
    href = ""
    if job.run_dir is not None and job.run_dir.resolve().is_relative_to(folder.resolve()):
        href = f"{quote(job.run_dir.resolve().relative_to(folder.resolve()).as_posix())}/"
    return Cell(job.name, number, href=href, title=str(job.run_dir or ""))


def _values(values: Mapping[str, str], keys: Sequence[str]) -> list[Cell]:
    """A cell per key, in short; the pointer tells all."""
    short = in_short(values)
    texts = [(short.get(key) or values.get(key, ""), values.get(key, "")) for key in keys]
    return [Cell(text, title=whole if whole != text else "") for text, whole in texts]


def _time(seconds: float | None) -> Cell:
    return Cell("" if seconds is None else duration(seconds), seconds)


def _distinct(names: Sequence[str]) -> list[str]:
    """A key may be called as a column of the page's own."""
    return [name + " " * names[:at].count(name) for at, name in enumerate(names)]
