"""Every combination of what is swept, in the order of Hydra's own sweeper."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any, final

from hydra.core.override_parser.types import IntervalSweep
from typing_extensions import override

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError
from assay.sweep.search.search import Proposal, Search
from assay.sweep.search.space import as_typed, discrete, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

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
    """`model.width` stands for `+model.width` as well."""
    return key if key in parsed else f"+{key}"


def _check_zip(
    values: Mapping[str, Sequence[str]], groups: Sequence[Sequence[str]], parsed: Mapping[str, Override]
) -> None:
    seen: set[str] = set()
    swept = [key for key, override in parsed.items() if override.is_sweep_override()]
    for group in groups:
        for key in group:
            if key not in swept:
                plain = key.lstrip("+")
                raise ConfigError(
                    f"{plain} is not swept{did_you_mean(plain, swept, '; ')}", key=_KEY, hint=f"{plain}=a,b,c"
                )
            if key in seen:
                raise ConfigError(f"{key} is zipped twice", key=_KEY, hint="name each key once")
            seen.add(key)
        lengths = {key: len(values[key]) for key in group}
        if len(set(lengths.values())) > 1:
            lengths_in_words = " and ".join(f"{key} has {length}" for key, length in lengths.items())
            raise ConfigError(
                f"values that move together must be equally many: {lengths_in_words}",
                key=_KEY,
                hint="give each of them one value per job",
            )
