"""Will there be the metrics that callbacks and the scheduler wait for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.build.trainer.monitor_mode import monitors
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
    from assay.build.trainer.run_length import why_no_validation  # it imports torch

    is_tested = config.spec.num_test and config.trainer.get("limit_test_batches") != 0
    tested = [f"test/{name.removeprefix('val/')}" for name in names["val"]] if is_tested else []
    return [*names["train"], *(() if why_no_validation(config)[0] else names["val"]), *tested]


def check_monitors(config: DictConfig, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse the name of a metric that nobody will log.

    Args:
        config: The job, with its `spec`.
        names: Of the stages `train` and `val`, see `assay.check.proof.smoke_batch.try_parts`.

    Raises:
        ConfigError: Naming the key of the monitor.
    """
    from assay.build.trainer.run_length import why_no_validation  # it imports torch

    without, instead = why_no_validation(config)
    known = [*names["train"], *(() if without else names["val"])]
    for node, monitor in monitors(config):
        key = f"{node}.monitor"
        if monitor in known or monitor in _ALWAYS or monitor.startswith("lr-"):
            continue
        if without and monitor in names["val"]:
            raise ConfigError(
                f"there will be no {monitor!r}: {without}", key=key, hint=f"{instead}, or {key}=train/loss"
            )
        raise no_metric(key, monitor, sorted(known))


def no_metric(key: str, metric: str, known: Sequence[str]) -> ConfigError:
    """What to tell of a metric that nothing logs.

    Args:
        key: That names it.
        metric: Its name.
        known: Those that are logged.
    """
    return ConfigError(
        f"there is no metric {metric!r}{did_you_mean(metric, known, '; ')}",
        key=key,
        hint=f"there is: {', '.join(known)}",
    )
