"""What a job's config tells by itself, before torch is imported and data is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from assay.config.composition_error import flat_keys
from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

OUR_MODULE = "assay.module.Module"
_LARGEST_SEED = 2**32 - 1
_AT_LEAST = {"trainer.accumulate_grad_batches": 1, "trainer.log_every_n_steps": 1, "scheduler.frequency": 1}
_ONE_OF = {"scheduler.interval": ("step", "epoch")}


def check_job(config: DictConfig) -> None:
    """Refuse a job with holes, dangling interpolations, or a seed that is none.

    Args:
        config: A job without its `hydra` node.

    Raises:
        ConfigError: Naming the key.
    """
    _check_seed(config.get("seed"))
    missing = sorted(key for key, node, name in _leaves(config, "") if node._get_node(name)._is_missing())
    if missing:
        ways = " ".join(f"{key}=…" for key in missing)
        raise ConfigError(f"{'this' if len(missing) == 1 else 'each of these'} must be given", key=", ".join(missing), hint=f"add {ways}")
    _check_interpolations(config)
    _check_targets(config)
    for key, least in _AT_LEAST.items():
        value = OmegaConf.select(config, key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ConfigError(f"{value!r} was given; a whole number of at least {least} was expected", key=key, hint=f"{key}={least}")
    for key, choices in _ONE_OF.items():
        value = OmegaConf.select(config, key)
        if value is not None and value not in choices:
            raise ConfigError(f"{value!r} is none of {', '.join(choices)}", key=key, hint=f"{key}={choices[0]}")


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise ConfigError(f"{seed!r} was given; a whole number from 0 to {_LARGEST_SEED} was expected", key="seed", hint="seed=0")


def _check_targets(config: DictConfig) -> None:
    """The nodes that no run can do without."""
    ours = OmegaConf.select(config, "module._target_") == OUR_MODULE
    for key in ("trainer", "module", "data", *(("model", "loss", "optimizer") if ours else ())):
        node = config.get(key)
        if not isinstance(node, DictConfig) or not node.get("_target_"):
            raise ConfigError("names no class: it has no _target_", key=key, hint=f"{key}._target_=…, or leave {key} as it is")


def _check_interpolations(config: DictConfig) -> None:
    """What is interpolated must be there; `${spec.…}` comes with the data."""
    for key, node, name in _leaves(config, ""):
        try:
            if node._get_node(name)._is_interpolation():
                node[name]
        except InterpolationKeyError as error:
            asked = str(error).partition("Interpolation key '")[2].partition("'")[0]
            if asked.partition(".")[0] == "spec":
                continue
            guess = did_you_mean(asked, flat_keys(config))
            raise ConfigError(
                f"there is no {asked!r} to take the value from{'; ' + guess if guess else ''}",
                key=key,
                hint=f"{key}=VALUE, or ${{…}} of a key that `assay train --cfg` shows",
            ) from error
        except OmegaConfBaseException as error:
            raise ConfigError(str(error).splitlines()[0], key=key, hint=f"{key}=VALUE") from error


def _leaves(node: DictConfig | ListConfig, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """Full key, node and name of each value that is no container."""
    for name in node if isinstance(node, DictConfig) else range(len(node)):
        key = f"{prefix}[{name}]" if isinstance(node, ListConfig) else f"{prefix}.{name}" if prefix else str(name)
        child = node._get_node(name)
        if isinstance(child, DictConfig | ListConfig) and not (child._is_none() or child._is_missing() or child._is_interpolation()):
            yield from _leaves(child, key)
        else:
            yield key, node, name
