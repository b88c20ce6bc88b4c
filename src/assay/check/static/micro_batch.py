"""Can the steps of this job be taken in pieces of their batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from assay.config.unread_keys import OUR_MODULE
from assay.config.value import check_whole_number, value_of
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

KEY = "trainer.micro_batch"
OFF = f"{KEY}=null"


def check_micro_batch(config: DictConfig) -> None:
    """Refuse values that are not a size, and jobs whose steps are not assay's.

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
        raise ConfigError("a trainer of your own takes its steps itself", key=KEY, hint=OFF)
    if OmegaConf.select(config, "module._target_") not in (None, OUR_MODULE):
        raise ConfigError("a LightningModule of your own does its steps as it likes", key=KEY, hint=OFF)
    if asked == "auto" and is_lbfgs(config):
        raise ConfigError(
            "LBFGS asks for the loss several times a step, which must all be of the same pieces",
            key=KEY,
            hint=f"{KEY}=32",
        )


def is_lbfgs(config: DictConfig) -> bool:
    """Whether the optimizer asks for the loss and its gradient several times in a step."""
    return str(value_of(config, "optimizer._target_")).endswith(".LBFGS")
