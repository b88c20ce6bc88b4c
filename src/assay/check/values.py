"""Are the plain values within the ranges that any run needs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.did_you_mean import did_you_mean
from assay.config.unread import OUR_DATA
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_TRAINER = "lightning.Trainer"
LARGEST_SEED = 2**32 - 1
_WHOLE = {
    "trainer.accumulate_grad_batches": 1,
    "trainer.log_every_n_steps": 1,
    "trainer.num_nodes": 1,
    "scheduler.frequency": 1,
}
"""Whole numbers, and the least that each may be."""
_WHOLE_OR_FOREVER = ("trainer.max_epochs", "trainer.max_steps")
_WHOLE_OF_DATA = {
    "data.batch_size": 1,
    "data.eval_batch_size": 1,
    "data.num_workers": 0,
    "data.prefetch_factor": 1,
    "data.seed": 0,
    "data.split.seed": 0,
}
_MOST_OF_DATA = {
    "data.num_workers": 1024,
    "data.prefetch_factor": 1024,
    "data.seed": LARGEST_SEED,
    "data.split.seed": LARGEST_SEED,
}
_SHARES = ("data.split.val", "data.split.test")
_LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches")
_CHOICES: dict[str, tuple[object, ...]] = {
    "enforce_clean_git": (True, False),
    "scheduler.interval": ("step", "epoch"),
    "trainer.gradient_clip_algorithm": ("norm", "value"),
    "trainer.matmul_precision": ("highest", "high", "medium"),
    "trainer.precision": (
        *("16-mixed", "bf16-mixed", "32-true", "64-true", "bf16-true", "16-true", "transformer-engine"),
        *("transformer-engine-float16", "16", "32", "64", "bf16", 16, 32, 64),
    ),
}
_ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "hpu", "mps", "tpu", "xla")


def check_values(config: DictConfig) -> None:
    """Refuse values that no run can use, whatever else was chosen.

    Args:
        config: A job.

    Raises:
        ConfigError: Naming the key.
    """
    _check_name_and_tags(config)
    check_whole_number("seed", OmegaConf.select(config, "seed"), 0, LARGEST_SEED)
    for key, least in _WHOLE.items():
        if (value := _value(config, key)) is not None:
            check_whole_number(key, value, least)
    for key, choices in _CHOICES.items():
        _check_choice(key, _value(config, key), choices)
    monitor = _value(config, "scheduler.monitor")
    if monitor is not None and not isinstance(monitor, str):
        raise ConfigError(
            f"{monitor} was given; the name of a metric was expected",
            key="scheduler.monitor",
            hint="scheduler.monitor=val/loss",
        )
    if str(_value(config, "scheduler._target_")).endswith(".ReduceLROnPlateau") and not monitor:
        raise ConfigError(
            "the learning rate follows a metric; none is named",
            key="scheduler.monitor",
            hint="scheduler.monitor=val/loss",
        )
    if _value(config, "trainer._target_") == _TRAINER:
        _check_trainer(config)
    if _value(config, "data._target_") == OUR_DATA:
        _check_data(config)


def _check_name_and_tags(config: DictConfig) -> None:
    name, tags = _value(config, "name"), _value(config, "tags")
    if "name" in config and (isinstance(name, bool) or not str("" if name is None else name).strip()):
        raise ConfigError(f"{_shown(name)} was given; a name was expected", key="name", hint="name=my_run")
    if tags is not None and not isinstance(tags, ListConfig):
        raise ConfigError(f"{_shown(tags)} was given; a list was expected", key="tags", hint=f"tags=[{tags}]")
    for tag in tags or []:
        if not isinstance(tag, str | int | float):
            raise ConfigError(f"{_shown(tag)} is not a tag", key="tags", hint="tags=[baseline,week_3]")


def _value(config: DictConfig, key: str) -> Any:
    try:
        return OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None  # waits for the data, or is refused elsewhere


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
    if _is_whole(value) and least <= value <= (value if most is None else most):
        return
    wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise ConfigError(
        f"{_shown(value)} was given; a whole number {wanted} was expected", key=key, hint=f"{key}={least}"
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _check_choice(key: str, value: Any, choices: tuple[object, ...]) -> None:
    if value is None or any(value == one and type(value) is type(one) for one in choices):
        return
    words = [one if isinstance(one, str) else str(one).lower() for one in choices if type(one) is not int]
    guess = did_you_mean(value, words) if isinstance(value, str) else ""
    raise ConfigError(
        f"{value!r} is none of {', '.join(words)}{'; ' + guess if guess else ''}",
        key=key,
        hint="; ".join(f"{key}={word}" for word in words[:2]),
    )


def _check_trainer(config: DictConfig) -> None:
    for key in _WHOLE_OR_FOREVER:
        value = _value(config, key)
        if _is_whole(value) and value < -1:
            raise ConfigError(
                f"{value} was given; a whole number was expected, or -1 for no end", key=key, hint=f"{key}=10"
            )
    for name in _LIMITS:
        value = _value(config, f"trainer.{name}")
        if _is_number(value) and not (0 <= value <= 1 or (value > 1 and float(value).is_integer())):
            raise ConfigError(
                f"{value} was given; a share from 0.0 to 1.0 or a number of batches was expected",
                key=f"trainer.{name}",
                hint=f"trainer.{name}=0.5, or trainer.{name}=10",
            )
    accelerator = _value(config, "trainer.accelerator")
    # Somebody's own package may register another.
    if isinstance(accelerator, str) and not config.get("trusted_packages"):
        _check_choice("trainer.accelerator", accelerator, _ACCELERATORS)


def _check_data(config: DictConfig) -> None:
    for key, least in _WHOLE_OF_DATA.items():
        if (value := _value(config, key)) is not None:
            check_whole_number(key, value, least, _MOST_OF_DATA.get(key))
    shares = [_value(config, key) for key in _SHARES]
    for key, share in zip(_SHARES, shares, strict=True):
        if share is not None and not (_is_number(share) and 0 <= share < 1):
            raise ConfigError(
                f"{share} was given; a share from 0 to below 1 was expected", key=key, hint=f"{key}=0.1"
            )
    if all(map(_is_number, shares)) and sum(shares) >= 1:
        raise ConfigError(
            f"{' and '.join(map(str, shares))} leave nothing to train on",
            key=", ".join(_SHARES),
            hint="data.split.val=0.1 data.split.test=0.2",
        )
    imbalance = _value(config, "data.imbalance")
    if _is_number(imbalance) and not 0 < imbalance <= 1:
        raise ConfigError(
            f"{imbalance} was given; smallest class over largest must be above 0 and at most 1",
            key="data.imbalance",
            hint="data.imbalance=0.01, or null",
        )
