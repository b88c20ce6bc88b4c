"""What a job's config tells by itself, before torch is imported and data is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean
from assay.config.tree import walk
from assay.errors import ConfigError

if TYPE_CHECKING:
    from assay.config.tree import Entry

OUR_MODULE = "assay.module.Module"
_LARGEST_SEED = 2**32 - 1
_AT_LEAST = {"trainer.accumulate_grad_batches": 1, "trainer.log_every_n_steps": 1, "scheduler.frequency": 1}
_INTERVALS = ("step", "epoch")


def check_job(config: DictConfig) -> None:
    """Refuse a job with holes, dangling interpolations, or a seed that is none.

    Args:
        config: A job without its `hydra` node.

    Raises:
        ConfigError: Naming the key.
    """
    if "seed" not in config:  # data and others ask for it
        _check_whole_number("seed", None, 0, _LARGEST_SEED)
    entries = list(walk(config))
    missing = sorted(entry.key for entry in entries if entry.is_missing)
    if missing:
        raise ConfigError(
            "this must be given" if len(missing) == 1 else "each of these must be given",
            key=", ".join(missing),
            hint=f"add {' '.join(f'{key}=…' for key in missing)}",
        )
    for entry in entries:
        if entry.is_interpolation:
            _check_interpolation(entry, [other.key for other in entries])
    _check_whole_number("seed", config.seed, 0, _LARGEST_SEED)
    _check_targets(config)
    for key, least in _AT_LEAST.items():
        if (value := OmegaConf.select(config, key)) is not None:
            _check_whole_number(key, value, least)
    interval = OmegaConf.select(config, "scheduler.interval")
    if interval is not None and interval not in _INTERVALS:
        raise ConfigError(
            f"{interval!r} is none of {', '.join(_INTERVALS)}",
            key="scheduler.interval",
            hint="scheduler.interval=epoch",
        )


def _check_whole_number(key: str, value: Any, least: int, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        given = "null" if value is None else value
        raise ConfigError(
            f"{given} was given; a whole number {wanted} was expected", key=key, hint=f"{key}={least}"
        )


def _check_interpolation(entry: Entry, keys: list[str]) -> None:
    """What is interpolated must be there; `${spec.…}` comes with the data."""
    try:
        entry.parent[entry.name]
    except InterpolationKeyError as error:
        asked = str(error).partition("Interpolation key '")[2].partition("'")[0]
        if asked.partition(".")[0] == "spec":
            return
        guess = did_you_mean(asked, keys)
        raise ConfigError(
            f"there is no {asked!r} to take the value from{'; ' + guess if guess else ''}",
            key=entry.key,
            hint=f"{entry.key}=VALUE, or ${{…}} of a key that `assay train --cfg` shows",
        ) from error
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0], key=entry.key, hint=f"{entry.key}=VALUE") from error


def _check_targets(config: DictConfig) -> None:
    """The nodes that no run can do without, and those of groups whose options add up."""
    ours = OmegaConf.select(config, "module._target_") == OUR_MODULE
    needed = ["trainer", "module", "data", *(("model", "loss", "optimizer") if ours else ())]
    for group in ("callbacks", "logger"):
        needed += [f"{group}.{name}" for name in config.get(group) or {}]
    for key in needed:
        node = OmegaConf.select(config, key)
        if not isinstance(node, DictConfig) or not node.get("_target_"):
            raise ConfigError(
                "names no class: it has no _target_",
                key=key,
                hint=f"~{key}" if "." in key else f"{key}._target_=…, or leave {key} as it is",
            )
