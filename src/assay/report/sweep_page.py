"""The page of a sweep, or of several runs: which was best, what mattered, what failed, what ran where."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

import numpy as np

from assay.analysis.config_values import INNER_FOLDS, in_one_line, in_short
from assay.analysis.objective import format_score, is_share, score_text
from assay.analysis.out_of_fold import FoldRun, gathered, mean_scores, tested_values
from assay.analysis.read_runs import read_curves
from assay.analysis.statistics import mean_of
from assay.errors import AssayError
from assay.figure.figure import Figure, Line
from assay.files.symlinks import read_end
from assay.quoting import counted, duration
from assay.record.log_file import FILE as LOG
from assay.record.log_file import logs_of
from assay.record.secrets import redact
from assay.report.page import Cards, Cell, Code, Figures, Note, Page, Section, Table
from assay.report.read_sweep import ranked, verdict
from assay.report.sweep_figures import parameter_figures, timeline, tradeoff
from assay.targets.own_task import import_trusted
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from assay.analysis.objective import Objective
    from assay.analysis.out_of_fold import OutOfFold
    from assay.analysis.read_runs import Curve
    from assay.analysis.statistics import Mean
    from assay.record.outcome import Cause
    from assay.report.page import Block, Tone
    from assay.report.read_sweep import Contents, Group, Job


_CURVES: Final = 16
"""Configurations drawn."""
_POINTS: Final = 120
"""Points of one line; more than a screen is wide enough to show apart, and 1.5 MB for the whole page."""
_METRICS: Final = 4
_FAR: Final = 100
"""Interquartile ranges off at which a value, such as the loss of a run that diverged, is out of sight."""
_NEAR: Final = 3
"""Interquartile ranges that are then shown at most."""


def curve_figures(contents: Contents, groups: Sequence[Group]) -> tuple[list[Figure], list[str]]:
    """One figure per metric: the objectives, then the losses that were logged."""
    problems: list[str] = []
    read: list[tuple[str, list[dict[str, Curve]]]] = []
    for rank, group in enumerate(groups, 1):
        if len(read) == _CURVES:
            break
        curves = [_curves(job.run_dir, job.name, problems) for job in group.jobs if job.run_dir is not None]
        if any(curves):
            read.append((f"{rank}: {group.words}", [one for one in curves if one]))
    names = [aim.name for aim in contents.objectives]
    wanted = [*names, *(f"train/{name.rpartition('/')[2]}" for name in names), "train/loss", "val/loss"]
    logged = {
        name for _, curves in read for one in curves for name, curve in one.items() if len(curve.steps) > 1
    }
    shown = [name for name in dict.fromkeys(wanted) if name in logged][:_METRICS]
    return [_figure(name, read, len(groups)) for name in shown], problems


def _figure(name: str, read: list[tuple[str, list[dict[str, Curve]]]], total: int) -> Figure:
    lines = []
    for label, curves in read:
        line = line_of(label, [one[name] for one in curves if name in one])
        if line is not None:
            lines.append(line)
    most = f"Of {total} configurations the best {len(lines)} with a curve. " if len(lines) < total else ""
    band = any(line.low is not None for line in lines)
    how = "Mean of the seeds; the band reaches from the lowest to the highest. " if band else ""
    shown, cut = _shown(lines)
    slug = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower())
    return Figure(
        name=f"curve_{slug}",
        title=name,
        marks=tuple(lines),
        x_label="optimizer step",
        y_label=name,
        shares="y" * is_share(name),
        y_range=shown,
        is_wide=True,
        caption=f"{most}{how}{cut}".strip(),
    )


def _shown(lines: Sequence[Line]) -> tuple[tuple[float, float] | None, str]:
    """What the axis shows where some values lie so far off that all others would be one flat line."""
    values = np.concatenate([np.asarray(line.y, dtype=float) for line in lines] or [np.zeros(1)])
    first, third = np.quantile(values, (0.25, 0.75))
    spread = third - first
    if not 0 < spread < np.inf or not (
        values.min() < first - _FAR * spread or values.max() > third + _FAR * spread
    ):
        return None, ""
    near = values[(values >= first - _NEAR * spread) & (values <= third + _NEAR * spread)]
    low, high = float(near.min()), float(near.max())
    room = (high - low) / 20
    cut = f"{counted(len(values) - len(near), 'point')} far outside: a double click shows all."
    return (low - room, high + room), cut


def line_of(label: str, curves: Sequence[Curve]) -> Line | None:
    """The mean of several runs' curves; where they were logged at other steps, straight lines lie between."""
    whole = [one for one in map(_finite, curves) if len(one[0])]
    if not whole:
        return None
    steps = np.unique(np.concatenate([one[0] for one in whole]))
    if len(steps) > _POINTS:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, _POINTS).round().astype(int))]
    values = np.stack([np.interp(steps, x, y, left=np.nan, right=np.nan) for x, y in whole])
    some = ~np.isnan(values).all(axis=0)  # two runs may have been logged at no common time
    steps, values = steps[some], values[:, some]
    mean = np.nanmean(values, axis=0)
    if len(whole) < 2:
        return Line(label, steps, mean)
    return Line(label, steps, mean, np.nanmin(values, axis=0), np.nanmax(values, axis=0))


def _finite(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps, each once, and the last value at each."""
    last = dict(zip(curve.steps, curve.values, strict=True))
    x, y = np.array(list(last), dtype=float), np.array(list(last.values()), dtype=float)
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    return x[np.isfinite(y)], y[np.isfinite(y)]


def _curves(run_dir: Path, name: str, problems: list[str]) -> dict[str, Curve]:
    try:
        return read_curves(run_dir)
    except AssayError as error:
        problems.append(f"{name}: {error.message}")
        return {}


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
    together: dict[tuple[str, Cause, str], list[Job]] = {}
    for job in contents.jobs:
        if job.status in ("failed", "broken", "interrupted"):
            cause: Cause = job.outcome.cause if job.outcome is not None else ""
            together.setdefault((job.status, cause, _NUMBER.sub("0", _reason(job))), []).append(job)
    found: list[Failure] = []
    for (status, cause, _), jobs in sorted(together.items(), key=lambda item: -len(item[1])):
        shown = len(found) < _TAILS
        log, tail = _last_words(jobs[0], died=cause == "killed") if shown else (None, "")
        found.append(Failure(status, cause, printable(_reason(jobs[0])), tuple(jobs), log, tail))
    return found


def _reason(job: Job) -> str:
    return job.outcome.reason if job.outcome is not None else ""


def _last_words(job: Job, *, died: bool) -> tuple[Path | None, str]:
    """The end of the run's own log; of what its process printed, where it died or has no log."""
    own = job.run_dir / LOG if job.run_dir is not None else None
    for place in logs_of(own, job.output, died=died):
        if text := log_tail(place):
            return place, text
    return None, ""


def log_tail(path: Path) -> str:
    """The last lines of a log, without what a terminal would obey, and without secrets."""
    try:
        content = read_end(path, _BYTES)
    except OSError:
        return ""
    text = _ESCAPES.sub("", content.decode(errors="replace")).replace("\r\n", "\n")
    # A progress bar overwrites its line; the last state of it counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    whole = lines[1:] if len(content) == _BYTES else lines
    kept = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in whole]
    while kept and not kept[-1].strip():
        kept.pop()
    return printable(redact("\n".join(kept[-_LINES:])))


FOLDS: Final = (
    "Each sample is tested once, by the run that has not trained on it. The interval is over the folds "
    "(Student's t), seeds of a fold averaged; folds share training samples, so it is rather too narrow. "
    "Scores out of fold are of all samples at once."
)


def fold_blocks(contents: Contents, groups: Sequence[Group]) -> list[Block]:
    """Tables of folds; nothing where no job has one."""
    runs = [
        FoldRun(job.name, values, job.seed, job.fold, job.run_dir)
        for job in contents.jobs
        if job.fold is not None and job.status == "finished" and job.run_dir is not None
        if (values := tested_values(job.values)) is not None
    ]
    if not runs:
        return []
    names = {run.name for run in runs}
    best = next(group for group in groups if any(job.name in names for job in group.jobs))
    nested = [job for job in contents.jobs if job.name in names and INNER_FOLDS in job.values]
    together: dict[tuple[tuple[str, str], ...], list[OutOfFold]] = {}
    every = gathered(runs)
    import_trusted(one.predictions.task for one in every)
    for one in every:
        together.setdefault(tuple(one.values.items()), []).append(one)
    blocks: list[Block] = [
        _folds(nested or best.jobs, "" if nested else best.label),
        _scores(list(together.values()), contents.keys, is_sweep=contents.is_sweep),
    ]
    problems = dict.fromkeys(
        f"{_label(one)}{problem}"
        for several in together.values()
        for one in several
        for problem in one.problems
    )
    return [*[Note(f"{problem[:1].upper()}{problem[1:]}.", "warn") for problem in problems], *blocks]


def _folds(tested: Sequence[Job], label: str) -> Table:
    of_fold: dict[int, list[Job]] = {}
    for job in tested:
        if job.fold is not None and job.status == "finished":
            of_fold.setdefault(job.fold, []).append(job)
    names = dict.fromkeys(name for jobs in of_fold.values() for job in jobs for name in job.tested)
    rows: list[list[Cell | str]] = []
    for fold, jobs in sorted(of_fold.items()):
        means = [mean_of(job.tested.get(name) for job in jobs) for name in names]
        cells = [
            Cell("" if mean is None else format_score(name, mean.mean), None if mean is None else mean.mean)
            for name, mean in zip(names, means, strict=True)
        ]
        chosen = dict.fromkeys(_chosen(job) for job in jobs)
        own = [] if label else [", ".join(chosen)]
        rows.append([Cell(str(fold), fold), ", ".join(job.name for job in jobs), *own, *cells])
    every = [(fold, job) for fold, jobs in sorted(of_fold.items()) for job in jobs]
    whole = [
        mean_of([job.tested.get(name) for _, job in every], [fold for fold, _ in every]) for name in names
    ]
    scores = ["" if mean is None else score_text(name, mean) for name, mean in zip(names, whole, strict=True)]
    rows.append([Cell("mean"), f"{len(of_fold)} folds", *([] if label else [""]), *scores])
    title = f"The best configuration: {label}" if label else "What the inner folds of each fold have chosen"
    head = ["fold", "run", *([] if label else ["chosen"]), *names]
    return Table(head, rows, numeric=frozenset(names), title=title)


def _scores(found: Sequence[Sequence[OutOfFold]], keys: Sequence[str], *, is_sweep: bool) -> Table:
    scores = [mean_scores(several) for several in found]
    names = dict.fromkeys(name for own in scores for name in own)
    rows: list[list[Cell | str]] = []
    for several, own in zip(found, scores, strict=True):
        short = in_short(several[0].values)
        cells = [
            Cell(format_score(name, own[name]), own[name]) if name in own else Cell("") for name in names
        ]
        samples = len(several[0].predictions.keys)
        rows.append([*(short.get(key, "") for key in keys), Cell(f"{samples:,}", samples), *cells])
    return Table(
        [*keys, "samples", *names],
        rows,
        numeric=frozenset(("samples", *names)),
        caption="Each prediction is in out_of_fold.parquet." if is_sweep else "",
        title="Out of fold",
    )


def _chosen(job: Job) -> str:
    values = {key: value for key, value in job.values.items() if key != INNER_FOLDS}
    return in_one_line(values) or "as typed"


def _label(one: OutOfFold) -> str:
    return f"{in_one_line(one.values)}: " if one.values else ""


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
    against, when = tradeoff(contents, groups), timeline(contents)
    repeated = len(groups) < len(contents.jobs)
    thing = "job" if contents.is_sweep else "run"
    warned = [(job.name, job.outcome.warnings) for job in contents.jobs if job.outcome is not None]
    useless = [f"{thing.capitalize()} {name}: {one}" for name, several in warned for one in several]
    problems = [*contents.notices, *unread, *useless]
    sections = [
        Section("summary", "Summary", [*_notes(problems, "warn"), *_summary(contents, groups)]),
        Section(
            "leaderboard",
            "Leaderboard",
            [_leaderboard(contents, groups, folder, repeated=repeated), *_verdict(contents, groups)],
            _order(contents, repeated=repeated),
        ),
        Section("folds", "Folds", fold_blocks(contents, groups), FOLDS),
        Section("parameters", "Parameters", [*_figures(figures), *_notes(notes)]),
        Section("tradeoff", "Trade-off", _figures([against] if against else [])),
        Section("curves", "Learning curves", _figures(curves)),
        Section("failures", "Failures", _failures(failures(contents), thing)),
        Section("timeline", "Timeline", _figures([when] if when else [])),
        Section("jobs", f"{thing.capitalize()}s", [_jobs(contents, folder)] if repeated else []),
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
    if counts["failed"] or counts["broken"]:
        return f"{counts['failed'] + counts['broken']} of {len(contents.jobs)} failed", "bad"
    return "finished", "good"


def _summary(contents: Contents, groups: Sequence[Group]) -> list[Block]:
    cards = []
    best = groups[0] if groups and contents.decides else None
    for place, aim in enumerate(contents.objectives):
        score = best.scores[place] if best else None
        if best is not None and score is not None:
            name, mean = f"{aim.name} of the best", format_score(aim.name, score.mean)
            repeated = "folds" if any(job.fold is not None for job in best.jobs) else "seeds"
            over = (
                f"{score_text(aim.name, score)} over {score.n} {repeated}, " if score.high is not None else ""
            )
            cards.append((name, mean, f"{over}{best.label}"))
    counts = Counter(job.status for job in contents.jobs)
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    name = "jobs" if contents.is_sweep else "runs"
    cards.append((name, str(len(contents.jobs)), words))
    cards.append(("configurations", str(len(groups)), "that differ in more than seed and fold"))
    took = sum((span.end - span.start).total_seconds() for job in contents.jobs for span in job.spans)
    if took:
        cards.append(("time", duration(took), f"of all {name} together"))
    return [Cards(cards)]


def _verdict(contents: Contents, groups: Sequence[Group]) -> list[Block]:
    said = verdict(contents, groups) if contents.decides else ""
    return [Note(f"{said[:1].upper()}{said[1:]}.")] if said else []


def _order(contents: Contents, *, repeated: bool) -> str:
    first = contents.objectives[0]
    if not contents.decides:
        return f"By {first.name}, which cannot tell here which is best."
    way = "highest" if first.direction == "maximize" else "lowest"
    seeds = " Scores are means of seeds or folds with their 95 % interval (Student's t)." if repeated else ""
    return f"By {first.name}, the {way} first; what has not finished comes last.{seeds}"


def _leaderboard(contents: Contents, groups: Sequence[Group], folder: Path, *, repeated: bool) -> Table:
    keys, aims = contents.keys, contents.objectives
    best: dict[str, Mean] = {}
    for place, aim in enumerate(aims):
        whole = (group.scores[place] for group in groups if group.finished == len(group.jobs))
        scores = [score for score in whole if score is not None]
        if scores and contents.decides:
            best[aim.name] = min(scores, key=lambda score: aim.sort_key(score.mean))
    others = {
        name: None for job in contents.jobs for name in job.tested if name not in [a.name for a in aims]
    }
    tests = sorted(others, key=lambda name: name.endswith("loss"))
    rows: list[list[Cell | str]] = []
    for rank, group in enumerate(groups, 1):
        job = group.jobs[0]
        short = in_short(group.values)
        cells: list[Cell | str] = [Cell(str(rank), rank)]
        cells += [] if repeated else [_link(job, folder)]
        cells += [_value(group.values.get(key), short.get(key)) for key in keys]
        cells += [
            _score(aim, score, best.get(aim.name)) for aim, score in zip(aims, group.scores, strict=True)
        ]
        done = [job for job in group.jobs if job.status == "finished"]
        folds = [job.fold for job in done]
        means = [mean_of([job.tested.get(name) for job in done], folds) for name in tests]
        cells += [
            Cell("") if mean is None else Cell(score_text(name, mean), mean.mean)
            for name, mean in zip(tests, means, strict=True)
        ]
        cells += [f"{group.finished} of {len(group.jobs)}"] if repeated else []
        cells += [Cell(group.status, tone=_TONES.get(group.status, "")), _time(group.seconds)]
        rows.append(cells)
    names = [*(aim.name for aim in aims), *tests]
    head = ["#", *([] if repeated else ["job" if contents.is_sweep else "run"]), *keys, *names]
    head += [*(["finished"] if repeated else []), "status", "time"]
    return Table(_distinct(head), rows, numeric=frozenset(("#", *names, "time")), filtered=len(rows) > 5)


def _jobs(contents: Contents, folder: Path) -> Table:
    keys, aims = contents.keys, contents.objectives
    with_folds = any(job.fold is not None for job in contents.jobs)
    rows = []
    for job in contents.jobs:
        short = in_short(job.values)
        outcome = job.outcome
        scores = [aim.score(outcome) if outcome is not None else None for aim in aims]
        rows.append(
            [
                _link(job, folder),
                *(_value(job.values.get(key), short.get(key)) for key in keys),
                _value(job.seed, job.seed),
                *([Cell("" if job.fold is None else str(job.fold), job.fold)] if with_folds else []),
                Cell(job.status, tone=_TONES.get(job.status, ""), title=outcome.reason if outcome else ""),
                *(
                    Cell(format_score(aim.name, score) if score is not None else "", score)
                    for aim, score in zip(aims, scores, strict=True)
                ),
                Cell(str(job.attempts), job.attempts),
                _time(outcome.seconds if outcome is not None else None),
            ]
        )
    names = [aim.name for aim in aims]
    head = ["job" if contents.is_sweep else "run", *keys, "seed"]
    head += [*(["fold"] if with_folds else []), "status", *names, "attempts", "time"]
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
            title = f"The end of {failure.log}"
            blocks.append(Code(failure.tail, title, folded=place > 0))
    return blocks


def _notes(texts: Sequence[str], tone: Tone = "") -> list[Block]:
    most = [Note(text, tone) for text in texts[:10]]
    return [*most, *([Note(f"and {len(texts) - 10} more of these", tone)] if len(texts) > 10 else [])]


def _figures(figures: Sequence[Figure]) -> list[Block]:
    return [Figures(figures)] if figures else []


def _link(job: Job, folder: Path) -> Cell:
    number = float(job.name) if job.name.isdecimal() else None
    href = ""
    if job.run_dir is not None and job.run_dir.resolve().is_relative_to(folder.resolve()):
        href = f"{quote(job.run_dir.resolve().relative_to(folder.resolve()).as_posix())}/"
    return Cell(job.name, number, href=href, title=str(job.run_dir or ""))


def _value(text: str | None, short: str | None) -> Cell:
    if text is None:
        return Cell("")
    return Cell(short or text, title=text if short != text else "")


def _score(aim: Objective, score: Mean | None, best: Mean | None) -> Cell:
    if score is None:
        return Cell("")
    return Cell(score_text(aim.name, score), score.mean, tone="best" if score is best else "")


def _time(seconds: float | None) -> Cell:
    return Cell("" if seconds is None else duration(seconds), seconds)


def _distinct(names: Sequence[str]) -> list[str]:
    """A key may be called as a column of the page's own."""
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        distinct.append(name + " " * seen[name])
        seen[name] += 1
    return distinct
