"""Can the steps of this job be taken in pieces of their batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from omegaconf import OmegaConf

from assay.config.unread_keys import OUR_MODULE
from assay.config.value import check_whole_number, value_of
from assay.errors import ConfigError
from assay.loss.mean_over_samples import is_mean_over_samples

if TYPE_CHECKING:
    import lightning as L
    from omegaconf import DictConfig
    from torch import nn

KEY = "trainer.micro_batch"
_OFF = f"{KEY}=null"


def check_micro_batch(config: DictConfig) -> None:
    """Refuse values that are not a size, and jobs whose steps are not assay's.

    Args:
        config: A job.

    Raises:
        ConfigError: Naming the key.
    """
    asked = value_of(config, KEY)
    if asked is None:
        return
    if asked != "auto":
        if isinstance(asked, str):
            raise ConfigError(
                f"{asked} was given; auto, a number of samples, or null for the whole batch was expected",
                key=KEY,
                hint=f"{KEY}=auto",
            )
        check_whole_number(KEY, asked, 1)
    if OmegaConf.select(config, "trainer._target_") != "lightning.Trainer":
        raise ConfigError("a trainer of your own takes its steps itself", key=KEY, hint=_OFF)
    if OmegaConf.select(config, "module._target_") not in (None, OUR_MODULE):
        raise ConfigError("a LightningModule of your own does its steps as it likes", key=KEY, hint=_OFF)
    if asked == "auto" and str(value_of(config, "optimizer._target_")).endswith(".LBFGS"):
        raise ConfigError(
            "LBFGS asks for the loss several times a step, which must all be of the same pieces",
            key=KEY,
            hint=f"{KEY}=32",
        )


def check_in_pieces(config: DictConfig, loss: nn.Module, trainer: L.Trainer) -> None:
    """Refuse what is not the same for a batch and for its pieces together.

    Args:
        config: The job.
        loss: As it will be used.
        trainer: Of the job.

    Raises:
        ConfigError: Naming what does not go together.
    """
    asked = config.trainer.get("micro_batch")
    if asked is None:
        return
    callbacks = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    weighing = [type(one).__name__ for one in callbacks if getattr(one, "weighs_classes", False)]
    if weighing or not is_mean_over_samples(loss):
        name = type(loss).__name__ + (f" with {weighing[0]}" if weighing else "")
        raise ConfigError(
            f"{name} is not known to be a mean over samples: that of a batch is not that of its pieces",
            key=KEY,
            hint=f"{_OFF}, a loss without class weights, or, in a class of your own that is such a mean, "
            "mean_over_samples = True",
        )
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        raise ConfigError(f"cannot be used with {type(trainer.strategy).__name__}", key=KEY, hint=_OFF)
    if asked == "auto" and isinstance(trainer.strategy, DDPStrategy):
        raise ConfigError(
            "with several processes one would take its step again while the others wait for its gradients",
            key=KEY,
            hint=f"{KEY}=32, which all of them keep to",
        )
