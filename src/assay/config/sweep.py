"""From the overrides of a sweep to the configs of its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Sweep
from hydra.types import RunMode
from omegaconf import open_dict, read_write

from assay.config.compose import compose_with, explained, loader, trust_for
from assay.config.hydra_node import check_hydra
from assay.config.job_composer import JobComposer
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra._internal.hydra import Hydra
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig


def compose_sweep(overrides: Sequence[str], config_dir: Path | None = None) -> list[DictConfig]:
    """Expand a sweep as Hydra's basic sweeper does, and compose every job of it.

    Jobs that choose the same options share the work of composing them: a job that differs in values costs
    milliseconds.

    Args:
        overrides: As typed, sweeps such as `seed=1,2,3` among them.
        config_dir: The user's folder of config groups.

    Returns:
        Each job, as `assay.config.compose.compose` gives it.

    Raises:
        ConfigError: A job cannot be composed.
    """
    with loader(config_dir) as hydra:
        trusted = trust_for(hydra, overrides)
        with explained(hydra, overrides):
            parsed = OverridesParser.create().parse_overrides(list(overrides))
            for override in parsed:
                _check_sweep(override)
            batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
        directory = Path(compose_whole(hydra, overrides).hydra.sweep.dir)
        composer = JobComposer(hydra, trusted, directory)
        jobs = [job for batch in batches for job in batch]
        return [composer.composed(job, number) for number, job in enumerate(jobs)]


def compose_whole(hydra: Hydra, overrides: Sequence[str]) -> DictConfig:
    """A sweep as a whole, whose `hydra` node says which launcher and sweeper it has, and where it is written.

    Args:
        hydra: From `assay.config.compose.loader`.
        overrides: As typed, sweeps among them.

    Raises:
        ConfigError: It cannot be composed, or asks Hydra for what it may not do.
    """
    composed = compose_with(hydra, overrides, RunMode.MULTIRUN)
    check_hydra(composed.hydra)
    HydraConfig.instance().set_config(composed)
    with explained(hydra, overrides):
        directory = str(composed.hydra.sweep.dir)
        with read_write(composed.hydra), open_dict(composed.hydra):
            composed.hydra.sweep.dir = directory  # the clock is asked once
    return composed


def _check_sweep(override: Override) -> None:
    """Refuse a sweep among the values of a sweep, of which Hydra says something about a `Set[str]`."""
    values = override.value()
    inner = values.list if isinstance(values, ChoiceSweep) else []
    if any(isinstance(value, Sweep) for value in inner):
        raise ConfigError(
            f"{override.input_line} is a sweep among values",
            key=override.key_or_group,
            hint="write every value: a=1,2,x; or range(1,3) alone",
        )
