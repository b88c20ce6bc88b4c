"""What `optimizer.fused: auto` comes to. Imports no torch."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from omegaconf import DictConfig

from assay.config.serialize import value_of
from assay.config.tree import walk
from assay.errors import ConfigError

if TYPE_CHECKING:
    from typing import Any

AUTO: Final = "auto"
DECIDE: Final = (
    *("optimizer.fused", "optimizer.capturable", "optimizer.differentiable", "optimizer.foreach"),
    *("trainer.accelerator", "trainer.gradient_clip_val", "trainer.precision", "trainer.strategy"),
)
"""Keys that decide it, beside the classes."""
_CLASSES: Final = ("Adagrad", "Adam", "AdamW", "SGD")
"""Of `torch.optim`, those that take `fused`."""
_SCALED: Final = ("16-mixed", "16", 16)
_MIXED: Final = ("bf16-mixed", "bf16", *_SCALED)
_UNMIXED: Final = (None, "32-true", "32", 32, "64-true", "64", 64, "bf16-true", "16-true")
_ACCELERATORS: Final = (None, "auto", "cpu", "cuda", "gpu", "mps")


def settle_fused(config: DictConfig) -> None:
    """Replace `optimizer.fused: auto` by true or null: what a run records is what it does everywhere.

    Args:
        config: A job; changed in place.
    """
    name = _class_of(config)
    if name and value_of(config, "optimizer.fused") == AUTO:
        config.optimizer.fused = True if _suits(config, name) else None


def check_fused(config: DictConfig) -> None:
    """Refuse a fused optimizer where torch or Lightning would do so in the first step.

    Raises:
        ConfigError: It cannot be fused here.
    """
    name = _class_of(config)
    if not name or value_of(config, "optimizer.fused") is not True:
        return
    hint = "optimizer.fused=null"
    if _clips_mixed(config):
        raise ConfigError(
            "in mixed precision Lightning clips no gradients of a fused optimizer",
            key="optimizer.fused",
            hint=hint,
        )
    if name == "Adagrad" and _may_be_mps(config):
        raise ConfigError("torch has no fused Adagrad for Apple's GPU", key="optimizer.fused", hint=hint)


def _class_of(config: DictConfig) -> str:
    """The class of torch's that can be fused; empty for others."""
    home, _, name = str(value_of(config, "optimizer._target_")).rpartition(".")
    return name if name in _CLASSES and home in ("torch.optim", f"torch.optim.{name.lower()}") else ""


def _suits(config: DictConfig, name: str) -> bool:
    """Whether torch and Lightning do with a fused kernel what they do without one.

    Where the loss is scaled, a fused optimizer unscales the gradients by itself, and callbacks would see them
    scaled. There is no kernel for sparse gradients, and none of Adagrad for Apple's GPU.
    """

    def given(key: str) -> Any:
        return value_of(config, key)

    model = config.get("model")
    return (
        given("optimizer.foreach") is None
        and not given("optimizer.capturable")
        and not given("optimizer.differentiable")
        and given("trainer.precision") in (*_UNMIXED, *_MIXED)
        and given("trainer.precision") not in _SCALED
        and given("trainer.accelerator") in _ACCELERATORS
        and "deepspeed" not in str(given("trainer.strategy")).lower()
        and not _clips_mixed(config)
        and not (name == "Adagrad" and _may_be_mps(config))
        and not (
            isinstance(model, DictConfig)
            and any(one.name == "sparse" and one.raw is True for one in walk(model, "model"))
        )
    )


def _clips_mixed(config: DictConfig) -> bool:
    return value_of(config, "trainer.precision") in _MIXED and bool(
        value_of(config, "trainer.gradient_clip_val")
    )


def _may_be_mps(config: DictConfig) -> bool:
    accelerator = value_of(config, "trainer.accelerator")
    return accelerator == "mps" or (accelerator in (None, "auto", "gpu") and platform.system() == "Darwin")
