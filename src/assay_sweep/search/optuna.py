"""Bayesian and evolutionary search on Optuna, asked and told job by job."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from typing_extensions import override

from assay.errors import ConfigError, describe_error, first_line
from assay.targets.resolve import require
from assay_analysis.objective import read_objectives
from assay_sweep.pruning import STUDY, build_part, open_storage, quiet_optuna
from assay_sweep.search.search import Choice, Count, Search, read_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna
    from hydra.core.config_loader import ConfigLoader

    from assay.record.run_record import Outcome
    from assay_analysis.objective import Objective
    from assay_sweep.search.search import Dimension, Known, Proposal

FILE = "study.log"
NO_PRUNER = "optuna.pruners.NopPruner"
_QMC = "optuna.samplers.QMCSampler"
_CMA = "optuna.samplers.CmaEsSampler"


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
        sweep_dir: Of the sweep; holds `study.log`.
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

    def __init__(
        self,
        overrides: Sequence[str],
        sweep_dir: Path,
        *,
        params: Mapping[str, Any] | None = None,
        num_trials: Count = 20,
        objective: str | Sequence[str] | None = None,
        direction: str | Sequence[str] | None = None,
        sampler: Mapping[str, Any] | None = None,
        pruner: Mapping[str, Any] | None = None,
        seed: int | None = 0,
        config_loader: ConfigLoader | None = None,
    ) -> None:
        require("hydra.sweeper", "this search", "optuna")
        self._space = read_space(overrides, params, config_loader)
        self._objectives = tuple(
            read_objectives({"objective": objective, "direction": direction}, {})
        )
        self._sampler = dict(sampler or {"_target_": "optuna.samplers.TPESampler"})
        self._pruner = dict(pruner or {"_target_": NO_PRUNER})
        if seed is None:
            seed = secrets.randbits(32)
        self._seed = seed
        self._limit = num_trials
        self._check_parts()
        self._file = Path(sweep_dir).resolve() / FILE
        self._trials: dict[int, _Trial] = {}
        self._queue: deque[_Trial] = deque()
        self._left: deque[_Trial] = deque()  # by a sweep that was killed right after it had asked

    def _check_parts(self) -> None:
        """Refuse parts that cannot be made, or not together."""
        if self._sampler["_target_"] == _CMA:
            message = "CMA-ES keeps its state as a pickle, which is not read"
            raise ConfigError(
                message, key="hydra.sweeper.sampler", hint="hydra/sweeper/sampler=tpe"
            )
        problem = ""
        if len(self._objectives) > 1:
            problem = "there are several objectives"
        for aim in self._objectives:
            if aim.name.startswith("test/"):
                problem = f"{aim.name} is known only at the end"
        if self._prunes and problem:
            message = f"{problem}: nothing can be pruned"
            raise ConfigError(
                message, key="hydra.sweeper.pruner", hint="hydra/sweeper/pruner=none"
            )
        self._try_parts()

    def _try_parts(self) -> None:
        """Use the parts for two trials in memory: some arguments are only looked at then."""
        import optuna

        with quiet_optuna():
            study = optuna.create_study(directions=[aim.direction for aim in self._objectives])
        part = ""
        try:
            for number in range(2):
                part = "sampler"
                trial = self._ask_study(study, number)
                part = "pruner"
                study.pruner = build_part(part, self._pruner)
                if self._prunes:
                    trial.report(0.0, 1)
                    trial.should_prune()
                study.sampler = optuna.samplers.RandomSampler(0)  # some end `optimize`
                study.tell(trial, [0.0] * len(self._objectives))
        except Exception as error:
            raise ConfigError(first_line(error), key=f"hydra.sweeper.{part}") from error

    @property
    def _prunes(self) -> bool:
        return bool(self._pruner["_target_"] != NO_PRUNER)

    @cached_property
    def study(self) -> optuna.Study:
        """Optuna's own object; opened when it is first asked for."""
        return open_study(self._file, self._objectives)

    # -- proposals -------------------------------------------------------------------------------------------

    @property
    @override
    def total(self) -> int:
        """Jobs in all; fewer once a trial fails or is pruned before all its seeds have run."""
        seeds = len(self._space.seeds)
        started = sum(
            len(trial.proposed) if trial.told else seeds for trial in self._trials.values()
        )
        return started + max(0, self._limit - len(self._trials)) * seeds

    @override
    def samples(self) -> list[tuple[str, ...]]:
        searched = self._space.dimensions
        ends = [{part.key: part.values[end] for part in searched} for end in (0, -1)]
        between = [
            {**ends[0], part.key: value} for part in searched for value in part.values[1:-1]
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
        if self._left:
            trial = self._left.popleft()
        else:
            trial = self._ask(len(self._trials))
        self._trials[trial.number] = trial
        return self._propose(trial, self._space.seeds[0])

    def _ask(self, index: int) -> _Trial:
        try:
            trial = self._ask_study(self.study, index)
        except ValueError as error:
            raise ConfigError(
                f"the study cannot continue with this search space: {error}",
                key="hydra.sweeper.params",
                hint="start a new sweep",
            ) from error
        return _Trial(trial.number, dict(trial.params))

    def _ask_study(self, study: optuna.Study, index: int) -> optuna.Trial:
        with quiet_optuna():
            study.sampler = self._make_sampler(index)
            return study.ask({part.key: to_distribution(part) for part in self._space.dimensions})

    def _make_sampler(self, index: int) -> optuna.samplers.BaseSampler:
        """Made anew for each trial: its seed is a function of the search's and the trial's number."""
        import optuna

        arguments: dict[str, Any] = {"seed": (seed := _derive_seed(self._seed, index))}
        # its points are one sequence, which the seed scrambles
        if self._sampler["_target_"] == _QMC:
            arguments["seed"] = _derive_seed(self._seed, 0)
            if "independent_sampler" not in self._sampler:  # for what comes before it
                arguments["independent_sampler"] = optuna.samplers.RandomSampler(seed)
        return cast(
            "optuna.samplers.BaseSampler", build_part("sampler", self._sampler, **arguments)
        )

    def _propose(self, trial: _Trial, seed: str) -> Proposal:
        trial.proposed.append(seed)
        return self._space.propose(trial.number, trial.values, seed)

    @override
    def trial(self, token: str) -> dict[str, Any] | None:
        """What the job needs that goes ahead of its trial's further seeds; None for the others."""
        number, seed = _parse_token(token)
        if not self._prunes or seed != self._trials[number].proposed[0]:
            return None
        return {
            "monitor": self._objectives[0].name,
            "storage": str(self._file),
            "trial": number,
            "pruner": self._pruner,
        }

    # -- ends ------------------------------------------------------------------------------------------------

    @override
    def tell(self, token: str, outcome: Outcome, scores: Sequence[float] | None) -> None:
        """Tell the study about a trial whose end is known; let its further seeds follow its first."""
        number, seed = _parse_token(token)
        trial = self._trials[number]
        if trial.told or seed in trial.ended or outcome.status == "interrupted":
            return
        trial.ended[seed] = outcome, scores
        ends = list(trial.ended.values())
        if any(outcome.status == "pruned" for outcome, _ in ends):
            self._tell(trial, "PRUNED", None)
        elif not all(
            outcome.status == "finished" and self._counts(scores) for outcome, scores in ends
        ):
            self._tell(trial, "FAIL", None)
        elif all(seed in trial.ended for seed in self._space.seeds):
            columns = zip(*(scores or () for _, scores in ends), strict=True)
            self._tell(trial, "COMPLETE", [math.fsum(column) / len(column) for column in columns])
        else:
            self._queue.append(trial)

    def _counts(self, scores: Sequence[float] | None) -> bool:
        """Whether a study can take these scores."""
        return (
            scores is not None
            and len(scores) == len(self._objectives)
            and not any(map(math.isnan, scores))
        )

    def _tell(self, trial: _Trial, state: str, values: list[float] | None) -> None:
        import optuna

        trial.told = True
        with quiet_optuna():
            self.study.sampler = optuna.samplers.RandomSampler(0)  # some end `optimize`
            self.study.tell(
                trial.number, values, state=optuna.trial.TrialState[state], skip_if_finished=True
            )

    @override
    def restore(self, known: Sequence[Known]) -> None:
        from optuna.trial import TrialState

        stored = {trial.number: trial for trial in self.study.get_trials(deepcopy=False)}
        for token, _, _ in known:
            number, seed = _parse_token(token)
            if number not in stored:
                raise ConfigError(
                    f"{self._file} has no trial {number}, which the journal has",
                    key="hydra.sweeper",
                    hint="start a new sweep, or restore the study's file",
                )
            trial = self._trials.setdefault(number, _Trial(number, dict(stored[number].params)))
            trial.proposed.append(seed)
        for token, outcome, scores in known:
            if outcome is not None:
                self.tell(token, outcome, scores)
        # What was asked for right before the sweep was killed is proposed, or ended where it is not whole.
        for number, stored_trial in stored.items():
            if number in self._trials or stored_trial.state.is_finished():
                continue
            if len(stored_trial.params) == len(self._space.dimensions):
                self._left.append(_Trial(number, dict(stored_trial.params)))
            else:
                self.study.tell(number, state=TrialState.FAIL)


def _parse_token(token: str) -> tuple[int, str]:
    number, _, seed = token.partition("/")
    return int(number), seed


def _derive_seed(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:4], "big")


def to_distribution(dimension: Dimension) -> optuna.distributions.BaseDistribution:
    """A parameter as Optuna has it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    low = dimension.low
    high = dimension.high
    step = dimension.step
    log = dimension.log
    if dimension.integer:
        return IntDistribution(int(low), int(high), log=log, step=int(step) or 1)
    return FloatDistribution(low, high, log=log, step=step or None)


def open_study(path: Path, aims: Sequence[Objective]) -> optuna.Study:
    """Open a study, or make it."""
    import optuna

    path.parent.mkdir(parents=True, exist_ok=True)
    directions = [aim.direction for aim in aims]
    try:
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)  # half a line, as of a full disk
        with quiet_optuna():
            study = optuna.create_study(
                storage=open_storage(str(path)),
                study_name=STUDY,
                directions=directions,
                load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(0),
            )
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"the study {path} is damaged: {describe_error(error)}", key="hydra.sweeper"
        ) from error
    if [direction.name.lower() for direction in study.directions] != directions:
        raise ConfigError(
            "the study has other objectives already",
            key="hydra.sweeper.objective",
            hint="start a new sweep",
        )
    return study
