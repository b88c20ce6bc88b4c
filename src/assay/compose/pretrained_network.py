"""What `model.config: auto` of a text encoder comes to. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omegaconf import open_dict

from assay.config.serialize import value_of
from assay.errors import ConfigError
from assay.model.weights.hf_folder import network_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

DECIDE: Final = ("model.weights", "model.config")
"""Keys that decide it."""
_TARGET: Final = "assay.model.hf_text.HFText"


def settle_network(config: DictConfig) -> None:
    """Replace `model.config: auto` by what the folder in `model.weights` says: a run needs it no more then.

    Where it says nothing the word stays, and the model tells why when it is built.

    Args:
        config: A job; changed in place.
    """
    if value_of(config, "model._target_") != _TARGET or value_of(config, "model.config") != "auto":
        return
    try:
        settings = network_of(value_of(config, "model.weights"))
    except ConfigError:
        return
    with open_dict(config):
        config.model.config = settings
