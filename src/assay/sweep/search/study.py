"""What a study of Optuna's is made of: samplers, bounds on metrics, and runs that it can begin with."""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import pickle
import random
import re
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.callbacks.optuna_study import build_part, no_news
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, ConfigError
from assay.record.run_directory import RunDirectory, find_runs
from assay.record.run_record import RunRecord
from assay.sweep.search.space import Choice
from assay.targets.resolve import own_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna

    from assay.analysis.objective import Objective
    from assay.sweep.search.space import Dimension, Space


_CONSTRAINT: Final = re.compile(r"\s*(\S+)\s*(<=|>=)\s*(\S+)\s*")


@final
@dataclass(frozen=True)
class Constraint:
    """A bound that a metric must keep."""

    name: str
    sign: int
    bound: float

    def excess(self, metrics: Mapping[str, float]) -> float:
        """How far a job is beyond the bound: 0 or less where it keeps it, infinite where nobody knows."""
        value = metrics.get(self.name, math.nan)
        return math.inf if math.isnan(value) else self.sign * (value - self.bound)


def read_constraints(constraints: Sequence[str]) -> tuple[Constraint, ...]:
    """What `hydra.sweeper.constraints` says."""
    parsed = []
    for text in constraints:
        match = _CONSTRAINT.fullmatch(str(text))
        try:
            bound = float(match[3]) if match else math.nan
        except ValueError:
            bound = math.nan
        if match is None or not math.isfinite(bound):
            raise ConfigError(
                f"{text!r} is not a bound on a metric",
                key="hydra.sweeper.constraints",
                hint="hydra.sweeper.constraints=['val/latency <= 3']",
            )
        parsed.append(Constraint(match[1], 1 if match[2] == "<=" else -1, bound))
    return tuple(parsed)


_GRID: Final = "optuna.samplers.GridSampler"
_KEEPS_ITS_SEED: Final = "optuna.samplers.QMCSampler"
"""Its points are one sequence, which the seed scrambles."""
_MOST_POINTS: Final = 1_000_000
_OF_CMA: Final = {
    *(("cmaes", name) for name in ("CMA", "CMAwM", "SepCMA")),
    *(("numpy", name) for name in ("_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar")),
}
"""What a state of CMA-ES is made of: package and name of classes and functions without side effects."""


@final
class Samplers:
    """Makes a sampler anew for each trial, its seed a function of the search's and the trial's number."""

    def __init__(self, node: Mapping[str, Any], space: Space, seed: int | None, *, constrained: bool) -> None:
        self._node, self._space = node, space
        self._seed = secrets.randbits(32) if seed is None else seed
        self._constrained = constrained
        restrict_pickle()
        self._points = _points(space, self._seed) if node["_target_"] == _GRID else None
        self.sampler(0)  # so that what is wrong is said before anything runs

    @property
    def most(self) -> int:
        """Trials that can differ, where they can be counted."""
        return sys.maxsize if self._points is None else len(self._points)

    def sampler(self, index: int) -> optuna.samplers.BaseSampler:
        """For one trial."""
        import optuna

        seed = _derived(self._seed, index)
        if self._points is not None:
            # Optuna's own takes a point as done when the trial that had it never ran.
            with no_news():
                return optuna.samplers.PartialFixedSampler(
                    self._points[index % len(self._points)], optuna.samplers.RandomSampler(seed)
                )
        given: dict[str, Any] = {"seed": seed}
        if self._node["_target_"] == _KEEPS_ITS_SEED:
            given["seed"] = _derived(self._seed, 0)
            if "independent_sampler" not in self._node:  # it draws what comes before the sequence
                given["independent_sampler"] = optuna.samplers.RandomSampler(seed)
        if self._constrained and not hasattr(optuna.trial.Trial, "set_constraint"):
            given["constraints_func"] = _constraints  # before version 5, samplers look at them only then
        try:
            sampler: optuna.samplers.BaseSampler = build_part("sampler", self._node, **given)
        except ValueError as error:
            raise ConfigError(str(error), key="hydra.sweeper.sampler") from error
        return sampler


def restrict_pickle() -> None:
    """Have Optuna's CMA-ES read its state, which it keeps pickled in a study, with `CmaState`."""
    from optuna.samplers import _cmaes

    vars(_cmaes)["pickle"] = CmaState


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module.partition(".")[0], name) not in _OF_CMA:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


@final
class CmaState:
    """In the place of the module `pickle`: a study's file may be anybody's, and runs no code here."""

    dumps = staticmethod(pickle.dumps)

    @staticmethod
    def loads(state: bytes) -> Any:
        """Read an optimizer of the package cmaes."""
        try:
            optimizer = _Unpickler(io.BytesIO(state)).load()
        except Exception as error:  # whatever damaged bytes lead to
            raise ValueError(f"the state of CMA-ES in this study cannot be read: {error}") from error
        if type(optimizer).__module__.partition(".")[0] != "cmaes":
            raise ValueError("the study holds no state of CMA-ES")
        return optimizer


def import_sampler(key: str, path: str, packages: Sequence[str]) -> None:
    """Import a sampler of the user's own, a subclass of Optuna's; `build_part` then knows it."""
    import optuna

    own_class(key, path, packages, optuna.samplers.BaseSampler)  # type: ignore[type-abstract]  # its subclasses


def distribution(dimension: Dimension) -> optuna.distributions.BaseDistribution:
    """A parameter as Optuna has it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    low, high, step, log = dimension.low, dimension.high, dimension.step, dimension.log
    if dimension.integer:
        return IntDistribution(int(low), int(high), log=log, step=int(step) or 1)
    return FloatDistribution(low, high, log=log, step=step or None)


def _constraints(trial: optuna.trial.FrozenTrial) -> list[float]:
    return list(trial.system_attrs.get("constraints", ()))


def _derived(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:4], "big")


def _points(space: Space, seed: int) -> list[dict[str, Any]]:
    """Every combination, in an order that the seed decides."""
    axes: list[list[tuple[str, Any]]] = []
    for dimension in space.dimensions:
        if isinstance(dimension, Choice):
            axes.append([(dimension.key, value) for value in dimension.values])
            continue
        step = dimension.step or (1.0 if dimension.integer else 0.0)
        if not step:
            key, low, high = dimension.key, dimension.low, dimension.high
            raise ConfigError(
                f"a grid cannot list every number from {low} to {high}",
                key=key,
                hint=f"hydra/sweeper/sampler=tpe, or a list: {key}={low},{high}",
            )
        count = round((dimension.high - dimension.low) / step) + 1
        values = [dimension.low + number * step for number in range(count)]
        axes.append([(dimension.key, round(value) if dimension.integer else value) for value in values])
    size = math.prod(len(axis) for axis in axes)
    if size > _MOST_POINTS:
        raise ConfigError(
            f"the grid has {size} points", key="hydra.sweeper.sampler", hint="hydra/sweeper/sampler=qmc"
        )
    points = [dict(point) for point in itertools.product(*axes)]
    random.Random(seed).shuffle(points)  # noqa: S311 - no secret
    return points


_RUN = "run"


@final
@dataclass(frozen=True)
class EarlierRun:
    """A finished run inside a search space."""

    run_dir: Path
    values: dict[str, Any]
    scores: tuple[float, ...]
    metrics: dict[str, float]


def earlier_runs(
    folders: Sequence[str], space: Space, objectives: Sequence[Objective]
) -> tuple[list[EarlierRun], int]:
    """The finished runs that lie within a search space, and how many runs were looked at."""
    fitting: list[EarlierRun] = []
    looked_at = 0
    for folder in folders:
        runs = sorted(find_runs(Path(folder)))
        if not runs:
            raise ConfigError(
                f"{folder} holds no run",
                key="hydra.sweeper.warm_start",
                hint="hydra.sweeper.warm_start=[outputs/NAME/sweeps/DATE]",
            )
        looked_at += len(runs)
        fitting += [run for run in (_read(path, space, objectives) for path in runs) if run is not None]
    return fitting, looked_at


def add_earlier(
    study: optuna.Study,
    runs: Sequence[EarlierRun],
    distributions: Mapping[str, optuna.distributions.BaseDistribution],
    constraints: Sequence[Constraint],
) -> None:
    """Add runs to a study as finished trials; those that it has already stay as they are."""
    import optuna

    there = {trial.user_attrs.get(_RUN) for trial in study.get_trials(deepcopy=False)}
    for run in runs:
        if str(run.run_dir) not in there:
            bounds = [constraint.excess(run.metrics) for constraint in constraints]
            study.add_trial(
                optuna.trial.create_trial(
                    params=run.values,
                    distributions=dict(distributions),
                    values=list(run.scores),
                    user_attrs={_RUN: str(run.run_dir)},
                    system_attrs={"constraints": bounds} if bounds else {},
                )
            )


def _read(run_dir: Path, space: Space, objectives: Sequence[Objective]) -> EarlierRun | None:
    try:
        record = RunRecord.load(run_dir)
        config = load_mapping(RunDirectory(run_dir).config)
    except AssayError:
        return None  # one damaged run among many is no reason not to use the others
    scores = [objective.score(record.outcome) for objective in objectives]
    if record.status != "finished" or None in scores:
        return None
    values: dict[str, Any] = {}
    for dimension in space.dimensions:
        name = dimension.key.lstrip("+")
        try:
            was = record.choices.get(name, OmegaConf.select(config, name))
        except OmegaConfBaseException:  # such as `a@b`, or what is still an interpolation
            return None
        value = _within(dimension, was)
        if value is None:
            return None
        values[dimension.key] = value
    return EarlierRun(
        run_dir.resolve(), values, tuple(score for score in scores if score is not None), dict(record.metrics)
    )


def _within(dimension: Dimension, value: Any) -> Any:
    """The value as the space writes it; None where it does not belong to it."""
    if isinstance(dimension, Choice):
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        parser = OverridesParser.create()
        texts = (text for text in dimension.values if parser.parse_override(f"x={text}").value() == plain)
        return next(texts, None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not dimension.low <= value <= dimension.high or (dimension.integer and value != int(value)):
        return None
    steps = (value - dimension.low) / dimension.step if dimension.step else 0.0
    on_grid = math.isclose(steps, round(steps), abs_tol=1e-9)
    return (int(value) if dimension.integer else float(value)) if on_grid else None
