"""Are the plain values within the ranges that any run needs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean
from assay.config.unread_keys import OUR_DATA
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

LARGEST_SEED = 2**32 - 1
MOST_THREADS = 1024
"""Of a process; more are asked for by mistake."""
_WHOLE_OF_DATA = {
    "data.batch_size": 1,
    "data.eval_batch_size": 1,
    "data.num_workers": 0,
    "data.prefetch_factor": 1,
    "data.seed": 0,
    "data.split.seed": 0,
}
"""Whole numbers, and the least that each may be."""
_MOST_OF_DATA = {
    "data.num_workers": 1024,
    "data.prefetch_factor": 1024,
    "data.seed": LARGEST_SEED,
    "data.split.seed": LARGEST_SEED,
}
_SHARES = ("data.split.val", "data.split.test")
_CHOICES: dict[str, tuple[object, ...]] = {
    "enforce_clean_git": (True, False),
    "optimizer.line_search_fn": ("strong_wolfe",),
    "scheduler.interval": ("step", "epoch"),
    "trainer.gradient_clip_algorithm": ("norm", "value"),
    "trainer.matmul_precision": ("highest", "high", "medium"),
    "trainer.precision": (
        *("16-mixed", "bf16-mixed", "32-true", "64-true", "bf16-true", "16-true", "transformer-engine"),
        *("transformer-engine-float16", "16", "32", "64", "bf16", 16, 32, 64),
    ),
}


def check_values(config: DictConfig) -> None:
    """Refuse values that no run can use, whatever else was chosen.

    Args:
        config: A job.

    Raises:
        ConfigError: Naming the key.
    """
    _check_name_and_tags(config)
    check_whole_number("seed", OmegaConf.select(config, "seed"), 0, LARGEST_SEED)
    if (frequency := value_of(config, "scheduler.frequency")) is not None:
        check_whole_number("scheduler.frequency", frequency, 1)
    for key, choices in _CHOICES.items():
        check_choice(key, value_of(config, key), choices)
    monitor = value_of(config, "scheduler.monitor")
    if monitor is not None and not isinstance(monitor, str):
        raise ConfigError(
            f"{monitor} was given; the name of a metric was expected",
            key="scheduler.monitor",
            hint="scheduler.monitor=val/loss",
        )
    if str(value_of(config, "scheduler._target_")).endswith(".ReduceLROnPlateau"):
        _check_plateau(config)
    if value_of(config, "data._target_") == OUR_DATA:
        _check_data(config)


def _check_plateau(config: DictConfig) -> None:
    if not value_of(config, "scheduler.monitor"):
        raise ConfigError(
            "the learning rate follows a metric; none is named",
            key="scheduler.monitor",
            hint="scheduler.monitor=val/loss",
        )
    lr = value_of(config, "optimizer.lr")
    for name in ("min_lr", "eps"):
        value = value_of(config, f"scheduler.{name}")
        if is_number(value) and is_number(lr) and value >= lr > 0:
            raise ConfigError(
                f"{value} was given; with optimizer.lr={lr} the learning rate would never be lowered",
                key=f"scheduler.{name}",
                hint=f"scheduler.{name}=0.0",
            )


def _check_name_and_tags(config: DictConfig) -> None:
    name, tags = value_of(config, "name"), value_of(config, "tags")
    if not (is_number(name) or isinstance(name, str)) or not str(name).strip():
        raise ConfigError(f"{_shown(name)} was given; a name was expected", key="name", hint="name=my_run")
    if tags is not None and not isinstance(tags, list):
        raise ConfigError(f"{_shown(tags)} was given; a list was expected", key="tags", hint=f"tags=[{tags}]")
    for tag in tags or []:
        if not isinstance(tag, str | int | float):
            raise ConfigError(f"{_shown(tag)} is not a tag", key="tags", hint="tags=[baseline,week_3]")


def value_of(config: DictConfig, key: str) -> Any:
    """What stands under a key, as plain data; None where it waits for the data, or is refused elsewhere.

    Args:
        config: A job.
        key: Full key.
    """
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
        f"{_shown(value)} was given; a whole number {wanted} was expected", key=key, hint=f"{key}={least}"
    )


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number; true and false are not.

    Args:
        value: From YAML.
    """
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number; true and false are not.

    Args:
        value: From YAML.
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def check_choice(key: str, value: Any, choices: tuple[object, ...]) -> None:
    """Refuse a word that is none of those there are; what is neither text nor a whole number is let through.

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
    guess = did_you_mean(value, words) if isinstance(value, str) else ""
    raise ConfigError(
        f"{value!r} is none of {', '.join(words)}{'; ' + guess if guess else ''}",
        key=key,
        hint="; ".join(f"{key}={word}" for word in words[:2]),
    )


def _check_data(config: DictConfig) -> None:
    for key, least in _WHOLE_OF_DATA.items():
        if (value := value_of(config, key)) is not None:
            check_whole_number(key, value, least, _MOST_OF_DATA.get(key))
    shares = [value_of(config, key) for key in _SHARES]
    for key, share in zip(_SHARES, shares, strict=True):
        if share is not None and not (is_number(share) and 0 <= share < 1):
            raise ConfigError(
                f"{share} was given; a share from 0 to below 1 was expected", key=key, hint=f"{key}=0.1"
            )
    if all(map(is_number, shares)) and sum(shares) >= 1:
        raise ConfigError(
            f"{' and '.join(map(str, shares))} leave nothing to train on",
            key=", ".join(_SHARES),
            hint="data.split.val=0.1 data.split.test=0.2",
        )
    imbalance = value_of(config, "data.imbalance")
    if is_number(imbalance) and not 0 < imbalance <= 1:
        raise ConfigError(
            f"{imbalance} was given; smallest class over largest must be above 0 and at most 1",
            key="data.imbalance",
            hint="data.imbalance=0.01, or null",
        )
