"""Bayesian and evolutionary search on Optuna, asked and told job by job."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import secrets
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from typing_extensions import override

from assay.analysis.objective import objectives
from assay.callbacks.optuna_study import build_part, close_storage, no_news, open_storage, sqlite_url
from assay.config.serialize import check_whole_number
from assay.errors import ConfigError, one_line_of
from assay.sweep.search.search import Proposal, Search
from assay.sweep.search.space import Choice, read_space
from assay.targets.optional_packages import install

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna
    from hydra.core.config_loader import ConfigLoader

    from assay.analysis.objective import Objective
    from assay.record.outcome import Outcome
    from assay.sweep.search.search import Known
    from assay.sweep.search.space import Dimension, Space

FILE: Final = "study.db"
NO_PRUNER: Final = "optuna.pruners.NopPruner"
_STUDY: Final = "sweep"
_GRID: Final = "optuna.samplers.GridSampler"
_QMC: Final = "optuna.samplers.QMCSampler"
_CMA: Final = "optuna.samplers.CmaEsSampler"
_MOST_POINTS: Final = 1_000_000


@final
@dataclass
class _Trial:
    """One configuration: one job per seed, the first of which goes ahead of the others."""

    number: int
    values: dict[str, Any]
    proposed: list[str] = field(default_factory=list)
    ended: dict[str, tuple[Outcome, Sequence[float] | None]] = field(default_factory=dict)
    told: bool = False


@final
class OptunaSearch(Search):
    """Searches with one of Optuna's samplers; any number of jobs may run at once.

    A trial is one configuration. Where the seed is swept, it is one job per seed, and its value is the mean
    of their scores; the first seed's job alone is pruned, and the others follow when it has come through. A
    trial fails with any of its jobs, and counts.

    What the n-th trial is depends on the seed, n and what was told before it: jobs run one at a time give the
    same study again, however often it was killed and resumed.

    Args:
        overrides: As typed.
        sweep_dir: Of the sweep; holds `study.db`.
        params: The search space by key, in Hydra's sweep grammar; what is typed wins.
        num_trials: In all, those before a resume included.
        objective: Metric to optimize, or several; None for `val/loss`.
        direction: `minimize` or `maximize`, of each.
        sampler: `_target_` of one of Optuna's and its arguments.
        pruner: The same.
        seed: Of the sampler; None draws one.
        config_loader: Hydra's, for `glob(*)`.

    Raises:
        ConfigError: Optuna is not installed, or an argument cannot be used.
    """

    learns = True
    ahead = False

    def __init__(
        self,
        overrides: Sequence[str],
        sweep_dir: Path,
        *,
        params: Mapping[str, Any] | None = None,
        num_trials: int = 20,
        objective: str | Sequence[str] | None = None,
        direction: str | Sequence[str] | None = None,
        sampler: Mapping[str, Any] | None = None,
        pruner: Mapping[str, Any] | None = None,
        seed: int | None = 0,
        config_loader: ConfigLoader | None = None,
    ) -> None:
        if importlib.util.find_spec("optuna") is None:
            raise ConfigError(
                "this search needs the package optuna, which is not installed",
                key="hydra/sweeper",
                hint=install("hydra.sweeper.optuna", "optuna"),
            )
        self._space = read_space(overrides, params, config_loader)
        self._objectives = tuple(objectives({"objective": objective, "direction": direction}, {}))
        self._sampler = dict(sampler or {"_target_": "optuna.samplers.TPESampler"})
        self._pruner = dict(pruner or {"_target_": NO_PRUNER})
        self._seed = secrets.randbits(32) if seed is None else seed
        check_whole_number("hydra.sweeper.num_trials", num_trials, 1)
        self._space.check_not_empty()
        self._limit = num_trials
        if self._sampler["_target_"] == _GRID:
            self._sampler["search_space"] = grid = _grid(self._space)
            self._limit = min(num_trials, math.prod(map(len, grid.values())))
        self._check_parts()
        self._sweep_dir = Path(sweep_dir).resolve()
        self._storage = sqlite_url(self._sweep_dir / FILE)
        self._opened: tuple[optuna.Study, optuna.storages.BaseStorage] | None = None
        self._trials: dict[int, _Trial] = {}
        self._queue: deque[_Trial] = deque()
        self._left: deque[_Trial] = deque()  # by a sweep that was killed right after it had asked

    def _check_parts(self) -> None:
        """Refuse parts that cannot be made, or not together."""
        if self._sampler["_target_"] == _CMA:
            raise ConfigError(
                "CMA-ES keeps its state as a pickle, which is not read",
                key="hydra.sweeper.sampler",
                hint="hydra/sweeper/sampler=tpe",
            )
        self._make_sampler(0)
        try:
            build_part("pruner", self._pruner)
        except ValueError as error:
            raise ConfigError(str(error), key="hydra.sweeper.pruner") from error
        tested = next((aim.name for aim in self._objectives if aim.name.startswith("test/")), None)
        if self._prunes and (len(self._objectives) > 1 or tested):
            what = f"{tested} is known only at the end" if tested else "there are several objectives"
            raise ConfigError(
                f"{what}: nothing can be pruned",
                key="hydra.sweeper.pruner",
                hint="hydra/sweeper/pruner=none",
            )

    @property
    def _prunes(self) -> bool:
        return bool(self._pruner["_target_"] != NO_PRUNER)

    # -- the study -------------------------------------------------------------------------------------------

    @property
    def study(self) -> optuna.Study:
        """Optuna's own object; opened when it is first asked for."""
        return self._open()[0]

    @override
    def close(self) -> None:
        if self._opened is not None:
            close_storage(self._opened[1])
            self._opened = None

    def _open(self) -> tuple[optuna.Study, optuna.storages.BaseStorage]:
        if self._opened is None:
            make_study(self._sweep_dir, self._objectives)
            self._opened = open_study(self._storage, self._objectives)
        return self._opened

    # -- proposals -------------------------------------------------------------------------------------------

    @property
    @override
    def total(self) -> int:
        """Jobs in all; fewer once a trial fails or is pruned before all its seeds have run."""
        seeds = len(self._space.seeds)
        started = sum(len(trial.proposed) if trial.told else seeds for trial in self._trials.values())
        return started + max(0, self._limit - len(self._trials)) * seeds

    @override
    def samples(self) -> list[tuple[str, ...]]:
        ends = [
            {
                dimension.key: (
                    dimension.values[end]
                    if isinstance(dimension, Choice)
                    else (dimension.low, dimension.high)[end]
                )
                for dimension in self._space.dimensions
            }
            for end in (0, -1)
        ]
        choices = [dimension for dimension in self._space.dimensions if isinstance(dimension, Choice)]
        between = [
            {**ends[0], dimension.key: value} for dimension in choices for value in dimension.values[1:-1]
        ]
        return [self._space.job(values, self._space.seeds[0]) for values in (*ends, *between)]

    @override
    def next(self) -> Proposal | None:
        """A further seed of a trial that has come through; else a new trial."""
        while self._queue:
            trial = self._queue[0]
            missing = [seed for seed in self._space.seeds if seed not in trial.proposed]
            if missing and not trial.told:
                return self._propose(trial, missing[0])
            self._queue.popleft()
        if len(self._trials) >= self._limit:
            return None
        trial = self._left.popleft() if self._left else self._ask(len(self._trials))
        self._trials[trial.number] = trial
        return self._propose(trial, self._space.seeds[0])

    def _ask(self, index: int) -> _Trial:
        study = self.study
        with no_news():
            study.sampler = self._make_sampler(index)
            try:
                asked = study.ask({one.key: distribution(one) for one in self._space.dimensions})
            except ValueError as error:
                raise ConfigError(
                    f"the study cannot go on with this space: {error}",
                    key="hydra.sweeper.params",
                    hint="begin a new sweep",
                ) from error
        return _Trial(asked.number, dict(asked.params))

    def _make_sampler(self, index: int) -> optuna.samplers.BaseSampler:
        """Made anew for each trial: its seed is a function of the search's and the trial's number."""
        import optuna

        target = self._sampler["_target_"]
        seed = _derived(self._seed, index)
        given: dict[str, Any] = {"seed": seed}
        if target in (_QMC, _GRID):  # their points are one sequence, which the seed scrambles
            given["seed"] = _derived(self._seed, 0)
        if target == _QMC and "independent_sampler" not in self._sampler:  # for what comes before it
            given["independent_sampler"] = optuna.samplers.RandomSampler(seed)
        try:
            sampler: optuna.samplers.BaseSampler = build_part("sampler", self._sampler, **given)
        except ValueError as error:
            raise ConfigError(str(error), key="hydra.sweeper.sampler") from error
        return sampler

    def _propose(self, trial: _Trial, seed: str) -> Proposal:
        trial.proposed.append(seed)
        token = f"{trial.number}/{seed}" if seed else str(trial.number)
        return Proposal(self._space.job(trial.values, seed), token)

    @override
    def trial(self, token: str) -> dict[str, Any] | None:
        """What the job needs that goes ahead of its trial's further seeds; None for the others."""
        number, seed = _parsed(token)
        if not self._prunes or seed != self._trials[number].proposed[0]:
            return None
        return {
            "monitor": self._objectives[0].name,
            "storage": self._storage,
            "study": _STUDY,
            "trial": number,
            "pruner": self._pruner,
        }

    # -- ends ------------------------------------------------------------------------------------------------

    @override
    def tell(self, token: str, outcome: Outcome, scores: Sequence[float] | None) -> None:
        """Tell the study about a trial whose end is known; let its further seeds follow its first."""
        number, seed = _parsed(token)
        trial = self._trials[number]
        if trial.told or seed in trial.ended or outcome.status == "interrupted":
            return
        trial.ended[seed] = outcome, scores
        ends = list(trial.ended.values())
        if any(outcome.status == "pruned" for outcome, _ in ends):
            self._tell(trial, "PRUNED", None)
        elif not all(outcome.status == "finished" and self._counts(scores) for outcome, scores in ends):
            self._tell(trial, "FAIL", None)
        elif all(seed in trial.ended for seed in self._space.seeds):
            columns = zip(*(scores or () for _, scores in ends), strict=True)
            self._tell(trial, "COMPLETE", [math.fsum(column) / len(column) for column in columns])
        else:
            self._queue.append(trial)

    def _counts(self, scores: Sequence[float] | None) -> bool:
        """Whether a study can take these scores."""
        return (
            scores is not None and len(scores) == len(self._objectives) and not any(map(math.isnan, scores))
        )

    def _tell(self, trial: _Trial, state: str, values: list[float] | None) -> None:
        import optuna

        trial.told = True
        study, storage = self._open()
        trial_id = storage.get_trial_id_from_study_id_trial_number(study._study_id, trial.number)
        if not storage.get_trial(trial_id).state.is_finished():
            with no_news():
                study.sampler = optuna.samplers.RandomSampler(0)  # a grid's own would end `optimize`
                study.tell(trial.number, values, state=optuna.trial.TrialState[state])

    @override
    def restore(self, known: Sequence[Known]) -> None:
        stored = {trial.number: trial for trial in self.study.get_trials(deepcopy=False)}
        for token, _, _ in known:
            number, seed = _parsed(token)
            if number not in stored:
                raise ConfigError(
                    f"{self._sweep_dir / FILE} has no trial {number}, which the journal has",
                    key="hydra.sweeper",
                    hint="begin a new sweep, or put the study's file back",
                )
            trial = self._trials.setdefault(number, _Trial(number, dict(stored[number].params)))
            trial.proposed.append(seed)
        for token, outcome, scores in known:
            if outcome is not None:
                self.tell(token, outcome, scores)
        for number, left in stored.items():
            if number not in self._trials and not left.state.is_finished():
                self._take_up(left)

    def _take_up(self, left: optuna.trial.FrozenTrial) -> None:
        """Propose what was asked for right before the sweep was killed, or end it where it is not whole."""
        from optuna.trial import TrialState

        if len(left.params) == len(self._space.dimensions):
            self._left.append(_Trial(left.number, dict(left.params)))
        else:
            self._open()[1].set_trial_state_values(left._trial_id, TrialState.FAIL)


def _parsed(token: str) -> tuple[int, str]:
    number, _, seed = token.partition("/")
    return int(number), seed


def _derived(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:4], "big")


def distribution(dimension: Dimension) -> optuna.distributions.BaseDistribution:
    """A parameter as Optuna has it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    low, high, step, log = dimension.low, dimension.high, dimension.step, dimension.log
    if dimension.integer:
        return IntDistribution(int(low), int(high), log=log, step=int(step) or 1)
    return FloatDistribution(low, high, log=log, step=step or None)


def _grid(space: Space) -> dict[str, list[Any]]:
    """The values of each parameter, for Optuna's GridSampler."""
    grid: dict[str, list[Any]] = {}
    for dimension in space.dimensions:
        if isinstance(dimension, Choice):
            grid[dimension.key] = list(dimension.values)
            continue
        low, high = dimension.low, dimension.high
        step = dimension.step or float(dimension.integer)
        if not step:
            raise ConfigError(
                f"a grid cannot list every number from {low} to {high}",
                key=dimension.key,
                hint=f"hydra/sweeper/sampler=tpe, or a list: {dimension.key}={low},{high}",
            )
        values = (low + number * step for number in range(round((high - low) / step) + 1))
        grid[dimension.key] = [round(value) if dimension.integer else value for value in values]
    size = math.prod(map(len, grid.values()))
    if size > _MOST_POINTS:
        raise ConfigError(
            f"the grid has {size} points", key="hydra.sweeper.sampler", hint="hydra/sweeper/sampler=qmc"
        )
    return grid


def open_study(storage: str, aims: Sequence[Objective]) -> tuple[optuna.Study, optuna.storages.BaseStorage]:
    """Open a study, or make it."""
    import optuna

    directions = [aim.direction for aim in aims]
    try:
        with no_news():
            opened = optuna.storages.get_storage(open_storage(storage, is_new=True))
            study = optuna.create_study(
                storage=opened,
                study_name=_STUDY,
                directions=directions,
                load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(0),
            )
    except Exception as error:  # Optuna lets through what SQLAlchemy says
        raise ConfigError(
            f"the study {storage} cannot be opened: {one_line_of(error.__cause__ or error)}",
            key="hydra.sweeper",
        ) from error
    if [direction.name.lower() for direction in study.directions] != directions:
        raise ConfigError(
            "the study has other objectives already", key="hydra.sweeper.objective", hint="begin a new sweep"
        )
    return study, opened


def make_study(sweep_dir: Path, aims: Sequence[Objective]) -> None:
    """Make the study of a sweep directory, whole or not at all: Optuna cannot go on with half a database."""
    sweep_dir.mkdir(parents=True, exist_ok=True)
    if (sweep_dir / FILE).exists():
        return
    unfinished = sweep_dir / f".{FILE}.tmp"
    beside = sweep_dir / f"{unfinished.name}-journal"
    for path in (beside, unfinished):
        path.unlink(missing_ok=True)
    close_storage(open_study(sqlite_url(unfinished), aims)[1])
    os.replace(unfinished, sweep_dir / FILE)  # noqa: PTH105 - the usual name of this step
    beside.unlink(missing_ok=True)
