"""Whether anything ends a run; without torch, so that it can be asked early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from assay.config.serialize import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def has_no_end(values: Mapping[str, Any]) -> bool:
    """Whether neither a number of epochs nor of steps ends a run.

    Args:
        values: Of the `trainer` node.
    """
    epochs, steps = values.get("max_epochs"), values.get("max_steps", -1)
    if steps is not None and steps != -1:
        return False
    return epochs == -1 or (epochs is None and values.get("max_time") is not None)


def may_end_early(config: DictConfig) -> bool:
    """Whether time or a callback may end a run before its last epoch."""
    return value_of(config, "trainer.max_time") is not None or is_stopped(config)


def is_stopped(config: DictConfig) -> bool:
    """Whether a callback may end the run: early stopping, a timer, or a custom one."""
    nodes = (config.get("callbacks") or {}).values()
    targets = [str(node.get("_target_")) for node in nodes if isinstance(node, DictConfig)]
    ours = ("assay.", "lightning.")
    return any(
        target.endswith(("EarlyStopping", "Timer")) or not target.startswith(ours) for target in targets
    )
