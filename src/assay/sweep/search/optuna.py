"""Bayesian and evolutionary search on Optuna, asked and told job by job."""

from __future__ import annotations

import importlib.util
import math
import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from typing_extensions import override

from assay.analysis.objective import objectives
from assay.callbacks.optuna_study import (
    JOURNAL_ENDINGS,
    build_part,
    close_storage,
    no_news,
    open_storage,
    sqlite_url,
    takes_argument,
)
from assay.config.serialize import check_whole_number
from assay.errors import ConfigError, one_line_of
from assay.sweep.search.search import Proposal, Search
from assay.sweep.search.space import Choice, read_space
from assay.sweep.search.study import Samplers, add_earlier, distribution, earlier_runs, read_constraints
from assay.targets.optional_packages import install

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna
    from hydra.core.config_loader import ConfigLoader

    from assay.analysis.objective import Objective
    from assay.record.outcome import Outcome
    from assay.sweep.search.search import Known
    from assay.sweep.search.study import Constraint

FILE: Final = "study.db"
NO_PRUNER: Final = "optuna.pruners.NopPruner"
_SWEEP, _ABANDONED, _CONSTRAINTS = "sweep", "abandoned", "constraints"


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
        num_trials: In all, those before a resume included, earlier runs not.
        objective: Metric to optimize, or several; None for `val/loss`.
        direction: `minimize` or `maximize`, of each.
        sampler: `_target_` of one of Optuna's and its arguments.
        pruner: The same.
        storage: None for an SQLite file in the sweep directory; any URL that Optuna takes; or the path of a
            journal file ending in `.log` or `.journal`. Several machines may share one of the latter two,
            under one `study_name`.
        study_name: In the storage; by default that of the sweep directory.
        constraints: Bounds on metrics, such as `val/latency <= 3`.
        warm_start: Run or sweep directories; their finished runs that lie in the search space are trials too.
        seed: Of the sampler; None draws one.
        config_loader: Hydra's, for `glob(*)`.

    Raises:
        ConfigError: Optuna is not installed, or an argument cannot be used.
    """

    learns = True

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
        storage: str | None = None,
        study_name: str | None = None,
        constraints: Sequence[str] = (),
        warm_start: Sequence[str] = (),
        seed: int | None = 0,
        config_loader: ConfigLoader | None = None,
    ) -> None:
        check_installed(sampler)
        self._space = read_space(overrides, params, config_loader)
        self._objectives = tuple(objectives({"objective": objective, "direction": direction}, {}))
        self._constraints = read_constraints(constraints)
        self._sampler = dict(sampler or {"_target_": "optuna.samplers.TPESampler"})
        self._pruner = dict(pruner or {"_target_": NO_PRUNER})
        self._check(num_trials)
        self._samplers = Samplers(self._sampler, self._space, seed, constrained=bool(self._constraints))
        self._limit = min(num_trials, self._samplers.most)
        self._sweep_dir, self._warm_start = Path(sweep_dir).resolve(), list(warm_start)
        self._own = storage is None
        self._storage = storage_of(storage, self._sweep_dir)
        self._study_name = study_name or ("sweep" if self._own else self._sweep_dir.name)
        self._opened: tuple[optuna.Study, optuna.storages.BaseStorage] | None = None
        self._trials: dict[int, _Trial] = {}
        self._queue: deque[_Trial] = deque()
        self.notes: list[str] = []
        """What is worth saying about the start."""

    def _check(self, num_trials: int) -> None:
        check_whole_number("hydra.sweeper.num_trials", num_trials, 1)
        self._space.check_not_empty()
        check_parts(self._sampler, self._pruner, self._objectives, constrained=bool(self._constraints))

    @property
    def _prunes(self) -> bool:
        return prunes(self._pruner)

    # -- the study -------------------------------------------------------------------------------------------

    @property
    def study(self) -> optuna.Study:
        """Optuna's own object; opened when it is first asked for."""
        return self._open()[0]

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The bounds on metrics."""
        return self._constraints

    @override
    def close(self) -> None:
        if self._opened is not None:
            close_storage(self._opened[1])
            self._opened = None

    def _open(self) -> tuple[optuna.Study, optuna.storages.BaseStorage]:
        if self._opened is None:
            study = self._study_name, self._objectives, self._pruner
            if self._own:
                make_own(self._sweep_dir, *study)
            self._opened = open_study(self._storage, *study)
            self._add_earlier(self._opened[0])
        return self._opened

    def _add_earlier(self, study: optuna.Study) -> None:
        if self._warm_start:
            runs, looked_at = earlier_runs(self._warm_start, self._space, self._objectives)
            runs = [run for run in runs if not run.run_dir.is_relative_to(self._sweep_dir)]
            add_earlier(study, runs, self._distributions, self._constraints)
            self.notes.append(f"{len(runs)} of {looked_at} earlier runs lie in the search space and are used")

    @property
    def _distributions(self) -> dict[str, Any]:
        return {dimension.key: distribution(dimension) for dimension in self._space.dimensions}

    # -- proposals -------------------------------------------------------------------------------------------

    @property
    @override
    def total(self) -> int:
        """Jobs in all; fewer once a trial fails or is pruned before all its seeds have run."""
        seeds = len(self._space.seeds)
        started = sum(len(trial.proposed) if trial.told else seeds for trial in self._trials.values())
        return started + max(0, self._limit - len(self._trials)) * seeds

    @property
    @override
    def ahead(self) -> bool:
        """Never: what comes next depends on what came before."""
        return False

    @override
    def samples(self) -> list[tuple[str, ...]]:
        first = {
            dimension.key: dimension.values[0] if isinstance(dimension, Choice) else dimension.low
            for dimension in self._space.dimensions
        }
        last = {
            dimension.key: dimension.values[-1] if isinstance(dimension, Choice) else dimension.high
            for dimension in self._space.dimensions
        }
        choices = [dimension for dimension in self._space.dimensions if isinstance(dimension, Choice)]
        between = [
            {**first, dimension.key: value} for dimension in choices for value in dimension.values[1:-1]
        ]
        return [self._space.job(values, self._space.seeds[0]) for values in (first, last, *between)]

    @override
    def next(self) -> Proposal | None:
        """A further seed of a trial that has come through; else a new trial."""
        while self._queue:
            trial = self._queue[0]
            missing = [seed for seed in self._space.seeds if seed not in trial.proposed]
            if missing and not trial.told:
                return self._propose(trial, missing[0])
            self._queue.popleft()
        counted = self._counted()
        if counted >= self._limit:
            return None
        trial = self._ask(counted)
        self._trials[trial.number] = trial
        return self._propose(trial, self._space.seeds[0])

    def _counted(self) -> int:
        if self._own:
            return len(self._trials)
        trials = self.study.get_trials(deepcopy=False)
        return sum(_SWEEP in trial.user_attrs and _ABANDONED not in trial.user_attrs for trial in trials)

    def _ask(self, index: int) -> _Trial:
        study = self.study
        with no_news():
            study.sampler = self._samplers.sampler(index)
            try:
                asked = study.ask(self._distributions)
            except ValueError as error:
                raise ConfigError(
                    f"the study cannot go on with this space: {error}",
                    key="hydra.sweeper.params",
                    hint=f"begin a new sweep with hydra.sweeper.warm_start=[{self._sweep_dir}]",
                ) from error
        if not self._own:
            asked.set_user_attr(_SWEEP, self._name)
        return _Trial(asked.number, dict(asked.params))

    @property
    def _name(self) -> str:
        return "/".join(self._sweep_dir.parts[-3:])

    def _propose(self, trial: _Trial, seed: str) -> Proposal:
        trial.proposed.append(seed)
        token = _token(trial.number, seed)
        return Proposal(self._space.job(trial.values, seed), self.trial(token), token)

    @override
    def trial(self, token: str) -> dict[str, Any] | None:
        """What the job needs that goes ahead of its trial's further seeds; None for the others."""
        number, seed = _parsed(token)
        if not self._prunes or seed != self._trials[number].proposed[0]:
            return None
        return {
            "monitor": self._objectives[0].name,
            "storage": self._storage,
            "study": self._study_name,
            "trial": number,
            "pruner": self._pruner,
        }

    # -- ends ------------------------------------------------------------------------------------------------

    @override
    def tell(self, token: str, outcome: Outcome, scores: Sequence[float] | None) -> None:
        number, seed = _parsed(token)
        trial = self._trials[number]
        if seed not in trial.ended and outcome.status != "interrupted":
            trial.ended[seed] = outcome, scores
            self._advance(trial)

    def _advance(self, trial: _Trial) -> None:
        """Tell the study about a trial whose end is known; let its further seeds follow its first."""
        from optuna.trial import TrialState

        if trial.told:
            return
        ends = list(trial.ended.values())
        scores = [
            _numbers(scores, len(self._objectives))
            for outcome, scores in ends
            if outcome.status == "finished"
        ]
        if any(outcome.status == "pruned" for outcome, _ in ends):
            self._tell(trial, TrialState.PRUNED, None)
        elif len(scores) < len(ends) or None in scores:
            self._tell(trial, TrialState.FAIL, None)
        elif all(seed in trial.ended for seed in self._space.seeds):
            columns = zip(*(score for score in scores if score is not None), strict=True)
            self._tell(trial, TrialState.COMPLETE, [math.fsum(column) / len(column) for column in columns])
        else:
            self._queue.append(trial)

    def _tell(self, trial: _Trial, state: optuna.trial.TrialState, values: list[float] | None) -> None:
        import optuna

        study, storage = self._open()
        trial_id = storage.get_trial_id_from_study_id_trial_number(study._study_id, trial.number)
        trial.told = True
        if storage.get_trial(trial_id).state.is_finished():
            return
        if self._constraints and state != optuna.trial.TrialState.FAIL:
            metrics = [outcome.metrics for outcome, _ in trial.ended.values()]
            means = [
                math.fsum(bound.excess(m) for m in metrics) / len(metrics) for bound in self._constraints
            ]
            storage.set_trial_system_attr(trial_id, _CONSTRAINTS, means)
        with no_news():
            # What samplers do after a trial is to call a function for the constraints, or to end `optimize`.
            study.sampler = optuna.samplers.RandomSampler(0)
            study.tell(trial.number, values, state=state)

    @override
    def restore(self, known: Sequence[Known]) -> None:
        stored = {trial.number: trial for trial in self.study.get_trials(deepcopy=False)}
        for token, _, _ in known:
            number, seed = _parsed(token)
            if number not in self._trials:
                there = number in stored and self._is_ours(stored[number])
                values = dict(stored[number].params) if there else {}
                self._trials[number] = _Trial(number, values, told=not there)
            self._trials[number].proposed.append(seed)
        self._fill_up(len(stored))
        for token, outcome, scores in known:
            if outcome is not None:
                self.tell(token, outcome, scores)
        for trial in stored.values():
            if self._is_ours(trial) and trial.number not in self._trials and not trial.state.is_finished():
                self._abandon(trial)

    def _is_ours(self, trial: optuna.trial.FrozenTrial) -> bool:
        return self._own or trial.user_attrs.get(_SWEEP) == self._name

    def _fill_up(self, stored: int) -> None:
        """Put something in the place of trials that the storage lost, so that no other gets their number."""
        import optuna

        lost = sum(trial.told for trial in self._trials.values())
        if lost:
            self.notes.append(f"the storage has lost {lost} trials: they count, and teach nothing")
        for _ in range(stored, max(self._trials, default=-1) + 1):
            self.study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL))

    def _abandon(self, trial: optuna.trial.FrozenTrial) -> None:
        """End a trial that was asked for right before the sweep was killed; none of its jobs ever ran."""
        from optuna.trial import TrialState

        storage = self._open()[1]
        storage.set_trial_user_attr(trial._trial_id, _ABANDONED, True)
        storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)


def _token(number: int, seed: str) -> str:
    return f"{number}/{seed}" if seed else str(number)


def _parsed(token: str) -> tuple[int, str]:
    number, _, seed = token.partition("/")
    return int(number), seed


def _numbers(scores: Sequence[float] | None, count: int) -> list[float] | None:
    """The scores, where a study can take them."""
    if scores is None or len(scores) != count or any(math.isnan(score) for score in scores):
        return None
    return [float(score) for score in scores]


def storage_of(storage: str | None, sweep_dir: Path) -> str:
    """The storage as another process can open it, wherever it runs."""
    if storage is None:
        return sqlite_url(sweep_dir / FILE)
    if "://" in storage:
        return storage
    path = Path(storage).absolute()
    if path.suffix not in JOURNAL_ENDINGS:
        raise ConfigError(
            f"{storage!r} is not a storage of studies",
            key="hydra.sweeper.storage",
            hint=f"a URL such as {sqlite_url(path)}, or a path ending in .journal",
        )
    return str(path)


def open_study(
    storage: str, name: str, objectives: Sequence[Objective], pruner: Mapping[str, Any]
) -> tuple[optuna.Study, optuna.storages.BaseStorage]:
    """Open a study, or make it."""
    import optuna

    directions = [objective.direction for objective in objectives]
    try:
        with no_news():
            opened = optuna.storages.get_storage(open_storage(storage, is_new=True))
            study = optuna.create_study(
                storage=opened,
                study_name=name,
                directions=directions,
                load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(0),
                pruner=build_part("pruner", pruner),
            )
    # Optuna lets through what SQLAlchemy, a driver or a missing one says.
    except Exception as error:
        raise ConfigError(
            f"the study cannot be opened: {one_line_of(error.__cause__ or error)}",
            key="hydra.sweeper.storage",
            hint="null, a URL such as sqlite:///study.db, or a path such as study.journal",
        ) from error
    if [direction.name.lower() for direction in study.directions] != directions:
        raise ConfigError(
            f"the study {name!r} has other objectives already",
            key="hydra.sweeper.study_name",
            hint="hydra.sweeper.study_name=ANOTHER",
        )
    return study, opened


def make_own(sweep_dir: Path, name: str, objectives: Sequence[Objective], pruner: Mapping[str, Any]) -> None:
    """Make the study of a sweep directory, whole or not at all: Optuna cannot go on with half a database."""
    sweep_dir.mkdir(parents=True, exist_ok=True)
    if (sweep_dir / FILE).exists():
        return
    unfinished = sweep_dir / f".{FILE}.tmp"
    beside = sweep_dir / f"{unfinished.name}-journal"
    for path in (beside, unfinished):
        path.unlink(missing_ok=True)
    close_storage(open_study(sqlite_url(unfinished), name, objectives, pruner)[1])
    os.replace(unfinished, sweep_dir / FILE)  # noqa: PTH105 - the usual name of this step
    beside.unlink(missing_ok=True)


def prunes(pruner: Mapping[str, Any]) -> bool:
    """Whether trials may be ended early."""
    return str(pruner.get("_target_")) != NO_PRUNER


def check_installed(sampler: Mapping[str, Any] | None) -> None:
    """Refuse a search whose packages are not there."""
    needed = ["optuna"]
    if str((sampler or {}).get("_target_")).endswith(".CmaEsSampler"):
        needed.append("cmaes")
    for package in needed:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"this search needs the package {package}, which is not installed",
                key="hydra/sweeper",
                hint=install("hydra.sweeper.optuna", package),
            )


def check_parts(
    sampler: Mapping[str, Any],
    pruner: Mapping[str, Any],
    aims: Sequence[Objective],
    *,
    constrained: bool,
) -> None:
    """Refuse parts that cannot be made, or not together."""
    for kind, node in (("sampler", sampler), ("pruner", pruner)):
        try:
            knows_constraints = takes_argument(kind, node, "constraints_func")
        except ValueError as error:
            raise ConfigError(str(error), key=f"hydra.sweeper.{kind}") from error
        if kind == "sampler" and constrained and not knows_constraints:
            raise ConfigError(
                "this sampler knows no constraints",
                key="hydra.sweeper.constraints",
                hint="hydra/sweeper/sampler=tpe, or nsgaii",
            )
    try:
        build_part("pruner", pruner)
    except ValueError as error:
        raise ConfigError(str(error), key="hydra.sweeper.pruner") from error
    tested = next((aim.name for aim in aims if aim.name.startswith("test/")), None)
    if prunes(pruner) and (len(aims) > 1 or tested):
        what = f"{tested} is known only at the end" if tested else "there are several objectives"
        raise ConfigError(
            f"{what}: nothing can be pruned",
            key="hydra.sweeper.pruner",
            hint="hydra/sweeper/pruner=none",
        )
    if len(aims) > 1 and str(sampler["_target_"]).endswith("CmaEsSampler"):
        raise ConfigError(
            "CMA-ES takes one objective", key="hydra.sweeper.sampler", hint="hydra/sweeper/sampler=nsgaii"
        )
