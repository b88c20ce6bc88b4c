"""Every combination of what is swept, in the order of Hydra's own sweeper; and nested search over folds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, final

from hydra.core.override_parser.types import IntervalSweep
from typing_extensions import override

from assay.analysis.config_values import INNER_FOLDS
from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError
from assay.sweep.search.search import Proposal, Search
from assay.sweep.search.space import as_typed, discrete, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

    from assay.analysis.objective import Objective
    from assay.record.outcome import Outcome
    from assay.sweep.search.search import Known


_KEY = "hydra.sweeper.zip"


@final
class GridSearch(Search):
    """Every combination, the last parameter fastest, as Hydra's basic sweeper lists them.

    Args:
        overrides: As typed, sweeps such as `seed=1,2,3` among them.
        params: Further sweeps by key; what is typed wins.
        zip: Lists of keys whose values move together: the first of each, the second of each, ….
        config_loader: Hydra's, for `glob(*)`.

    Raises:
        ConfigError: A sweep cannot be listed, or zipped keys have not equally many values.
    """

    def __init__(
        self,
        overrides: Sequence[str],
        *,
        params: Mapping[str, Any] | None = None,
        zip: Sequence[Sequence[str]] = (),
        config_loader: ConfigLoader | None = None,
    ) -> None:
        parsed = parse(overrides, params, config_loader)
        self._jobs = [tuple(job) for job in _combinations(parsed, zip)]
        self._position = 0
        self._known: Counter[str] = Counter()

    @property
    @override
    def total(self) -> int:
        return len(self._jobs)

    @override
    def next(self) -> Proposal | None:
        while self._position < len(self._jobs):
            job = self._jobs[self._position]
            self._position += 1
            token = " ".join(job)
            if not self._known[token]:
                return Proposal(job, token=token)
            self._known[token] -= 1  # a combination that is listed twice runs twice
        return None

    @override
    def restore(self, known: Sequence[Known]) -> None:
        """Leave out what the journal knows; combinations that an edited grid adds are still to come."""
        self._known = Counter(token for token, _, _ in known)


def _combinations(parsed: Mapping[str, Override], zipped: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Each job's overrides, in the order in which their keys were given."""
    values = {key: _values(key, override) for key, override in parsed.items()}
    groups = [[_name(key, parsed) for key in group] for group in zipped]
    _check_zip(values, groups, parsed)
    group_of = {key: tuple(group) for group in groups for key in group}
    axes = list(dict.fromkeys(group_of.get(key, (key,)) for key in values))
    jobs = []
    for picked in itertools.product(*(zip(*(values[key] for key in axis), strict=True) for axis in axes)):
        job = {
            key: text
            for axis, texts in zip(axes, picked, strict=True)
            for key, text in zip(axis, texts, strict=True)
        }
        jobs.append(tuple(job[key] for key in values))
    return jobs


def _values(key: str, override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [as_typed(key, override)]
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        low, high = sweep.start, sweep.end
        raise ConfigError(
            f"a grid cannot list every number from {low} to {high}",
            key=key,
            hint=f"hydra/sweeper=random, hydra/sweeper=optuna, or a list: {key}={low},{high}",
        )
    return [f"{key}={value}" for value in discrete(override)]


def _name(key: str, parsed: Mapping[str, Override]) -> str:
    return key if key in parsed else f"+{key}"


def _check_zip(
    values: Mapping[str, Sequence[str]], groups: Sequence[Sequence[str]], parsed: Mapping[str, Override]
) -> None:
    swept = [key for key, override in parsed.items() if override.is_sweep_override()]
    zipped = [key for group in groups for key in group]
    for key in zipped:
        if key not in swept or zipped.count(key) > 1:
            plain = key.lstrip("+")
            what = "is zipped twice" if key in swept else f"is not swept{did_you_mean(plain, swept, '; ')}"
            raise ConfigError(f"{plain} {what}", key=_KEY, hint=f"{plain}=a,b,c, and each key once")
    for group in groups:
        if len({len(values[key]) for key in group}) > 1:
            lengths = " and ".join(f"{key} has {len(values[key])}" for key in group)
            raise ConfigError(
                f"values that move together must be equally many: {lengths}",
                key=_KEY,
                hint="give each of them one value per job",
            )


_FOLD, _INNER, _SEED = "fold", "inner_fold", "seed"


@final
class NestedSearch(Search):
    """A search for each outer fold, in which a configuration's score is its mean over inner folds and seeds.

    When all jobs of an outer fold have ended, its best configuration is trained once more (each seed),
    without inner folds, and tested on the outer fold, which no job has seen before. Varma and Simon, "Bias in
    error estimation when using cross-validation for model selection" (BMC Bioinformatics 2006).
    """

    ahead = False

    def __init__(
        self,
        overrides: Sequence[str],
        make: Callable[[Sequence[str]], Search],
        objective: Objective,
        *,
        params: Mapping[str, object] | None = None,
        config_loader: ConfigLoader | None = None,
    ) -> None:
        if objective.name.startswith("test/"):
            raise ConfigError(
                f"{objective.name} was given; inner folds choose by the validation, and have no test",
                key="hydra.sweeper.objective",
                hint=f"hydra.sweeper.objective=val/{objective.name.removeprefix('test/')}",
            )
        self._objective = objective
        parsed = parse(overrides, params, config_loader)
        override = parsed.get(_FOLD)
        folds = _values(_FOLD, override) if override is not None else [""]
        others = [line for line in overrides if line.partition("=")[0] != _FOLD]
        self._inner = {fold: _jobs(make([*others, *([fold] if fold else [])])) for fold in folds}
        self._proposed: set[str] = set()
        self._scores: dict[str, float | None] = {}

    @property
    @override
    def total(self) -> int:
        """Jobs in all: of the inner folds, and one for each outer fold and seed."""
        finals = sum(len({_of(job, _SEED) for job in jobs.values()}) for jobs in self._inner.values())
        return sum(map(len, self._inner.values())) + finals

    @override
    def samples(self) -> list[tuple[str, ...]]:
        first = next(iter(self._inner.values()))
        by_configuration = {_configuration(job): job for job in reversed(first.values())}
        by_folds = {
            (fold, _of(job, _INNER)): job
            for fold, jobs in self._inner.items()
            for job in reversed(jobs.values())
        }
        outer = [_without_inner(next(iter(jobs.values()))) for jobs in self._inner.values()]
        return list(dict.fromkeys([*by_configuration.values(), *by_folds.values(), *outer]))

    @override
    def next(self) -> Proposal | None:
        """A job of an inner fold; where those of an outer fold have ended, what they chose."""
        for jobs in self._inner.values():
            for token, job in {**jobs, **self._finals(jobs)}.items():
                if token not in self._proposed:
                    self._proposed.add(token)
                    return Proposal(job, token=token)
        return None

    @override
    def restore(self, known: Sequence[Known]) -> None:
        for token, outcome, scores in known:
            self._proposed.add(token)
            if outcome is not None:
                self.tell(token, outcome, scores)

    @override
    def tell(self, token: str, outcome: Outcome, scores: Sequence[float] | None) -> None:
        if outcome.status != "interrupted":
            finite = scores is not None and len(scores) > 0 and math.isfinite(scores[0])
            self._scores[token] = scores[0] if finite and scores is not None else None

    def _finals(self, jobs: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """What an outer fold tests; nothing while an inner job is missing, or where none has come through."""
        if any(token not in self._scores for token in jobs):
            return {}
        scores: dict[tuple[str, ...], list[float | None]] = {}
        for token, job in jobs.items():
            scores.setdefault(_configuration(job), []).append(self._scores[token])
        means = {
            configuration: math.fsum(score for score in told if score is not None) / len(told)
            for configuration, told in scores.items()
            if None not in told
        }
        if not means:
            return {}
        best = min(means, key=lambda one: self._objective.sort_key(means[one]))
        chosen = [_without_inner(job) for job in jobs.values() if _configuration(job) == best]
        return {_token(job): job for job in chosen}


def _jobs(search: Search) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    while proposal := search.next():
        found.setdefault(_token(proposal.overrides), proposal.overrides)
    return found


def _token(job: Sequence[str]) -> str:
    """Whatever order a sweep that goes on has its overrides in, and from wherever it does."""
    return " ".join(sorted(line for line in job if not line.startswith("hydra")))


def _of(job: Sequence[str], key: str) -> str:
    return next((line.partition("=")[2] for line in job if line.partition("=")[0] == key), "")


def _configuration(job: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for line in job if line.partition("=")[0] not in (_SEED, _INNER))


def _without_inner(job: Sequence[str]) -> tuple[str, ...]:
    kept = (line for line in job if line.partition("=")[0] not in (_INNER, INNER_FOLDS))
    return (*kept, f"{_INNER}=null", f"{INNER_FOLDS}=null")
