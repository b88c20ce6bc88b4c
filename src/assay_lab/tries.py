"""A change of a reference is tried: on its seeds first, then on fresh ones of both, which decide."""

from __future__ import annotations

import itertools
import json
import math
import os
import shlex
import statistics
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.compose.compose import compose_job
from assay.config.serialize import REPETITIONS
from assay.errors import AssayError, ConfigError
from assay.files.symlinks import check_links
from assay.quoting import quote_text
from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord, now
from assay.targets.trust import KEY, is_library, is_path
from assay_analysis.comparison import make_ranking
from assay_analysis.journal import append_events, read_lines
from assay_analysis.read_runs import read_runs
from assay_analysis.run import ConfigValues, find_unlike_losses, loss_terms, value_of
from assay_analysis.statistics import Verdict, judge, level_of_next
from assay_lab.code_change import OTHER_DATA, find_change, open_worktrees
from assay_lab.run_side import score_tests, train_seeds
from assay_sweep.session import key_of, merge_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_analysis.comparison import Ranking
    from assay_analysis.run import Run
    from assay_lab.code_change import CodeChange, Worktree

FILE = "tries.jsonl"
_SEALED = "trainer.limit_test_batches=0"
_SET_HERE = (*REPETITIONS, "trainer.limit_test_batches", "hydra.sweep.dir", "hydra.run.dir")
_PROMISING = 0.2
"""One-sided p-value on the seeds of the reference up to which a change is worth fresh ones."""
_MOST_SEEDS = 5
"""Of the reference, that a change is trained with first."""
_FRESH = 10
"""Seeds of a test: 5 find one in six changes that are worth twice the noise, 10 find nine in ten."""
_FEWEST = 8
"""Of them that have to finish."""
_TURN = 5
"""Seeds that one commit is trained with before it is the other one's turn."""
_OTHER_SCORE = "--metric val/accuracy, or another score"
_FILES = ("data", "finetune", "loss", "model")
"""Nodes whose paths name files to read."""


@final
@dataclass(frozen=True)
class Try:
    """A change of a reference, and what became of it.

    Attributes:
        number: From 1; its runs lie in a folder of this name beside the journal.
        overrides: The change; empty where only the test subset was looked at, or code is changed alone.
        against: The reference.
        code: The commit that is tried, also of a patch; empty where both sides run the code here.
        against_code: The commit that it is compared with.
        notes: What else there is to know of both.
        decision: `kept`, `discarded` or `undecided`, of code also `failed`; empty without a change.
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
    code: str = ""
    against_code: str = ""
    notes: Sequence[str] = ()
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


def is_promising(paired: Verdict) -> bool:
    """Whether a change does well enough on known seeds to be worth a test on fresh ones."""
    return paired.is_ahead and (paired.p_value is None or paired.p_better <= _PROMISING)


def is_real(fresh: Verdict, level: float) -> bool:
    """Whether a change is kept after a test of this level; see `level_of_next`."""
    return fresh.word == "better" and fresh.p_better <= level


def try_change(
    typed: Sequence[str],
    against: Path,
    budget_s: float,
    metric: str,
    config_dir: Path | None,
    *,
    reveal: bool,
    code: tuple[str, str] | None = None,
) -> Try:
    """Try a change of a reference; without a change, only reveal the test scores of the reference.

    Args:
        typed: Overrides that are changed.
        against: Runs of the reference.
        budget_s: Seconds for all runs.
        metric: Score of validation that decides.
        config_dir: The user's folder of config groups.
        reveal: Score the test subset of what was compared.
        code: What the person has typed: a commit or a patch, and the commit that it is compared with.

    Raises:
        AssayError: The reference or the change cannot be compared, or a run has failed.
    """
    began = time.monotonic()
    trial = _Trial(against, typed, metric, config_dir, began + budget_s)
    if code:
        trial.set_code(*code)
    if trial.is_change or not reveal:
        trial.check()
    trial.directory.mkdir(parents=True, exist_ok=True)
    check_links(trial.directory)
    with lock_run(trial.directory):
        path = trial.directory / FILE
        if path.exists():
            trial.events = [json.loads(line) for line in read_lines(path, repair=True)]
        number = 1 + max((event["number"] for event in trial.events), default=0)
        result = Try(
            number, trial.change, against, budget_s=budget_s, journal=path, reference=against
        )
        if changed := trial.code:
            result = replace(
                result,
                code=changed.change,
                against_code=changed.reference,
                notes=changed.notes,
            )
        with ExitStack() as stack:
            if trial.is_change:
                result = trial.run(result, began, stack)
            if reveal and result.decision != "failed":
                result = replace(result, test=trial.reveal(number))
        decisions = Counter(
            event["decision"] for event in trial.events if event["event"] == "end"
        )
        return replace(result, looks=trial.looks, decisions=dict(decisions))


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
            raise AssayError(
                f"{against} holds {configurations} configurations; "
                "a change is compared with a single one",
                hint=f"one of its runs: --against {shlex.quote(str(runs[0].path))}",
            )
        ranking = _choose_metric(self._runs, metric)
        self._aim = (ranking.metric, ranking.direction, ("the change", "the reference"))
        series = (folder for folder in against.absolute().parents if (folder / FILE).is_file())
        self.directory = next(series, against.parent / f"{against.absolute().name}-tries")
        self.events: list[dict[str, Any]] = []
        self.code: CodeChange | None = None
        self._worktrees: dict[str, Worktree] = {}
        self._placed: list[str] = []
        self._sides = {"reference": self._runs}
        self._record = record = RunRecord.load(self._runs[0].path)
        words = [record.overrides, *(entry.get("overrides", ()) for entry in record.resumed)]
        self._before = [word for word in merge_commands(words) if not _is_setting(word)]
        typed_before = {key_of(word) for word in self._before if word[0] != "~"}
        # ~KEY takes back what was typed before
        words = merge_commands([self._before, self.change])
        self._after = [
            word for word in words if word[0] != "~" or key_of(word) not in typed_before
        ]

    @property
    def is_change(self) -> bool:
        """Whether there is something to try."""
        return bool(self.change or self.code)

    def set_code(self, typed: str, reference: str) -> None:
        """Read the commits of a change of code, and where both find their files."""
        self.code = code = find_change(typed, reference)
        commit = (self._record.git or {}).get("commit")
        code.check_contains(str(commit), self._against)
        for key, text in ConfigValues().all_of(self._runs[0]).items():
            node = key.partition(".")[0]
            name = key.rpartition(".")[2]
            if node not in _FILES or not (is_path(name) or name == "weights"):
                continue
            if not Path(text).is_absolute() and Path(text).exists():
                place = code.place(text, is_data=node == "data")
                self._placed += [f"{key}={quote_text(place)}"] * bool(place)

    def check(self) -> None:
        """Refuse what cannot be compared, before anything runs."""
        if not self.is_change:
            raise ConfigError(
                "expected a change, such as optimizer.lr=0.01", hint="assay try --help"
            )
        for word in [*self.change, *self._settings]:
            if key_of(word) in _SET_HERE:
                raise ConfigError(
                    "assay try sets this key", key=key_of(word), hint=f"leave {word} out"
                )
        if self.code:
            self._check_code(self.code)
        else:
            self._check_overrides()

    def _check_code(self, code: CodeChange) -> None:
        if not (self.change or code.differing()):
            raise AssayError(f"commits {code.reference[:12]} and {code.change[:12]} are the same")
        loss = value_of(self._runs[0], "loss._target_", ConfigValues())
        if self._aim[0].endswith("loss") and loss and not is_library(loss):
            raise ConfigError(
                f"{self._aim[0]} is computed by {loss}, which the change may alter",
                key="--metric",
                hint=_OTHER_SCORE,
            )

    def _check_overrides(self) -> None:
        run = self._runs[0]
        sides = (self._before, self._after)
        more = [f"seed={run.seed}", *self._trusted]
        before, after = (compose_job([*words, *more], self._config_dir) for words in sides)
        if before.fingerprint != run.fingerprint:
            words = shlex.join([str(run.path), shlex.join(self._before)])
            raise AssayError(
                f"{run.path} cannot be trained again: its overrides now compose to another config",
                hint=f"train it again; assay diff {words} shows what has changed",
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
            raise ConfigError(message, key="--metric", hint=_OTHER_SCORE)

    def run(self, result: Try, began: float, stack: ExitStack) -> Try:
        """Decide on the change, and write into the journal what became of it."""
        name = {"number": result.number, "overrides": self.change, "against": str(self._against)}
        self.note("begin", **name, code=result.code)
        try:
            if self.code:
                opened = open_worktrees(self.code, self.directory)
                self._worktrees = stack.enter_context(opened)
            result = self._decide(result)
        except AssayError as error:
            if not self.code:
                self.note("end", number=result.number, decision="failed", reason=error.message)
                raise
            result = replace(result, decision="failed", reason=error.message)
        if self.code and result.decision == "kept":
            self.code.keep()
            merge = f"git merge {result.code[:12]} takes it over"
            result = replace(result, reason=f"{result.reason}; {merge}")
        result = replace(result, seconds=time.monotonic() - began)
        self.note("end", **json.loads(json.dumps(asdict(result), default=str)))
        return result

    def _decide(self, result: Try) -> Try:
        """Train on the seeds of the reference, and on fresh ones of both where that is promising."""
        folder = self.directory / str(result.number)
        start = time.monotonic()
        seeds = [*dict.fromkeys(run.seed for run in self._runs)][:_MOST_SEEDS]
        if self._worktrees:
            changed, of_reference = self._train_in_turns(folder, "paired", seeds)
            trained = len(changed) + len(of_reference)
        else:
            changed = self._train("change", folder / "paired", seeds)
            of_reference = self._runs
            trained = len(changed)
        self._check_pairs(changed, of_reference)
        paired = judge(changed, of_reference, *self._aim)
        result = replace(result, paired=paired, decision="undecided")
        if paired.difference is None:
            return replace(result, reason="the budget ran out before a run had finished")
        if not is_promising(paired):
            return replace(
                result, decision="discarded", reason="not better on the seeds of the reference"
            )
        run_s = (time.monotonic() - start) / trained
        if self._deadline - time.monotonic() < 2 * _FRESH * run_s:
            minutes = math.ceil(1.2 * (trained + 2 * _FRESH) * run_s / 60)
            return replace(
                result,
                reason=f"{_FRESH} fresh seeds of both do not fit into the budget: --budget {minutes}m",
            )
        return self._test(result, folder)

    def _test(self, result: Try, folder: Path) -> Try:
        kept = {event["number"] for event in self.events if event.get("decision") == "kept"}
        tested = [event for event in self.events if event["event"] == "test"]
        used = {run.seed for run in self._runs}.union(*(event["seeds"] for event in tested))
        unused = (seed for seed in itertools.count(1) if seed not in used)
        seeds = [*itertools.islice(unused, _FRESH)]
        level = level_of_next([event["number"] in kept for event in tested])
        # it counts, however it ends
        self.note("test", number=result.number, level=level, seeds=seeds)
        if self._worktrees:
            changed, of_reference = self._train_in_turns(folder, "fresh", seeds)
        else:
            of_reference = self._train("reference", folder / "fresh-reference", seeds)
            changed = self._train("change", folder / "fresh", seeds)
        fresh = judge(changed, of_reference, *self._aim)
        result = replace(result, fresh=fresh, level=level)
        if min(len(changed), len(of_reference)) < _FEWEST:
            return replace(result, reason="the budget ran out before the fresh seeds")
        self._sides = {"change": changed, "reference": of_reference}
        p = fresh.p_better
        reason = f"on fresh seeds p = {p:.2g}, and the level of this test is {level:.2g}"
        result = replace(result, p_better=p, decision="discarded", reason=reason)
        if is_real(fresh, level):
            return replace(result, decision="kept", reference=folder / "fresh")
        return result

    def _train_in_turns(
        self, folder: Path, name: str, seeds: Sequence[int]
    ) -> tuple[list[Run], list[Run]]:
        """Train both commits with some seeds after the other, so that a budget that ends leaves pairs."""
        changed: list[Run] = []
        of_reference: list[Run] = []
        for number in range(0, len(seeds), _TURN):
            turn = seeds[number : number + _TURN]
            changed += self._train("change", folder / name / str(number), turn)
            place = folder / f"{name}-reference" / str(number)
            of_reference += self._train("reference", place, turn)
        return changed, of_reference

    def _train(self, side: str, directory: Path, seeds: Sequence[int]) -> list[Run]:
        """Train one side; the runs that finish in time."""
        words = {"change": self._after, "reference": self._before}[side]
        if self._worktrees:
            directory = directory.absolute()
        grid = [
            f"seed={','.join(map(str, seeds))}",
            f"hydra.sweep.dir={quote_text(str(directory))}",
        ]
        typed = [*merge_commands([words, self._placed, [_SEALED]]), *self._settings, *grid]
        if self._worktrees:
            seconds = max(0.0, self._deadline - time.monotonic())
            finished = self._ask(side, {"words": typed, "seconds": seconds})
        else:
            finished = train_seeds(typed, self._config_dir, self._deadline)
        if finished:
            return read_runs(finished)
        return []

    def _ask(self, side: str, question: dict[str, Any]) -> list[Any]:
        """Have a worktree train or test."""
        worktree = self._worktrees[side]
        try:
            return worktree.ask(question, self._config_dir)
        except AssayError as error:
            # of a sweep, all of whose jobs fail alike
            details = [line for line in error.message.splitlines() if line.startswith("  ")]
            words = " ".join(details or [error.message, error.hint]).split()
            raise AssayError(
                f"{side} (commit {worktree.commit[:12]}): {' '.join(words)}"
            ) from error

    def _check_pairs(self, changed: Sequence[Run], of_reference: Sequence[Run]) -> None:
        """Refuse scores that are not of the same samples, or not the same quantity."""
        known = {run.seed: run.data_sha256 for run in of_reference}
        if any(known.get(run.seed, run.data_sha256) != run.data_sha256 for run in changed):
            raise AssayError(OTHER_DATA)
        metric, direction, _ = self._aim
        ranking = make_ranking([*changed, *of_reference], f"{metric}:{direction}")
        if ranking and ranking.losses:
            raise AssayError(ranking.notes[0], hint=_OTHER_SCORE)

    @property
    def looks(self) -> int:
        """How often the test subset was looked at."""
        return sum(event["event"] == "reveal" for event in self.events)

    def reveal(self, number: int) -> dict[str, float]:
        """Test what was compared, and write into the records which look at the test subset it was."""
        compared = [str(run.path) for runs in self._sides.values() for run in runs]
        self.note("reveal", number=number, runs=compared)
        name = self._aim[0].replace("val/", "test/", 1)
        means = {}
        for side, runs in self._sides.items():
            paths = [str(run.path.absolute()) for run in runs]
            if self._worktrees:
                found = self._ask(side, {"runs": paths, "words": self._trusted})
            else:
                found = score_tests(paths, self._trusted, self._config_dir)
            for run in runs:
                with lock_run(run.path):
                    record = RunRecord.load(run.path)
                    record.test_looks = self.looks
                    record.save(run.path)
            folder = os.path.commonpath([run.path.parent for run in runs])
            means[folder] = statistics.fmean(metrics.get(name, math.nan) for metrics in found)
        return means

    def note(self, event: str, **fields: Any) -> None:
        """Add an event to the journal."""
        events = [{"event": event, **fields, "at": now()}]
        append_events(self.directory / FILE, events)
        self.events += events


def _choose_metric(runs: Sequence[Run], asked: str) -> Ranking:
    ranking = make_ranking(runs, asked)
    if ranking and ranking.direction and ranking.metric.startswith("val/"):
        return ranking
    found = ranking and ranking.metric
    raise ConfigError(
        f"expected a score of validation with a direction, got {found!r}; "
        "the test subset stays sealed",
        key="--metric",
        hint="--metric val/accuracy:max, or val/loss:min",
    )
