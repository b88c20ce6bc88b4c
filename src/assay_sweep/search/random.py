"""Samples drawn one by one: each a pure function of the seed and its number."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay_sweep.search.search import Choice, Count, Search, read_space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader

    from assay_sweep.search.search import Dimension, Proposal


@final
class RandomSearch(Search):
    """Draws configurations at random; a swept seed runs each of them once per seed.

    A value depends on the seed, the number of the sample and its own key alone: a sweep may be resumed, made
    longer or given another parameter, and what was drawn before stays.

    Args:
        overrides: As typed.
        params: The search space by key, in Hydra's sweep grammar; what is typed wins.
        num_samples: Configurations in all, resumed sweeps included.
        seed: Of the draws; apart from the runs' own.
        config_loader: Hydra's, for `glob(*)`.

    Raises:
        ConfigError: The space cannot be read, or has one point alone.
    """

    def __init__(
        self,
        overrides: Sequence[str],
        *,
        params: Mapping[str, Any] | None = None,
        num_samples: Count = 20,
        seed: int = 0,
        config_loader: ConfigLoader | None = None,
    ) -> None:
        self._space = read_space(overrides, params, config_loader)
        self._num_samples = num_samples
        self._seed = seed
        seeds = self._space.seeds  # itertools.product would hold all numbers at once
        self._left = ((number, seed) for number in range(num_samples) for seed in seeds)

    @property
    @override
    def total(self) -> int:
        return self._num_samples * len(self._space.seeds)

    @override
    def next(self) -> Proposal | None:
        for sample, seed in self._left:
            values = {part.key: draw(part, self._seed, sample) for part in self._space.dimensions}
            return self._space.propose(sample, values, seed)
        return None


def draw(dimension: Dimension, seed: int, number: int) -> Any:
    """One value of a parameter."""
    # Python seeds from a text through SHA-512, the same on every machine and in every version since 3.2.
    u = random.Random(f"{seed}/{number}/{dimension.key.lstrip('+')}").random()  # noqa: S311 - no secret
    if isinstance(dimension, Choice):
        return dimension.values[int(u * len(dimension.values))]
    low = dimension.low
    high = dimension.high
    if dimension.log:
        # A whole number stands for everything that is rounded to it.
        half = 0.0
        if dimension.integer:
            half = 0.5
        value = math.exp(
            math.log(low - half) + u * (math.log(high + half) - math.log(low - half))
        )
        return min(max(round(value) if dimension.integer else value, low), high)
    if dimension.step:
        count = round((high - low) / dimension.step) + 1
        return low + int(u * count) * dimension.step
    return low + u * (high - low)
