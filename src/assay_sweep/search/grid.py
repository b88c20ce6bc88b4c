"""Every combination of what is swept, in the order of Hydra's own sweeper."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, final

from hydra.core.override_parser.types import IntervalSweep
from typing_extensions import override

from assay.errors import ConfigError
from assay_sweep.search.search import Proposal, Search, format_override, parse_overrides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override


@final
class GridSearch(Search):
    """Every combination, the last parameter fastest, as Hydra's basic sweeper lists them.

    Args:
        overrides: As typed, sweeps such as `seed=1,2,3` among them.
        params: Further sweeps by key; what is typed wins.
        config_loader: Hydra's, for `glob(*)`.

    Raises:
        ConfigError: A sweep cannot be listed.
    """

    def __init__(
        self,
        overrides: Sequence[str],
        *,
        params: Mapping[str, Any] | None = None,
        config_loader: ConfigLoader | None = None,
    ) -> None:
        parsed = parse_overrides(overrides, params, config_loader)
        self._jobs = list(
            itertools.product(*(_values(key, override) for key, override in parsed.items()))
        )
        self._left = iter(self._jobs)

    @property
    @override
    def total(self) -> int:
        return len(self._jobs)

    @override
    def next(self) -> Proposal | None:
        job = next(self._left, None)
        if job is None:
            return None
        return Proposal(job, token=" ".join(job))


def _values(key: str, override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [format_override(key, override)]
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        low = sweep.start
        high = sweep.end
        raise ConfigError(
            f"a grid cannot list every number from {low} to {high}",
            key=key,
            hint=f"hydra/sweeper=random, hydra/sweeper=optuna, or a list: {key}={low},{high}",
        )
    return [f"{key}={value}" for value in override.sweep_string_iterator()]
