"""The interface of searches, and Hydra's sweep grammar as a search space.

The grammar: `choice(a,b)`, `range(1,9)`, `tag(log, interval(1e-4, 0.1))`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, final

import msgspec
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    RangeSweep,
    Sweep,
)
from hydra.errors import HydraException

from assay.config.did_you_mean import did_you_mean
from assay.config.hydra_internals import as_override
from assay.config.serialize import REPETITIONS
from assay.errors import ConfigError
from assay_analysis.run import flatten
from assay_explain.composition_error import SWEEPS, reason_of_parser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader

    from assay.record.run_record import Outcome

Count = Annotated[int, msgspec.Meta(ge=1)]
Known = tuple[str, "Outcome | None", "Sequence[float] | None"]
"""A proposal's token, how its job ended (None: not yet), and its scores."""


@final
@dataclass(frozen=True)
class Proposal:
    """One job that a search wants to be run."""

    overrides: tuple[str, ...]
    token: str = ""


class Search(ABC):
    """Proposes jobs, is told how they ended, and may propose others in response.

    What is not required stands for a search that knows all its jobs from the start and learns from none.

    Attributes:
        learns: Whether its jobs depend on how others ended: it is made with the objectives and the sweep's
            directory, and says with `samples` what its jobs are like.
    """

    learns: ClassVar[bool] = False

    @property
    @abstractmethod
    def total(self) -> int:
        """Jobs in all, as far as is known now: a pruned trial needs no further seeds."""

    @abstractmethod
    def next(self) -> Proposal | None:
        """The next job; None where there is nothing to start now."""

    def restore(self, known: Sequence[Known]) -> None:
        """Take up a sweep where it was left; called once, before all else, where the search learns.

        Args:
            known: Every proposal of the journal, in order. The sweep runs those without an end again itself.
        """
        del known

    def samples(self) -> list[tuple[str, ...]]:
        """Jobs that stand for all others when a sweep is checked, where these are not known ahead."""
        return []

    def tell(self, token: str, outcome: Outcome, scores: Sequence[float] | None) -> None:
        """Report the final outcome of a job; reporting it twice changes nothing.

        Args:
            token: Of its proposal.
            outcome: How it ended; one that was interrupted will be run again, and has not ended.
            scores: One per objective; None unless it has finished.
        """
        del token, outcome, scores

    def trial(self, token: str) -> dict[str, Any] | None:
        """What the process of a job gets that was proposed before; see `JobSpec.trial`."""
        return None


_TAGS = ("log", "int")


@final
@dataclass(frozen=True)
class Choice:
    """A parameter that takes one of several values."""

    key: str
    values: tuple[str, ...]

    def text(self, value: Any) -> str:
        """A value of this parameter as it is typed."""
        return str(value)


@final
@dataclass(frozen=True)
class Numbers:
    """A parameter that takes any number between two, or one of equally spaced ones."""

    key: str
    low: float
    high: float
    step: float = 0.0
    log: bool = False
    integer: bool = False

    @property
    def values(self) -> tuple[float, float]:
        """Its ends."""
        return self.low, self.high

    def text(self, value: Any) -> str:
        """A value of this parameter as it is typed."""
        if self.integer:
            return str(round(value))
        # Neighbours are reached by adding steps: 0.30000000000000004 is meant to be 0.3.
        return repr(float(f"{value:.12g}" if self.step else value))


Dimension = Choice | Numbers


@final
@dataclass(frozen=True)
class Space:
    """The search space of a command line and `hydra.sweeper.params`, and the overrides that are fixed."""

    entries: tuple[str | Dimension, ...]

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """What is searched; seed and fold are not part of it."""
        searched = (entry for entry in self.entries if not isinstance(entry, str))
        return tuple(entry for entry in searched if not _is_repetition(entry.key))

    @cached_property
    def seeds(self) -> tuple[str, ...]:
        """Each configuration is run with each of these; one empty text where the seed is not swept."""
        return tuple(
            ",".join(values) for values in product(*(choice.values for choice in self._repeated))
        )

    @cached_property
    def _repeated(self) -> tuple[Choice, ...]:
        return tuple(
            part for part in self.entries if isinstance(part, Choice) and _is_repetition(part.key)
        )

    def propose(self, number: int, values: Mapping[str, Any], seed: str) -> Proposal:
        """Propose the job of one of a search's points with one of the seeds."""
        token = str(number)
        if seed:
            token = f"{number}/{seed}"
        return Proposal(self.job(values, seed), token)

    def job(self, values: Mapping[str, Any], seed: str = "") -> tuple[str, ...]:
        """One job's overrides."""
        keys = [choice.key for choice in self._repeated]
        values = {**values, **dict(zip(keys, seed.split(","), strict=False))}
        return tuple(
            entry if isinstance(entry, str) else f"{entry.key}={entry.text(values[entry.key])}"
            for entry in self.entries
        )


def parse_overrides(
    overrides: Sequence[str],
    params: Mapping[str, Any] | None,
    config_loader: ConfigLoader | None = None,
) -> dict[str, Override]:
    """What is typed and what `hydra.sweeper.params` holds, as Hydra's basic sweeper reads it."""
    parser = OverridesParser.create(config_loader=config_loader)
    typed = [_parse(parser, line) for line in overrides]
    keys = [_plain_key(override) for override in typed]
    for place, override in enumerate(typed):
        if override.is_sweep_override() and keys[place] in keys[place + 1 :]:
            raise ConfigError(
                f"{override.input_line} would have no effect, as this key is typed again",
                key=keys[place],
                hint="leave one of them out",
            )
    stored = [
        _parse(
            parser,
            f"{key}={value if isinstance(value, str) else as_override(value)}",
            f"hydra.sweeper.params.{key}",
        )
        for key, value in (flatten(params) if params else ())
    ]
    parsed = {
        name: override
        for name, override in {o.get_key_element(): o for o in (*stored, *typed)}.items()
        if override in typed or _plain_key(override) not in keys
    }
    for key, override in parsed.items():
        _check_sweep(key, override)
    return parsed


def _parse(parser: OverridesParser, line: str, key: str = "") -> Override:
    try:
        return parser.parse_overrides([line])[0]
    except HydraException as error:
        raise ConfigError(
            f"{line} cannot be parsed: {reason_of_parser(str(error))}", key=key, hint=SWEEPS
        ) from error


def _plain_key(override: Override) -> str:
    return override.get_key_element().lstrip("+~")


def read_space(
    overrides: Sequence[str],
    params: Mapping[str, Any] | None,
    config_loader: ConfigLoader | None = None,
) -> Space:
    """The search space of a command line and `hydra.sweeper.params`; one with a single point is refused."""
    parsed = parse_overrides(overrides, params, config_loader)
    space = Space(tuple(_parse_entry(key, override) for key, override in parsed.items()))
    if not space.dimensions:
        raise ConfigError(
            "there is nothing to search",
            key="hydra.sweeper.params",
            hint="optimizer.lr='tag(log, interval(1e-4, 1e-1))', or hydra/sweeper=grid",
        )
    return space


def format_override(key: str, override: Override) -> str:
    """A fixed override as Hydra's basic sweeper writes it."""
    # Hydra's own sweeper would make `~a=null` of `~a`, which deletes nothing
    if override.is_delete():
        return str(override.input_line)
    return f"{key}={override.get_value_element_as_str()}"


def _is_repetition(key: str) -> bool:
    """Whether jobs that differ in this key alone repeat one configuration."""
    return key.lstrip("+") in REPETITIONS


def _parse_entry(key: str, override: Override) -> str | Dimension:
    if not override.is_sweep_override():
        return format_override(key, override)
    sweep = override.value()
    if _is_repetition(key) and isinstance(sweep, IntervalSweep):
        name = key.lstrip("+")
        raise ConfigError(
            f"a {name} is not a number to search for",
            key=key,
            hint=f"{key}=range(5), or {key}=1,2,3",
        )
    if isinstance(sweep, IntervalSweep):
        return _parse_interval(key, sweep)
    if isinstance(sweep, RangeSweep) and not _is_repetition(key):
        return _parse_range(key, sweep)
    return Choice(key, tuple(override.sweep_string_iterator()))


def _parse_interval(key: str, sweep: IntervalSweep) -> Numbers:
    assert sweep.start is not None  # noqa: S101 - the grammar asks for both
    assert sweep.end is not None  # noqa: S101 - as above
    integer = "int" in sweep.tags or isinstance(sweep.start, int)
    low = sweep.start
    high = sweep.end
    if integer:
        low = math.ceil(low)
        high = math.floor(high)
    log = "log" in sweep.tags
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ConfigError(f"there is no number from {sweep.start} to {sweep.end}", key=key)
    if log and low <= 0:
        raise ConfigError(
            f"a logarithmic scale cannot start at {low}",
            key=key,
            hint=f"{key}=tag(log, interval(1e-5, …))",
        )
    return Numbers(key, low, high, 1.0 if integer and not log else 0.0, log, integer)


def _parse_range(key: str, sweep: RangeSweep) -> Numbers:
    steps: Any = sweep
    # the latter until Hydra 1.3
    values = list(steps if hasattr(steps, "__iter__") else steps.range())
    integer = all(isinstance(value, int) for value in values)
    step = abs(float(sweep.step))
    log = "log" in sweep.tags
    low = min(values)
    high = max(values)
    if not integer:  # they are sums of steps
        low = float(f"{low:.12g}")
        high = float(f"{high:.12g}")
    if log and (not integer or step != 1 or low <= 0):
        raise ConfigError(
            "a logarithmic range needs whole numbers above 0, one after the other",
            key=key,
            hint=f"{key}=tag(log, interval({low}, {high}))",
        )
    return Numbers(key, low, high, 0.0 if log else step, log, integer)


def _check_sweep(key: str, override: Override) -> None:
    """Refuse sweeps that Hydra would accept, or reject with an obscure message."""
    sweep: Any = override.value()
    if not override.is_sweep_override():
        return
    tags = sorted(set(getattr(sweep, "tags", ())) - set(_TAGS))
    problem = ""
    hint = f"{key}=a,b,c"
    if isinstance(sweep, ChoiceSweep) and any(isinstance(value, Sweep) for value in sweep.list):
        problem = f"{override.input_line} is a sweep among values"
        hint = "write every value: a=1,2,x; or range(1,3) alone"
    elif isinstance(sweep, IntervalSweep | RangeSweep) and tags:
        problem = f"there is no tag {tags[0]!r}{did_you_mean(tags[0], _TAGS, '; ')}"
        hint = f"available: {', '.join(_TAGS)}"
    elif (isinstance(sweep, RangeSweep) and not sweep.step) or not (
        isinstance(sweep, IntervalSweep) or any(True for _ in override.sweep_string_iterator())
    ):
        problem = f"{override.input_line} has no values"
    if problem:
        raise ConfigError(problem, key=key, hint=hint)
