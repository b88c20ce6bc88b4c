"""From the overrides of a sweep to the configs of its jobs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Sweep
from hydra.types import RunMode
from omegaconf import OmegaConf

from assay.config.compose import PRIMARY, complete, explained, loader, trust_for
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hydra._internal.hydra import Hydra
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

    from assay.config.trust import Trust


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
        composed: dict[tuple[str, ...], DictConfig] = {}
        return [_job(hydra, job, composed, trusted) for batch in batches for job in batch]


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


def _job(
    hydra: Hydra, job: Sequence[str], composed: dict[tuple[str, ...], DictConfig], trusted: Trust
) -> DictConfig:
    with explained(hydra, job):
        parsed = OverridesParser.create().parse_overrides(list(job))
        values = [one for one in parsed if _is_plain_value(hydra, one)]
        options = tuple(str(one.input_line) for one in parsed if one not in values)
        if options not in composed:
            composed[options] = hydra.compose_config(
                config_name=PRIMARY,
                overrides=list(options),
                run_mode=RunMode.RUN,
                with_log_configuration=False,
            )
        config: DictConfig = copy.deepcopy(composed[options])
        OmegaConf.clear_cache(config)  # each job has a short id of its own
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        _note_overrides(config, parsed)
        HydraConfig.instance().set_config(config)
        complete(config, config.hydra, trusted)
    return config


def _is_plain_value(hydra: Hydra, override: Override) -> bool:
    """Whether an override leaves the choice of options, and Hydra's own node, alone."""
    key = override.key_or_group
    return not (
        override.package is not None
        or key.partition(".")[0] == "hydra"
        or hydra.config_loader.get_group_options(key)
    )


def _note_overrides(config: DictConfig, parsed: Sequence[Override]) -> None:
    """What Hydra writes about the overrides while it composes."""
    job = config.hydra.job.config.override_dirname
    own = [one for one in parsed if not one.is_hydra_override()]
    config.hydra.overrides.task = [one.input_line for one in own]
    config.hydra.job.override_dirname = get_overrides_dirname(
        overrides=own, kv_sep=job.kv_sep, item_sep=job.item_sep, exclude_keys=job.exclude_keys
    )
