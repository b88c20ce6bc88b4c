"""Do the pieces of a batch come to what the batch comes to?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from assay.check.static.micro_batch import KEY, OFF
from assay.errors import ConfigError
from assay.loss.targets import is_mean_over_samples

if TYPE_CHECKING:
    import lightning as L
    from omegaconf import DictConfig
    from torch import nn


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
            hint=f"{OFF}, a loss without class weights, or, in a class of your own that is such a mean, "
            "mean_over_samples = True",
        )
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        raise ConfigError(f"cannot be used with {type(trainer.strategy).__name__}", key=KEY, hint=OFF)
    if asked == "auto" and isinstance(trainer.strategy, DDPStrategy):
        raise ConfigError(
            "with several processes one would take its step again while the others wait for its gradients",
            key=KEY,
            hint=f"{KEY}=32, which all of them keep to",
        )
