"""Will there be the metrics that callbacks and the scheduler wait for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.check.direction import monitors
from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omegaconf import DictConfig

_ALWAYS = ("epoch", "step")


def scores(config: DictConfig, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of the metrics that a job will log.

    Args:
        config: The job, with its `spec`.
        names: As for `check_monitors`.
    """
    tested = [f"test/{name.removeprefix('val/')}" for name in names["val"]] if config.spec.num_test else []
    return [*names["train"], *(names["val"] if _is_validated(config) else ()), *tested]


def check_asked_for(known: Sequence[str], asked: Mapping[str, str]) -> None:
    """Refuse a score that a sweep is to compare its jobs by, and that they will not have.

    Args:
        known: Names of the metrics that a job will log; empty where that is not known.
        asked: Keys that ask for a score, by its name.

    Raises:
        ConfigError: Naming the key.
    """
    there = {name.replace("val/", "test/") for name in known} | set(known)
    for name, key in asked.items():
        if known and name not in there:
            guess = did_you_mean(name, sorted(there))
            raise ConfigError(
                f"there is no metric {name!r}{'; ' + guess if guess else ''}",
                key=key,
                hint=f"there is: {', '.join(sorted(known))}",
            )


def check_monitors(config: DictConfig, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse the name of a metric that nobody will log.

    Args:
        config: The job, with its `spec`.
        names: Of the stages `train` and `val`, see `assay.check.trial.try_parts`.

    Raises:
        ConfigError: Naming the key of the monitor.
    """
    validated = _is_validated(config)
    known = [*names["train"], *(names["val"] if validated else ())]
    for node, monitor in monitors(config):
        key = f"{node}.monitor"
        if monitor in known or monitor in _ALWAYS or monitor.startswith("lr-"):
            continue
        if not validated and monitor in names["val"]:
            what = "there is no validation part" if not config.spec.num_val else "trainer.limit_val_batches=0"
            raise ConfigError(
                f"there will be no {monitor!r}: {what}",
                key=key,
                hint=f"{key}=train/loss" + (", or data.split.val=0.1" if not config.spec.num_val else ""),
            )
        guess = did_you_mean(monitor, known)
        raise ConfigError(
            f"there is no metric {monitor!r}{'; ' + guess if guess else ''}",
            key=key,
            hint=f"there is: {', '.join(sorted(known))}",
        )


def _is_validated(config: DictConfig) -> bool:
    return bool(config.spec.num_val) and config.trainer.get("limit_val_batches") != 0
