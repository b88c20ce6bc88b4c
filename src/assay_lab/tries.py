"""A change of a reference is tried: on its seeds first, then on fresh ones of both, which decide."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import signal
import statistics
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.compose.compose import compose_job
from assay.config.serialize import REPETITIONS
from assay.errors import AssayError, ConfigError
from assay.files.symlinks import check_links
from assay.process import Stopped
from assay.quoting import quote_text
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord, now
from assay.targets.trust import KEY
from assay_analysis.comparison import make_ranking
from assay_analysis.journal import append_events, read_lines
from assay_analysis.read_runs import read_runs
from assay_analysis.run import find_unlike_losses, loss_terms
from assay_analysis.statistics import Verdict, judge, level_of_next
from assay_sweep.session import key_of, merge_commands, start_sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_analysis.comparison import Ranking
    from assay_analysis.run import Run

FILE = "tries.jsonl"
_SEALED = "trainer.limit_test_batches=0"
_SET_HERE = (*REPETITIONS, "trainer.limit_test_batches", "hydra.sweep.dir", "hydra.run.dir")
_PROMISING = 0.2
"""One-sided p-value on the seeds of the reference up to which a change is worth fresh ones."""
_MOST_SEEDS = 5
"""Of the reference, that a change is trained with first."""
_FEWEST = 5
_MOST = 10
"""Fresh seeds of a test: fewer would lean on a normal distribution that nobody has seen."""


@final
@dataclass(frozen=True)
class Try:
    """A change of a reference, and what became of it.

    Attributes:
        number: From 1; its runs lie in a folder of this name beside the journal.
        overrides: The change; empty where only the test subset was looked at.
        against: The reference.
        decision: `kept`, `discarded` or `undecided`; empty without a change.
        reason: Of the decision.
        paired: On the seeds of the reference, which decide whether the change is worth a test.
        fresh: On new seeds of both, which decide whether it is kept; null where it was not tested.
        p_better: One-sided p-value of `fresh`; null where it was not tested.
        level: Up to which that keeps the change; it follows from all tests before.
        seconds: Time that it took.
        budget_s: Time that it was given.
        looks: How often the test subset was looked at since the journal began.
        test: Mean score of the test subset by folder of runs; empty as long as it is sealed.
        decisions: How many tries of the journal ended with which decision.
        journal: What became of all tries, one event per line.
        reference: What to try the next change against.
    """

    number: int
    overrides: Sequence[str]
    against: Path
    decision: str = ""
    reason: str = ""
    paired: Verdict | None = None
    fresh: Verdict | None = None
    p_better: float | None = None
    level: float | None = None
    seconds: float = 0.0
    budget_s: float = 0.0
    looks: int = 0
    test: dict[str, float] = field(default_factory=dict)
    decisions: dict[str, int] = field(default_factory=dict)
    journal: Path = Path(FILE)
    reference: Path = Path()


def try_change(
    typed: Sequence[str],
    against: Path,
    budget_s: float,
    metric: str,
    config_dir: Path | None,
    *,
    reveal: bool,
) -> Try:
    """Try a change of a reference; without a change, only reveal the test scores of the reference.

    Raises:
        AssayError: The reference or the change cannot be compared, or a run has failed.
    """
    began = time.monotonic()
    trial = _Trial(against, typed, metric, config_dir, began + budget_s)
    if trial.change or not reveal:
        trial.check()
    trial.directory.mkdir(parents=True, exist_ok=True)
    check_links(trial.directory)
    with lock_run(trial.directory):
        path = trial.directory / FILE
        lines = []
        if path.exists():
            lines = read_lines(path, repair=True)
        trial.events = [json.loads(line) for line in lines]
        number = 1 + max((event["number"] for event in trial.events), default=0)
        result = Try(
            number, trial.change, against, budget_s=budget_s, journal=path, reference=against
        )
        if trial.change:
            trial.note("begin", number=number, overrides=trial.change, against=str(against))
            try:
                result = trial.decide(result)
            except AssayError as error:
                trial.note("end", number=number, decision="failed", reason=error.message)
                raise
            result = replace(result, seconds=time.monotonic() - began)
            trial.note("end", **json.loads(json.dumps(asdict(result), default=str)))
        test = {}
        if reveal:
            test = trial.reveal(number)
        decisions = Counter(
            event["decision"] for event in trial.events if event["event"] == "end"
        )
        return replace(result, looks=trial.looks, test=test, decisions=dict(decisions))


def _is_setting(override: str) -> bool:
    """Whether it says how a sweep goes, whom the user trusts, or the seed."""
    return key_of(override).replace("/", ".").partition(".")[0] in ("hydra", KEY, "seed")


@final
class _Trial:
    """A reference, a change of it, and the journal of all that was tried."""

    def __init__(
        self,
        against: Path,
        typed: Sequence[str],
        metric: str,
        config_dir: Path | None,
        deadline: float,
    ) -> None:
        self._against = against
        self._config_dir = config_dir
        self._deadline = deadline
        self._settings = [word for word in typed if _is_setting(word)]
        self._trusted = [word for word in self._settings if key_of(word) == KEY]
        self.change = [word for word in typed if not _is_setting(word)]
        runs = [run for run in read_runs([against]) if run.status == "finished"]
        # all trainings are of one fold
        self._runs = [run for run in runs if run.fold == runs[0].fold]
        if not runs:
            raise AssayError(
                f"{against} holds no finished run", hint="train it first: assay train"
            )
        if (configurations := len({run.config_fingerprint for run in self._runs})) > 1:
            message = (
                f"{against} holds {configurations} configurations; "
                "a change is compared with a single one"
            )
            raise AssayError(
                message, hint=f"one of its runs: --against {shlex.quote(str(runs[0].path))}"
            )
        ranking = _choose_metric(self._runs, metric)
        self._aim = (ranking.metric, ranking.direction, ("the change", "the reference"))
        series = (folder for folder in against.absolute().parents if (folder / FILE).is_file())
        self.directory = next(series, against.parent / f"{against.absolute().name}-tries")
        self.events: list[dict[str, Any]] = []
        self._compared = self._runs
        record = RunRecord.load(self._runs[0].path)
        words = [record.overrides, *(entry.get("overrides", ()) for entry in record.resumed)]
        self._before = [word for word in merge_commands(words) if not _is_setting(word)]
        typed_before = {key_of(word) for word in self._before if word[0] != "~"}
        # ~KEY takes back what was typed before
        words = merge_commands([self._before, self.change])
        self._after = [
            word for word in words if word[0] != "~" or key_of(word) not in typed_before
        ]

    def check(self) -> None:
        """Refuse what cannot be compared, before anything runs."""
        if not self.change:
            raise ConfigError(
                "expected a change, such as optimizer.lr=0.01", hint="assay try --help"
            )
        for word in [*self.change, *self._settings]:
            if key_of(word) in _SET_HERE:
                raise ConfigError(
                    "assay try sets this key", key=key_of(word), hint=f"leave {word} out"
                )
        run = self._runs[0]
        sides = (self._before, self._after)
        more = [f"seed={run.seed}", *self._trusted]
        before, after = (compose_job([*words, *more], self._config_dir) for words in sides)
        if before.fingerprint != run.fingerprint:
            message = (
                f"{run.path} cannot be trained again: its overrides now compose to another config"
            )
            words = shlex.join([str(run.path), shlex.join(self._before)])
            raise AssayError(
                message, hint=f"train it again; assay diff {words} shows what has changed"
            )
        if after.fingerprint == before.fingerprint:
            raise ConfigError(f"{shlex.join(self.change)} changes nothing of {self._against}")
        data = before.config["data"]
        changed = after.config["data"]
        if any(data.get(part) != changed.get(part) for part in ("source", "split")):
            message = "it changes the data or the split: the scores could not be compared"
            raise ConfigError(message, key="data")
        losses = [(job.choices.get("loss"), loss_terms(job.config)) for job in (before, after)]
        if self._aim[0].endswith("loss") and (unlike := find_unlike_losses(losses)):
            message = f"{self._aim[0]} is not the same quantity with another {', '.join(unlike)}"
            raise ConfigError(
                message, key="--metric", hint="--metric val/accuracy, or another score"
            )

    def decide(self, result: Try) -> Try:
        """Train on the seeds of the reference, and on fresh ones of both where that is promising."""
        folder = self.directory / str(result.number)
        start = time.monotonic()
        known = {run.seed: run.data_sha256 for run in self._runs}
        runs = self._train(self._after, folder / "paired", [*known][:_MOST_SEEDS])
        if any(run.data_sha256 != known[run.seed] for run in runs):
            raise AssayError(
                "the change alters the data or the split: the scores cannot be compared"
            )
        paired = judge(runs, self._runs, *self._aim)
        result = replace(result, paired=paired, decision="undecided")
        if paired.difference is None:
            return replace(result, reason="the budget ran out before a run had finished")
        if not paired.is_ahead or (paired.p_value is not None and paired.p_better > _PROMISING):
            return replace(
                result, decision="discarded", reason="not better on the seeds of the reference"
            )
        run_s = (time.monotonic() - start) / len(runs)
        fits = int((self._deadline - time.monotonic()) / (2 * run_s))
        if fits < _FEWEST:
            minutes = math.ceil(1.2 * (len(runs) + 2 * _FEWEST) * run_s / 60)
            reason = (
                f"{_FEWEST} fresh seeds of both do not fit into the budget: --budget {minutes}m"
            )
            return replace(result, reason=reason)
        return self._test(result, folder, min(fits, _MOST))

    def _test(self, result: Try, folder: Path, count: int) -> Try:
        kept = {event["number"] for event in self.events if event.get("decision") == "kept"}
        tested = [event for event in self.events if event["event"] == "test"]
        used = {run.seed for run in self._runs}.union(*(event["seeds"] for event in tested))
        seeds = [
            *itertools.islice((seed for seed in itertools.count(1) if seed not in used), count)
        ]
        level = level_of_next([event["number"] in kept for event in tested])
        # it counts, however it ends
        self.note("test", number=result.number, level=level, seeds=seeds)
        of_reference = self._train(self._before, folder / "fresh-reference", seeds)
        changed = self._train(self._after, folder / "fresh", seeds)
        self._compared = [*changed, *of_reference]
        fresh = judge(changed, of_reference, *self._aim)
        result = replace(result, fresh=fresh, level=level)
        if min(len(changed), len(of_reference)) < _FEWEST:
            return replace(result, reason="the budget ran out before the fresh seeds")
        p = fresh.p_better
        reason = f"on fresh seeds p = {p:.2g}, and the level of this test is {level:.2g}"
        result = replace(result, p_better=p, decision="discarded", reason=reason)
        is_kept = fresh.word == "better" and p <= level
        if is_kept:
            return replace(result, decision="kept", reference=folder / "fresh")
        return result

    def _train(self, words: Sequence[str], directory: Path, seeds: Sequence[int]) -> list[Run]:
        """The runs that finish in time; seeds that finish where others fail are no fair choice."""
        grid = [
            f"seed={','.join(map(str, seeds))}",
            f"hydra.sweep.dir={quote_text(str(directory))}",
        ]
        typed = [*merge_commands([words, [_SEALED]]), *self._settings, *grid]
        with redirect_stdout(sys.stderr):
            swept = start_sweep(typed, self._config_dir, deadline=self._deadline)
        if swept.stopped:
            raise Stopped(signal.Signals(swept.stopped - 128).name)
        if failed := [
            job.outcome.reason for job in swept.jobs if job.status == "failed" and job.outcome
        ]:
            raise AssayError(
                f"{len(failed)} of {swept.total} runs failed: {failed[0]}", hint=str(directory)
            )
        finished = [swept.run_dir(job) for job in swept.jobs if job.status == "finished"]
        if finished:
            return read_runs(finished)
        return []

    @property
    def looks(self) -> int:
        """How often the test subset was looked at."""
        return sum(event["event"] == "reveal" for event in self.events)

    def reveal(self, number: int) -> dict[str, float]:
        """Test what was compared, and write into the records which look at the test subset it was."""
        from assay_serve.evaluate import evaluate

        self.note("reveal", number=number, runs=[str(run.path) for run in self._compared])
        name = self._aim[0].replace("val/", "test/", 1)
        scores: dict[str, list[float]] = {}
        for run in self._compared:
            found = evaluate(run.path, self._trusted, split="test", config_dir=self._config_dir)
            with lock_run(run.path):
                record = RunRecord.load(run.path)
                record.test_looks = self.looks
                record.save(run.path)
            scores.setdefault(str(run.path.parent), []).append(found.metrics.get(name, math.nan))
        return {folder: statistics.fmean(values) for folder, values in scores.items()}

    def note(self, event: str, **fields: Any) -> None:
        """Add an event to the journal."""
        events = [{"event": event, **fields, "at": now()}]
        append_events(self.directory / FILE, events)
        self.events += events


def _choose_metric(runs: Sequence[Run], asked: str) -> Ranking:
    ranking = make_ranking(runs, asked)
    if ranking is None or not ranking.direction or not ranking.metric.startswith("val/"):
        found = None
        if ranking:
            found = ranking.metric
        message = (
            f"expected a score of validation with a direction, got {found!r}; "
            "the test subset stays sealed"
        )
        raise ConfigError(
            message, key="--metric", hint="--metric val/accuracy:max, or val/loss:min"
        )
    return ranking
