"""Are the plain values within the ranges that any run needs?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from assay.config.unread_keys import OUR_DATA
from assay.config.value import LARGEST_SEED, check_choice, check_whole_number, is_number, shown, value_of
from assay.data.limits import NAMES, check_limits
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_CHOICES: dict[str, tuple[object, ...]] = {
    "enforce_clean_git": (True, False),
    "optimizer.fused": ("auto", True, False),
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

    Raises:
        ConfigError: Naming the key.
    """
    _check_name_and_tags(config)
    _check_predictions(config)
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


def _check_predictions(config: DictConfig) -> None:
    for name, largest in (("max_megabytes", 1000), ("num_samples", 1000)):
        key = f"predictions.{name}"
        if value_of(config, "predictions") is not None:
            check_whole_number(key, value_of(config, key), 0, largest)


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
        raise ConfigError(f"{shown(name)} was given; a name was expected", key="name", hint="name=my_run")
    if tags is not None and not isinstance(tags, list):
        raise ConfigError(f"{shown(tags)} was given; a list was expected", key="tags", hint=f"tags=[{tags}]")
    for tag in tags or []:
        if not isinstance(tag, str | int | float):
            raise ConfigError(f"{shown(tag)} is not a tag", key="tags", hint="tags=[baseline,week_3]")


def _check_data(config: DictConfig) -> None:
    for key in ("data.seed", "data.split.seed"):
        if (value := value_of(config, key)) is not None:
            check_whole_number(key, value, 0, LARGEST_SEED)
    check_limits({name: value_of(config, f"data.{name}") for name in NAMES})
