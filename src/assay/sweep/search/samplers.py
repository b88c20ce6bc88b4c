"""Which of Optuna's samplers proposes the n-th trial, and over which distributions."""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import pickle
import random
import secrets
import sys
from typing import TYPE_CHECKING, Any, Final, final

from assay.callbacks.optuna_study import build_part, no_news
from assay.errors import ConfigError
from assay.sweep.search.space import Choice
from assay.targets.resolve import own_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna

    from assay.sweep.search.space import Dimension, Space

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
    """Makes a sampler anew for each trial, its seed a function of the search's and the trial's number.

    A sampler's generator is in no storage: one that is made anew with the same seed when a study is resumed
    would draw its first trials once more.

    Args:
        node: `_target_` and arguments, as its YAML has them.
        space: What is searched.
        seed: Of the search; None draws one.
        constrained: The trials' constraints count.

    Raises:
        ConfigError: The sampler cannot be made, or cannot search this space.
    """

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
        """For one trial.

        Args:
            index: How many there were before.
        """
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
        """Read an optimizer of the package cmaes.

        Raises:
            ValueError: It is something else.
        """
        try:
            optimizer = _Unpickler(io.BytesIO(state)).load()
        except Exception as error:  # whatever damaged bytes lead to
            raise ValueError(f"the state of CMA-ES in this study cannot be read: {error}") from error
        if type(optimizer).__module__.partition(".")[0] != "cmaes":
            raise ValueError("the study holds no state of CMA-ES")
        return optimizer


def import_sampler(key: str, path: str, packages: Sequence[str]) -> None:
    """Import a sampler of the user's own, a subclass of Optuna's; `build_part` then knows it.

    Args:
        key: Full key of the value that names it.
        path: Dotted name, within the packages.
        packages: What the user trusts.

    Raises:
        ConfigError: It cannot be imported, or is not a sampler.
    """
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
