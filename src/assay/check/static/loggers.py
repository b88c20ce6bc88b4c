"""Are the settings those of a logger's service?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_loggers(config: DictConfig) -> None:
    """Refuse settings that Weights & Biases would refuse once the run has begun.

    Args:
        config: A job, past `check_installed`.

    Raises:
        ConfigError: Naming the setting.
    """
    for name, node in (config.get("logger") or {}).items():
        if not isinstance(node, DictConfig) or not str(node.get("_target_")).endswith(".WandbLogger"):
            continue
        settings = OmegaConf.to_container(node, resolve=True).get("settings")  # type: ignore[union-attr]  # of a mapping
        if isinstance(settings, dict):
            _check_wandb(f"logger.{name}.settings", settings)


def _check_wandb(key: str, settings: Mapping[str, Any]) -> None:
    import wandb
    from pydantic import ValidationError

    try:
        wandb.Settings(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join([key, *map(str, first["loc"])])
        value = first["input"]
        raise ConfigError(
            f"{value!r} was given: {first['msg']}", key=at, hint=f"~{at}, or see wandb.Settings"
        ) from error
