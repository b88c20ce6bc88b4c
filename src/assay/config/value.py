"""A value of a config, and whether it is the number or the word that was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

LARGEST_SEED = 2**32 - 1
MOST_THREADS = 1024
"""Of a process; more are asked for by mistake."""


def value_of(config: DictConfig, key: str) -> Any:
    """What stands under a key, as plain data; None where it waits for the data, or is refused elsewhere."""
    try:
        value = OmegaConf.select(config, key)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException:
        return None


def check_whole_number(key: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse anything but a whole number in a range.

    Args:
        key: Full key.
        value: What was given.
        least: The smallest it may be.
        most: The largest it may be; None for no bound.

    Raises:
        ConfigError: It is something else.
    """
    if is_whole(value) and least <= value <= (value if most is None else most):
        return
    wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise ConfigError(
        f"{shown(value)} was given; a whole number {wanted} was expected", key=key, hint=f"{key}={least}"
    )


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value as a message names it."""
    return "null" if value is None else str(value)


def check_choice(key: str, value: Any, choices: tuple[object, ...]) -> None:
    """Refuse a word that is not one of the choices; what is neither text nor a whole number passes.

    Args:
        key: Full key.
        value: What was given.
        choices: What may be given.

    Raises:
        ConfigError: It is another word.
    """
    if value is None or any(value == one and type(value) is type(one) for one in choices):
        return
    words = [one if isinstance(one, str) else str(one).lower() for one in choices if type(one) is not int]
    guess = did_you_mean(value, words, "; ") if isinstance(value, str) else ""
    raise ConfigError(
        f"{value!r} is not one of {', '.join(words)}{guess}",
        key=key,
        hint="; ".join(f"{key}={word}" for word in words[:2]),
    )
