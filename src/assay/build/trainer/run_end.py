"""Whether anything ends a run; without torch, so that it can be asked early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
