"""Which way a monitored metric is better, for those that keep, stop or lower something by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from omegaconf import DictConfig, OmegaConf

from assay.build.node import build_metrics
from assay.config.unread_keys import OUR_MODULE
from assay.errors import ConfigError
from assay.targets.call_signature import call_of
from assay.targets.resolve import resolve_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torchmetrics import MetricCollection


Mode = Literal["min", "max"]
AUTO: Final = "auto"
FORCED: Final = ("force_min", "force_max")
WRITTEN: Final = (AUTO, "min", "max", *FORCED)
"""What a `mode` may say."""
_WORDS: Final = {"min": "lower", "max": "higher"}


def monitors(config: DictConfig) -> Iterator[tuple[str, str]]:
    """Key of each node that follows a metric, and the metric."""
    for key in [*(f"callbacks.{name}" for name in config.get("callbacks") or {}), "scheduler"]:
        node = OmegaConf.select(config, key)
        monitor = node.get("monitor") if isinstance(node, DictConfig) else None
        if isinstance(monitor, str):
            yield key, monitor


def score_directions(config: DictConfig, metrics: Mapping[str, Any] | None = None) -> dict[str, Mode]:
    """Which way each score of a job is better, as far as its metrics say it."""
    if config.module._target_ != OUR_MODULE:
        return {}
    metrics = metrics or build_metrics(config)
    stages = {"train": metrics["train"], "val": metrics["eval"], "test": metrics["eval"]}
    return {name: mode for stage, built in stages.items() for name, mode in directions(built, stage).items()}


def mode_argument(
    config: DictConfig, key: str, known: Callable[[DictConfig], Mapping[str, Mode]] = score_directions
) -> dict[str, Mode]:
    """What to call a node's target with, beside what the node says: its `mode`, or nothing."""
    node, mode_key = OmegaConf.select(config, key), f"{key}.mode"
    if not isinstance(node, DictConfig):
        return {}
    written, metric = node.get("mode"), node.get("monitor")
    if not isinstance(metric, str):
        if written in (AUTO, *FORCED):
            message, monitor = "expected the name of a metric to monitor", f"{key}.monitor"
            raise ConfigError(message, key=monitor, hint=f"{monitor}=val/loss")
        return {}
    call = call_of(resolve_class(key, node))
    if call is None or "mode" not in call.parameters:
        return {}
    if written not in (None, *WRITTEN):
        raise ConfigError(
            f"expected one of {', '.join(WRITTEN)}, got {written!r}", key=mode_key, hint=f"{mode_key}={AUTO}"
        )
    stated: Mode = "min" if written in ("min", "force_min") else "max"
    if written in FORCED:
        return {"mode": stated}
    better = "min" if is_loss(metric) else known(config).get(metric)
    if written in (None, AUTO):
        if better is None:
            says = "" if config.module._target_ == OUR_MODULE else ", because a custom module logs it"
            message = f"it is not known whether a higher or a lower {metric} is better{says}"
            raise ConfigError(message, key=mode_key, hint=f"{mode_key}=max, or {mode_key}=min")
        return {"mode": better}
    if better is not None and better != stated:
        raise ConfigError(
            f"a {_WORDS[better]} {metric} is better, but mode={stated} reverses that",
            key=mode_key,
            hint=f"{mode_key}={AUTO}; to select the worst anyway: {mode_key}=force_{stated}",
        )
    return {"mode": stated}


def is_loss(metric: str) -> bool:
    """Whether a score is a loss, by its name.

    >>> is_loss("val/loss"), is_loss("g_loss"), is_loss("val/accuracy")
    (True, True, False)
    """
    return metric.replace("/", "_").rpartition("_")[2] == "loss"


def directions(metrics: MetricCollection, stage: str) -> dict[str, Mode]:
    """Which way each score of a stage is better, as torchmetrics' `higher_is_better` says."""
    modes: dict[str, Mode] = {f"{stage}/loss": "min"}
    named = metrics.clone(prefix=f"{stage}/")
    for name, metric in named.items(keep_base=False, copy_state=False):
        higher: bool | None = metric.higher_is_better
        if higher is not None:
            modes[str(name)] = "max" if higher else "min"
    return modes
